"""How much of this server may be used at a time, and how fast: by everybody, by one client, by one session.

``Places`` bounds what goes on (conversations, typed turns, followers), ``Rate`` what begins (sessions). Each
refuses before anything has happened. A server that is full for everybody is a CapacityError; a client or a
session that has its share is a ShareError, and the others are served.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from core.errors import CapacityError

# A moment in which a place is likely to come free.
RETRY_S = 5.0
# Floats: a token that came back over many small waits may lack its last digit.
NEARLY_ZERO = 1e-9


class ShareError(CapacityError):
    """One client or one session has what it may have at a time: wait, then ask again.

    Attributes:
        retry_s: how long to wait; None: it gets no more of this, however long it waits.
    """

    def __init__(self, message: str, *, limit: int, retry_s: float | None = RETRY_S) -> None:
        super().__init__(message, limit=limit)
        self.retry_s = retry_s

    @property
    def status(self) -> int:
        """HTTP status of the refusal.

        429 where waiting helps, which clients do by themselves. 403 where it does not: by RFC 9110 (15.5.4) a
        client does not repeat such a request with the same credentials.
        """
        return 403 if self.retry_s is None else 429


class Place:
    """One that is taken. Also a context manager; given back twice is given back once."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free: Callable[[], None] | None = free

    def give_back(self) -> None:
        """Let somebody else have it."""
        free, self._free = self._free, None
        if free is not None:
            free()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        self.give_back()


class Places:
    """So many at a time: in all, and of one key where that is bounded too.

    Args:
        limit: in all.
        full: what is said when all are taken.
        each: of one key.
        each_full: what is said when one key has that many.
    """

    def __init__(self, limit: int, full: str, *, each: int | None = None, each_full: str = "") -> None:
        self._limit = limit
        self._full = full
        self._each = each
        self._each_full = each_full
        self._taken = 0
        self._taken_of: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """In all."""
        return self._taken

    def check(
        self, key: str = "", *, promised: int = 0, limit: int | None = None, each: int | None = None
    ) -> None:
        """Find out whether there is a place.

        Args:
            key: whose.
            promised: that others will take.
            limit: places in all now, where that changes.
            each: places of one key now, where that changes.

        Raises:
            ShareError: this key has all that one may have.
            CapacityError: all are taken.
        """
        limit, each = self._limit if limit is None else limit, self._each if each is None else each
        if each is not None and self._taken_of.get(key, 0) >= each:
            raise ShareError(self._each_full, limit=each)
        if self._taken + promised >= limit:
            raise CapacityError(self._full, limit=limit)

    def take(self, key: str = "", *, limit: int | None = None, each: int | None = None) -> Place:
        """Take one. Arguments and errors as ``check``."""
        self.check(key, limit=limit, each=each)
        self._taken += 1
        self._taken_of[key] = self._taken_of.get(key, 0) + 1
        return Place(partial(self._free, key))

    def _free(self, key: str) -> None:
        self._taken -= 1
        self._taken_of[key] -= 1
        if not self._taken_of[key]:
            del self._taken_of[key]


class Rate:
    """So many a minute of each client: a bucket of tokens for each, full when the client is first seen.

    Args:
        per_minute: how many come back in a minute, and how many may be taken at once.
        clients: how many are remembered. The one that was not seen for longest is forgotten first: a flood of
            addresses costs no more memory than that, and one that stays busy stays counted.
        full: message of an empty bucket; ``{limit}`` stands for its tokens in a period.
        burst: how many may be taken at once, as a part of those of a period.
        period_s: in which ``per_minute`` come back, where that is not a minute.
        clock_s: monotonic; the running loop's by default.
    """

    def __init__(
        self,
        per_minute: int,
        full: str,
        *,
        clients: int,
        burst: float = 1.0,
        period_s: float = 60.0,
        clock_s: Callable[[], float] | None = None,
    ) -> None:
        self._clock_s = clock_s or (lambda: asyncio.get_running_loop().time())
        self._per_minute = per_minute
        self._full = full
        self._clients = clients
        self._burst = burst
        self._period_s = period_s
        # Tokens left and when they were counted (the loop's seconds), least recently seen first.
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def check(self, client: str, *, limit: int | None = None) -> None:
        """Find out whether there is a token, and leave it.

        Args:
            client: whose bucket.
            limit: of this client, in place of ``per_minute``.

        Raises:
            ShareError: there is none left.
        """
        limit, now_s = self._per_minute if limit is None else limit, self._clock_s()
        self._require(self._left(self._buckets.get(client), limit, now_s), limit)

    def take(self, client: str, *, limit: int | None = None) -> None:
        """Take a token.

        Args:
            client: whose bucket.
            limit: of this client, in place of ``per_minute``.

        Raises:
            ShareError: there is none left.
        """
        limit, now_s = self._per_minute if limit is None else limit, self._clock_s()
        left = self._left(self._buckets.pop(client, None), limit, now_s)
        self._buckets[client] = (left - 1 if left >= 1 - NEARLY_ZERO else left, now_s)
        if len(self._buckets) > self._clients:
            del self._buckets[next(iter(self._buckets))]
        self._require(left, limit)

    def put_back(self, client: str, *, limit: int | None = None) -> None:
        """Put back a token that was taken for something that did not happen.

        Args:
            client: whose bucket.
            limit: of this client, in place of ``per_minute``.
        """
        bucket = self._buckets.get(client)
        if bucket is None:
            # Forgotten meanwhile: it is full when the client is seen again.
            return
        limit, now_s = self._per_minute if limit is None else limit, self._clock_s()
        most = max(1.0, limit * self._burst)
        self._buckets[client] = (min(most, self._left(bucket, limit, now_s) + 1), now_s)

    def _left(self, bucket: tuple[float, float] | None, limit: int, now_s: float) -> float:
        most = max(1.0, limit * self._burst)
        left, counted_s = bucket or (most, now_s)
        return min(most, left + (now_s - counted_s) * limit / self._period_s)

    def _require(self, left: float, limit: int) -> None:
        if left < 1 - NEARLY_ZERO:
            retry_s = (1 - left) * self._period_s / limit
            raise ShareError(self._full.replace("{limit}", str(limit)), limit=limit, retry_s=retry_s)
