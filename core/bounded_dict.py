"""Bounded mapping that evicts its oldest entry."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """Mapping of bounded size that evicts the entry assigned longest ago; iteration begins with the oldest.

    Assigning a key again makes it the newest. Intended for records of outside input, where old entries are
    worthless and a flood must not cost more memory than the bound. The bound applies when an entry is
    assigned (``newest[key] = value``); other ways to add entries raise.

    Args:
        most: maximum number of entries.
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
