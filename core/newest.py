"""A dict of a bounded size: what was put in longest ago goes first."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Newest(dict[K, V]):
    """The newest entries, the oldest first; an entry that is put in again is the newest.

    For books about what comes from outside, where the old is worth nothing and a flood must cost no more than
    this. Bounded when an entry is assigned (``newest[key] = value``); other ways in are closed.

    Args:
        most: entries.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self._most:
            del self[next(iter(self))]

    def _closed(self, *_: object, **__: object) -> None:
        raise TypeError("assign one entry at a time")

    update = setdefault = __ior__ = _closed  # type: ignore[assignment]
