"""Interface of the rules for content words, by which a question is compared with a document. Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

_WORD = re.compile(r"\w+(?:'\w+)?")


class DocumentNames(Protocol):
    """Names with digits in them that the documents use, such as models and error codes."""

    def joined(self, words: Sequence[str], /) -> list[str]:
        """Return the words with names that were spoken in pieces joined: "k", "200" is "k200"."""
        ...

    def of(self, words: Iterable[str], /) -> set[str]:
        """Return the names among joined words that look like names of the documents, known or not."""
        ...


class ContentRules(Protocol):
    """Rules for content words of one language."""

    def words_of(self, text: str, /) -> list[str]:
        """Return the words of a text in lower case, numbers as digits; linear in its length."""
        ...

    def stem(self, word: str, /) -> str:
        """Return the common stem of words with the same meaning."""
        ...

    def terms(self, words: Iterable[str], /) -> list[str]:
        """Return the terms of joined words, in order, each once."""
        ...

    def is_empty(self, word: str, /) -> bool:
        """Return whether a word has no content."""
        ...

    def is_negated(self, words: Iterable[str], /) -> bool:
        """Return whether the words deny something."""
        ...

    def names(self, texts: Iterable[str], /) -> DocumentNames:
        """Return the names that the documents use."""
        ...


class NoNames:
    """Names of documents in a language that has no rules for them: none."""

    def joined(self, words: Sequence[str], /) -> list[str]:
        """Return the words as they are."""
        return list(words)

    def of(self, words: Iterable[str], /) -> set[str]:
        """Return no name."""
        return set()


class EveryWord:
    """Rules of a language that has none: every word is a term as it is written."""

    def words_of(self, text: str, /) -> list[str]:
        """Return the words of a text in lower case."""
        return _WORD.findall(text.lower().replace("\u2019", "'"))

    def stem(self, word: str, /) -> str:
        """Return the word."""
        return word

    def terms(self, words: Iterable[str], /) -> list[str]:
        """Return the words, each once."""
        return list(dict.fromkeys(words))

    def is_empty(self, word: str, /) -> bool:
        """Return False."""
        return False

    def is_negated(self, words: Iterable[str], /) -> bool:
        """Return False."""
        return False

    def names(self, texts: Iterable[str], /) -> DocumentNames:
        """Return no names."""
        return NoNames()
