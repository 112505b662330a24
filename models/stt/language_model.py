"""Vocabulary and language model for pocketsphinx, optionally from the documents alone.

Input: the deployment's sentences. Output: two small files in a cache folder, named by the digest of their
sources, so that a second start reads them back. Everything here blocks and is part of loading an engine, not
of a call.

The reason for a vocabulary is that the time per second of speech grows with the number of words that may
follow. The table has the word error rate of 20 questions about the documents (three easy synthetic voices; a
hard one) and of 8 other sentences, and seconds of work per second of speech:

    72 000 words, general model               0.09  hard 0.56   else 0.06   0.17-0.21
    5000 commonest and the documents' words   0.09  hard 0.56-0.64   else 0.13   0.07
    documents' sentences alone                0.09  hard 0.47   else 0.62   0.045

The middle one is the default. It recognises the documents as well as the whole language does, and most other
things too, with 40 % of the work. The last one recognises only the documents. It was measured with "i lost
my" and "i forgot my", with which two of the questions begin, among the phrases of callers; they have been
removed since.

A word that is in no dictionary is built from two known ones ("payslips" is "pay" and "slips"), else it is
dropped, and the number of dropped words is logged.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import pocketsphinx
from loguru import logger
from pocketsphinx.lm import ArpaBoLM

from parley.core.errors import ConfigError

# Incremented when the files below change for the same input.
CACHE_FORMAT = 1
# Least letters of a part of a compound: shorter "words" of the dictionary are letter names.
COMPOUND_PART_LETTERS = 3
COMPOUND_PREFIXES = frozenset({"un", "re"})
# Score of pocketsphinx's language model, in units of its LogMath, at or below which a word is unknown to it.
UNKNOWN_LOG_PROBABILITY = -500_000
DOCUMENT_SUFFIXES = frozenset({".md", ".txt"})

# Phrases with which callers begin, answer and break off, in any deployment. Documents hold statements, and
# callers ask: without these a model of the documents alone has no "can i" and no "yes please". None is about
# a subject, and no question of an evaluation is among them: their recognition depends on the documents.
CALLER_PHRASES = (
    "how do i",
    "how can i",
    "how much is",
    "how much does it cost to",
    "how long does it take to",
    "how many",
    "what is the",
    "what are your",
    "what do i need to",
    "what happens if",
    "what does it cost",
    "when do you",
    "when does the",
    "when is the",
    "where is the",
    "where can i",
    "where do i find the",
    "who can",
    "who do i call",
    "why is",
    "which is",
    "can i",
    "could you tell me",
    "do you have",
    "do i have to",
    "does it",
    "is there a",
    "is it possible to",
    "are there any",
    "i want to",
    "i would like to",
    "i need to",
    "i need help with",
    "i have a question about",
    "i have a problem with",
    "tell me about",
    "please tell me",
    "please help me",
    "yes",
    "yes please",
    "no",
    "no thank you",
    "thank you",
    "thanks",
    "okay",
    "hello",
    "hi",
    "good morning",
    "good afternoon",
    "good evening",
    "goodbye",
    "bye",
    "stop",
    "wait",
    "one moment",
    "what did you say",
    "can you repeat that",
    "say that again",
    "and what about",
    "i don't understand",
    "i don't know",
    "help",
    "what can you do",
    "who are you",
)

_SENTENCE_END = re.compile(r"[.!?;:,\n]+(?:\s+|$)|\n+")
_NOT_SPOKEN = re.compile(r"[^a-z' ]+")
_VARIANT = re.compile(r"\(\d+\)$")


def base_word(entry: str) -> str:
    """Return a dictionary entry without the mark of a second pronunciation: ``"the(2)"`` is ``"the"``."""
    return _VARIANT.sub("", entry)


def spoken_sentences(text: str) -> Iterator[str]:
    """Yield clauses of a text in the dictionary's words: lower case, letters and apostrophes, joined by
    spaces.

    A heading is a clause too. Numbers must be spelled out; digits are dropped.
    """
    for clause in _SENTENCE_END.split(text.lower().replace("\u2019", "'")):
        words = (word.strip("'") for word in _NOT_SPOKEN.sub(" ", clause).split())
        sentence = " ".join(word for word in words if word)
        if sentence:
            yield sentence


def read_sentences(path: Path) -> tuple[str, ...]:
    """Return the clauses of a .md or .txt file, or of every such file below a folder, in the order of names.

    Raises:
        ConfigError: the file or folder does not exist, or a file is not text.
    """
    if not path.exists():
        raise ConfigError(f"there is no {path} to take words from")
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix in DOCUMENT_SUFFIXES)
    sentences: list[str] = []
    for file in files:
        try:
            sentences.extend(spoken_sentences(file.read_text(encoding="utf-8")))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file} is not UTF-8 text") from error
    return tuple(sentences)


class Dictionary:
    """Pronouncing dictionary: word to its entries, each ``(entry, phones)``, in the file's order.

    Raises:
        ConfigError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._entries: dict[str, list[tuple[str, str]]] = {}
        try:
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    entry, _, phones = line.strip().partition(" ")
                    if phones:
                        self._entries.setdefault(base_word(entry), []).append((entry, phones.strip()))
        except OSError as error:
            raise ConfigError(f"cannot read the dictionary {path}") from error

    def __contains__(self, word: object) -> bool:
        return word in self._entries

    def words(self) -> Iterable[str]:
        """Return every word, once."""
        return self._entries.keys()

    def entries(self, word: str) -> list[tuple[str, str]]:
        """Return the entries of a known word."""
        return self._entries[word]

    def compound(self, word: str) -> str | None:
        """Return the phones of a word made of two known ones, the first as long as possible, or None."""
        for cut in range(len(word) - COMPOUND_PART_LETTERS, 1, -1):
            first, second = word[:cut], word[cut:]
            if cut < COMPOUND_PART_LETTERS and first not in COMPOUND_PREFIXES:
                continue
            if first in self._entries and second in self._entries:
                return f"{self._entries[first][0][1]} {self._entries[second][0][1]}"
        return None


