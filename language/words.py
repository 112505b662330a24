"""Words of a text, whatever its language: lower case, without punctuation. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType


def plain(text: str) -> list[str]:
    """Return the words of a text in the vocabulary's form: lower case, no punctuation, hyphens divide."""
    spaced = text.lower().replace("\u2019", "'").replace("-", " ")
    return [word for raw in spaced.split() if (word := raw.strip(" .,!?;:\"'()[]…"))]


class Spellings:
    """Spellings of a phrase that mean the same, with the one that the rules have.

    Args:
        table: other spellings of a phrase and its own, lower case, words joined by one space.
    """

    def __init__(self, table: Mapping[str, str] = MappingProxyType({})) -> None:
        self._table = dict(table)
        self._longest = max((len(phrase.split()) for phrase in self._table), default=1)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the other spellings and those of the rules."""
        yield from self._table
        yield from self._table.values()

    def spelled(self, words: Sequence[str]) -> Iterator[tuple[list[str], int]]:
        """Yield the words in the spelling of the rules, and the number of words that they stand for."""
        at = 0
        while at < len(words):
            for length in range(min(self._longest, len(words) - at), 0, -1):
                found = self._table.get(" ".join(words[at : at + length]))
                if found is not None or length == 1:
                    yield (found.split() if found is not None else [words[at]]), length
                    at += length
                    break

    def respelled(self, words: Sequence[str]) -> list[str]:
        """Return the words in the spelling of the rules."""
        return [word for found, _ in self.spelled(words) for word in found]


def last_word(text: str) -> str:
    """Return the last word in lower case, without punctuation; empty without words."""
    words = text.lower().strip(" .,!?;:-").split()
    return words[-1] if words else ""


def asks(text: str) -> bool:
    """Return whether the last sentence of a text is written as a question."""
    return text.rstrip(" \"')]}\u201d\u2019").endswith("?")


def ends_in(words: list[str], phrases: Iterable[str]) -> bool:
    """Return whether the last words are one of the phrases."""
    return any(words[-len(phrase.split()) :] == phrase.split() for phrase in phrases)


def spoken_list(items: Sequence[str], *, last: str) -> str:
    """Return the items as ``a, b or c``, with ``last`` before the last one."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
