"""Normalisation of references and transcripts, so that word errors count recognition errors only.

English, in this order: lower case; parts in brackets dropped; hyphens replaced by spaces; numbers, times and
sums in words as the product's voices say them (``language.english.text_normalization``); contractions written
out as in openai-whisper's ``EnglishTextNormalizer``; fillers dropped; "okay" and "ok", "alright" and "all
right" unified. Spelling variants stay different and count as errors. See ``measure.word_errors`` for
compounds ("voicemail", "voice mail").

Other languages: lower case without punctuation. Spanish also loses its accents, which its references lack
("numero").
"""

import re
import unicodedata

from parley.evals.human.recordings import plain_words
from parley.language import text_rules

_BRACKETS = re.compile(r"\[[^\]]*\]|\([^)]*\)|<[^>]*>")
_CONTRACTIONS = (
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bcan't\b"), "can not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\blet's\b"), "let us"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"'re\b"), " are"),
    (re.compile(r"'s\b"), " is"),
    (re.compile(r"'d\b"), " would"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'m\b"), " am"),
)
_SAME = {"ok": "okay", "alright": "all right", "mr": "mister", "mrs": "missus", "dr": "doctor"}
_ORDINAL = re.compile(r"\b(\d{1,9})(?:st|nd|rd|th)\b")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_ENGLISH = text_rules("en")
_FILLERS = frozenset({"hmm", "mm", "mhm", "mmm", "uh", "um"})


def normalised(text: str, language: str = "en") -> tuple[str, ...]:
    """Return the words of a text in one spelling."""
    if language == "es":
        # An accent is a character of its own after decomposition.
        parts = unicodedata.normalize("NFD", text)
        return plain_words("".join(part for part in parts if unicodedata.category(part) != "Mn"))
    if language != "en":
        return plain_words(text)
    plain = _BRACKETS.sub(" ", text.lower().replace("’", "'"))
    plain = re.sub(r"(?<=\w)[-–—](?=\w)", " ", plain)
    plain = _ORDINAL.sub(lambda found: _ordinal(int(found[1])), plain)
    said = " ".join(token for word in _ENGLISH.spoken_words(plain) for token in word.spoken).lower()
    for pattern, written_out in _CONTRACTIONS:
        said = pattern.sub(written_out, said)
    words = (_SAME.get(word, word) for word in plain_words(said))
    return tuple(word for one in words for word in one.split() if word not in _FILLERS)


def _ordinal(value: int) -> str:
    before, _, last = f" {_ENGLISH.number_words(value)}".rpartition(" ")
    ending = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return f"{before} {_ORDINALS.get(last, ending)}".strip()