@dataclass(frozen=True, slots=True)
class DecoderVocabulary:
    """Files that define the words that one decoder can recognise.

    Attributes:
        dictionary: file with the words of the language model.
        language_model: file of the n-gram model.
        extra: (word, phones) that the general model lacks and that the decoder adds one by one.
    """

    dictionary: Path
    language_model: Path
    extra: tuple[tuple[str, str], ...] = ()


def general_vocabulary(sentences: Iterable[str], common_words: int, cache: Path) -> DecoderVocabulary:
    """Return the general language model over its ``common_words`` commonest words and those of ``sentences``.

    Takes 0.4 s, or the time to read the files of an earlier run.

    Raises:
        ConfigError: the cache folder cannot be written.
    """
    model_path = Path(pocketsphinx.get_model_path("en-us/en-us.lm.bin"))
    dictionary_path = Path(pocketsphinx.get_model_path("en-us/cmudict-en-us.dict"))
    wanted = sorted({word for sentence in sentences for word in sentence.split()})
    file = cache / f"general-{_digest('general', str(common_words), *wanted)}.dict"
    extra_file = file.with_suffix(".extra")
    if not (file.is_file() and extra_file.is_file()):
        dictionary = Dictionary(dictionary_path)
        known = _log_probabilities(dictionary.words(), model_path)
        chosen = set(sorted(known, key=lambda word: (-known[word], word))[:common_words])
        chosen.update(word for word in wanted if word in known)
        missing = _pronounced(dictionary, [word for word in wanted if word not in known])
        _write(extra_file, lambda out: out.writelines(f"{word} {phones}\n" for word, phones in missing))
        _write(file, lambda out: _write_dictionary(out, dictionary, chosen))
    extra = tuple(_split_entry(line) for line in extra_file.read_text(encoding="utf-8").splitlines())
    return DecoderVocabulary(file, model_path, extra)


def document_vocabulary(sentences: Iterable[str], cache: Path) -> DecoderVocabulary:
    """Return a language model of ``sentences`` and the caller phrases alone; it recognises nothing else.

    Raises:
        ConfigError: no sentence has a word of the dictionary, or the cache folder cannot be written.
    """
    texts = (*sentences, *CALLER_PHRASES)
    file = cache / f"documents-{_digest('documents', *texts)}.arpa"
    dictionary_file = file.with_suffix(".dict")
    if not (file.is_file() and dictionary_file.is_file()):
        dictionary = Dictionary(Path(pocketsphinx.get_model_path("en-us/cmudict-en-us.dict")))
        words = sorted({word for text in texts for word in text.split()})
        compounds = dict(_pronounced(dictionary, [word for word in words if word not in dictionary]))
        usable = {word for word in words if word in dictionary or word in compounds}
        kept = (" ".join(word for word in text.split() if word in usable) for text in texts)
        model = ArpaBoLM(text="\n".join(filter(None, kept)), add_start=True)
        model.compute()

        def write_dictionary(out: TextIO) -> None:
            _write_dictionary(out, dictionary, usable - compounds.keys())
            out.writelines(f"{word} {phones}\n" for word, phones in compounds.items())

        _write(dictionary_file, write_dictionary)
        _write(file, model.write)
    return DecoderVocabulary(dictionary_file, file)


def _log_probabilities(words: Iterable[str], model_path: Path) -> dict[str, int]:
    model = pocketsphinx.NGramModel(pocketsphinx.Config(), pocketsphinx.LogMath(), str(model_path))
    scores = {word: model.prob((word,)) for word in words}
    return {word: score for word, score in scores.items() if score > UNKNOWN_LOG_PROBABILITY}


def _pronounced(dictionary: Dictionary, words: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    dropped = 0
    for word in words:
        phones = dictionary.entries(word)[0][1] if word in dictionary else dictionary.compound(word)
        if phones is None:
            dropped += 1
        else:
            found.append((word, phones))
    if dropped:
        logger.warning(
            f"the recogniser cannot recognise {dropped} words of the documents, because their pronunciation "
            "is not known"
        )
    return found


def _write_dictionary(out: TextIO, dictionary: Dictionary, words: Iterable[str]) -> None:
    for word in sorted(words):
        out.writelines(f"{entry} {phones}\n" for entry, phones in dictionary.entries(word))


def _split_entry(line: str) -> tuple[str, str]:
    word, _, phones = line.partition(" ")
    return word, phones


def _digest(*parts: str) -> str:
    digest = hashlib.sha256(f"{CACHE_FORMAT} {version('pocketsphinx')}".encode())
    for part in parts:
        digest.update(b"\0" + part.encode())
    return digest.hexdigest()[:20]


def _write(path: Path, write: Callable[[TextIO], object]) -> None:
    """Write to a temporary file and rename it, so that processes that start together read whole files."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as out:
                write(out)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write the speech recognition cache {path.parent}: {error}") from error
