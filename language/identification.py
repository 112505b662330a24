"""Interface of the rules that identify a language, and the words that belong to it. Pure."""

from collections.abc import Iterable
from typing import Protocol


class IdentificationRules(Protocol):
    """Rules by which texts of one language are distinguished from others, and its words from noise."""

    def language_of(self, text: str, /) -> str | None:
        """Return the name of the language of a text, "other" for another script, None if it is uncertain."""
        ...

    def is_common(self, word: str, /) -> bool:
        """Return whether a word is one of the commonest of the language."""
        ...

    def is_pronounceable(self, word: str, /) -> bool:
        """Return whether a word may be one of the language."""
        ...

    def word_forms(self, word: str, /) -> Iterable[str]:
        """Return a word and the words of which it may be a form: "payments" and "payment"."""
        ...


class NoIdentification:
    """Rules of a language that has none: every text may be of it."""

    def language_of(self, text: str, /) -> str | None:
        """Return None."""
        return None

    def is_common(self, word: str, /) -> bool:
        """Return False."""
        return False

    def is_pronounceable(self, word: str, /) -> bool:
        """Return True."""
        return True

    def word_forms(self, word: str, /) -> Iterable[str]:
        """Return the word."""
        return (word,)
