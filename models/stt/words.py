"""Conversion of recognised sentences to the words of a ``Transcript``.

Punctuation, capitals and the recogniser's remarks ("[BLANK_AUDIO]", "(music)") are removed; spoken characters
stay ("don't", "3.5", "$5", "50%"). Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from parley.core.media import WordTime

# Closed pairs only: a lone bracket is an error of the recogniser, and not a reason to drop the rest.
_REMARK = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|<[^<>]*>|\*[^*]+\*|♪[^♪]*♪")
_MARKS = re.compile(r"[<>\[\](){}+*_|♪]")
# A currency sign belongs to the number after it, a percent sign to the one before.
_EDGES = re.compile(r"^[^\w$£€]+|[^\w%]+$")

# Factor by which the last word before a pause is longer.
FINAL_LENGTHENING = 1.6

# A hyphen between letters separates two spoken words ("bye-bye", "twenty-five").
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
# Spellings of older books, which some recognisers have learnt; the rules of turns use the modern ones.
_SPELLINGS = {"good-bye": "goodbye", "good-by": "goodbye", "goodby": "goodbye"}


def seconds_to_ms(seconds: float) -> int:
    """Return the nearest whole millisecond."""
    return round(seconds * 1000)


def timed_word(text: str, start_s: float, end_s: float, probability: float) -> WordTime:
    """Return a word from a library's values: seconds, and a probability that may be rounded outside 0..1."""
    return WordTime(
        text, seconds_to_ms(start_s), seconds_to_ms(end_s), float(min(1.0, max(0.0, probability)))
    )


def later(words: Iterable[WordTime], offset_ms: int) -> Iterator[WordTime]:
    """Yield the words ``offset_ms`` later, to place parts of an utterance on one time line."""
    for word in words:
        yield replace(word, start_ms=offset_ms + word.start_ms, end_ms=offset_ms + word.end_ms)


def plain_text(text: str) -> str:
    """Return a sentence as lower-case words joined by spaces."""
    spoken = _REMARK.sub(" ", text)
    return " ".join(word for written in spoken.split() if (word := _plain(written)))


def plain_words(words: Sequence[WordTime]) -> tuple[WordTime, ...]:
    """Return timed words in lower case, without remarks and punctuation.

    A word with a space in it stays one, because its times belong to the whole.
    """
    written = [word.text.strip() for word in words]
    remarks = [match.span() for match in _REMARK.finditer(" ".join(written))]
    kept: list[WordTime] = []
    at = 0
    for word, text in zip(words, written, strict=True):
        inside = any(start < at + len(text) and at < end for start, end in remarks)
        at += len(text) + 1
        plain = "" if inside else _plain(text)
        if plain:
            kept.append(replace(word, text=plain))
    return tuple(kept)


def fit_words(words: Sequence[WordTime], duration_ms: int) -> tuple[WordTime, ...]:
    """Return the words in order inside ``duration_ms``, each at least 1 ms long and without overlap.

    Engines report ends before starts, overlaps, and times in the silence that was added after the audio. A
    span shorter than its words is stretched.
    """
    end_of_all = max(duration_ms, len(words))
    fitted: list[WordTime] = []
    at = 0
    for left, word in zip(range(len(words) - 1, -1, -1), words, strict=True):
        latest_end = end_of_all - left
        start_ms = min(max(word.start_ms, at), latest_end - 1)
        at = min(max(word.end_ms, start_ms + 1), latest_end)
        fitted.append(replace(word, start_ms=start_ms, end_ms=at))
    return tuple(fitted)


def spread_words(text: str, start_ms: int, end_ms: int) -> Iterator[WordTime]:
    """Yield the words of a text with times estimated over its span: longer words take longer."""
    words = text.split()
    letters = sum(len(word) + 1 for word in words)
    before = 0
    for word in words:
        after = before + len(word) + 1
        yield WordTime(
            word,
            start_ms + (end_ms - start_ms) * before // letters,
            start_ms + (end_ms - start_ms) * after // letters,
            estimated=True,
        )
        before = after


def spread_over_voice(
    words: Sequence[WordTime], voiced: Sequence[int], window_ms: int, duration_ms: int
) -> Iterator[WordTime]:
    """Yield the words of a line with estimated times: they share its voiced windows by letters, without
    pauses.

    Ends are 102 ms from those of a forced alignment in the median, 227 ms in one of ten (31 human sentences).

    Args:
        words: in order; their times are not used.
        voiced: a flag for each window of the line.
        window_ms: duration of a window.
        duration_ms: duration of the line, for a line without a voiced window.
    """
    places = [place for place, is_voice in enumerate(voiced) if is_voice]
    if not places:
        places = list(range(max(1, duration_ms // window_ms)))
    weights = [len(word.text) + 1.0 for word in words]
    if weights:
        weights[-1] *= FINAL_LENGTHENING
    letters = sum(weights)
    before = 0.0
    for word, weight in zip(words, weights, strict=True):
        after = before + weight
        start_ms = _at(places, len(places) * before / letters, window_ms)
        end_ms = _at(places, len(places) * after / letters, window_ms, is_end=True)
        yield replace(word, start_ms=start_ms, end_ms=max(end_ms, start_ms + 1), estimated=True)
        before = after


def _at(places: Sequence[int], share: float, window_ms: int, *, is_end: bool = False) -> int:
    """Return the time at which ``share`` windows of those at ``places`` have passed.

    In a pause between two windows a word ends where the pause begins, and starts where it ends.
    """
    whole = int(share)
    if is_end and whole == share and whole > 0:
        return round((places[whole - 1] + 1) * window_ms)
    whole = min(whole, len(places) - 1)
    return round((places[whole] + share - whole) * window_ms)


def _plain(written: str) -> str:
    bare = _MARKS.sub("", written.lower().replace("\u2019", "'"))
    word = _EDGES.sub("", bare)
    return _SPELLINGS.get(word) or _HYPHEN.sub(" ", word)
