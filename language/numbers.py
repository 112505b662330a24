"""Interface of the rules for spoken numbers. Pure."""

from collections.abc import Sequence
from typing import Protocol


class NumberRules(Protocol):
    """Rules for numbers in words, in one language."""

    def mentions(self, text: str, /) -> bool:
        """Return whether a text names a number or a day."""
        ...

    def with_digits(self, words: Sequence[str], /) -> list[str]:
        """Return lower-case words with each number in words replaced by its digits."""
        ...


class NoNumbers:
    """Rules of a language that has none: only digits are numbers."""

    def mentions(self, text: str, /) -> bool:
        """Return whether a text has a digit."""
        return any(char.isdecimal() for char in text)

    def with_digits(self, words: Sequence[str], /) -> list[str]:
        """Return the words."""
        return list(words)
