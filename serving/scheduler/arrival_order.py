"""Ordered set of arrival numbers that reports how many are before a given one. Pure.

A sorted list in chunks: adding, removing and counting touch one chunk and the lengths of those before it.
With 10,000 numbers that is a few microseconds. No operation rebuilds the whole: a tree in an array would, and
a heap with lazy removal has no ranks.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

# Largest number of entries of a chunk. Moving them is cheaper than visiting more chunks up to some thousands.
CHUNK = 512


class ArrivalOrder:
    """Set of distinct integers in ascending order."""

    def __init__(self) -> None:
        self._chunks: list[list[int]] = []
        # The last number of each chunk.
        self._lasts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks:
            yield from chunk

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self._find(number) is not None

    @property
    def first(self) -> int | None:
        """Smallest number; None when empty."""
        return self._chunks[0][0] if self._chunks else None

    def add(self, number: int) -> None:
        """Add a number; has no effect on one that is present."""
        if not self._chunks:
            self._chunks.append([number])
            self._lasts.append(number)
            self._count = 1
            return
        at = min(bisect_left(self._lasts, number), len(self._chunks) - 1)
        chunk = self._chunks[at]
        place = bisect_left(chunk, number)
        if place < len(chunk) and chunk[place] == number:
            return
        insort(chunk, number)
        self._lasts[at] = chunk[-1]
        self._count += 1
        if len(chunk) > CHUNK:
            self._split(at)

    def discard(self, number: int) -> None:
        """Remove a number; has no effect on one that is not present."""
        found = self._find(number)
        if found is None:
            return
        at, place = found
        chunk = self._chunks[at]
        del chunk[place]
        self._count -= 1
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]
        # Small neighbours become one: otherwise random removals would leave many chunks of one number each.
        if at + 1 < len(self._chunks) and len(self._chunks[at]) + len(self._chunks[at + 1]) <= CHUNK // 2:
            self._chunks[at] += self._chunks.pop(at + 1)
            del self._lasts[at]

    def before(self, number: int) -> int:
        """Return how many smaller numbers there are."""
        at = bisect_left(self._lasts, number)
        ahead = sum(map(len, self._chunks[:at]))
        return ahead if at == len(self._chunks) else ahead + bisect_left(self._chunks[at], number)

    def _find(self, number: int) -> tuple[int, int] | None:
        at = bisect_left(self._lasts, number)
        if at == len(self._chunks):
            return None
        place = bisect_left(self._chunks[at], number)
        return (at, place) if self._chunks[at][place] == number else None

    def _split(self, at: int) -> None:
        chunk = self._chunks[at]
        half = len(chunk) // 2
        self._chunks[at : at + 1] = [chunk[:half], chunk[half:]]
        self._lasts.insert(at, chunk[half - 1])
