"""Words and phrases of a deployment's documents that a recogniser should expect. Reads files; blocks.

A term is a content word, or two that follow each other. Question words, negations and numbers are left out:
the subject of a question may be guessed from the documents, but not whether it or its opposite is meant.

Of the formats of documents the text ones are read (Markdown, plain text, HTML). A PDF or a Word file takes
seconds, which a recogniser that is restarted in a call does not have.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from loguru import logger

from parley.core.errors import ConfigError
from parley.language import Language
from parley.models.retrieval.files import document_files, read_passages

TEXT_SUFFIXES = frozenset({".md", ".txt", ".html", ".htm"})
# Text that is read at most; the vocabulary of a subject does not grow much after that.
MOST_BYTES = 3_000_000
LEAST_LETTERS = 4
LEAST_CAPITALS = 3
_WORDS_AND_MARKS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|[^\w\s]|\d+")


def document_terms(folder: Path, language: Language, *, most: int) -> tuple[str, ...]:
    """Return the terms of the documents below a folder, the most frequent first.

    A file that cannot be read is left out, which is logged.

    Args:
        folder: the documents.
        language: that of the documents.
        most: greatest number of terms.
    """
    return terms_of(_texts(folder), language, most=most)


def terms_of(texts: Iterable[str], language: Language, *, most: int) -> tuple[str, ...]:
    """Return the terms of texts without markup, as ``document_terms``."""
    counts: Counter[tuple[str, ...]] = Counter()
    written: dict[str, str] = {}
    for text in texts:
        before: str | None = None
        for found in _WORDS_AND_MARKS.findall(text):
            word = found.lower()
            if not _is_term(found, language):
                before = None
                continue
            # A name is always written with its capitals; another word only where it begins a sentence.
            if found == word or word not in written:
                written[word] = found
            counts[word,] += 1
            if before is not None:
                counts[before, word] += 1
            before = word
    frequent = sorted(counts, key=lambda term: (-counts[term], term))[:most]
    return tuple(" ".join(written[word] for word in term) for term in frequent)


def _is_term(found: str, language: Language) -> bool:
    word = found.lower()
    least = LEAST_CAPITALS if found.isupper() else LEAST_LETTERS
    is_word = len(word) >= least and word.isalpha()
    return is_word and not language.content.is_empty(word) and not language.fixes_meaning(word)


def _texts(folder: Path) -> Iterator[str]:
    left = MOST_BYTES
    for path in document_files(folder):
        if path.suffix.lower() not in TEXT_SUFFIXES:
            continue
        try:
            size = path.stat().st_size
            if size > left:
                raise ConfigError(f"the documents have more than {MOST_BYTES / 1e6:.0f} MB of text")
            passages = read_passages(path)
        except (ConfigError, OSError) as error:
            logger.warning(f"the recogniser does not expect the words of {path.name}: {error}")
            continue
        left -= size
        for passage in passages:
            yield from (*passage.above, passage.title, passage.text)
