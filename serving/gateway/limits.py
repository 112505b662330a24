"""Limits of concurrency and rate: for the server, for one client, for one session.

``ConcurrencyLimit`` bounds concurrent activities (conversations, typed turns, followers), ``Rate`` beginnings
(sessions). Each refuses before anything has happened. A server that is full raises a CapacityError. A client
or a session that has used up its share gets a ShareError, and the others are served.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial

from parley.core.errors import CapacityError

# Time in which a place is likely to come free.
RETRY_S = 5.0
# Rounding error of floats: a token that was refilled over many small waits may lack its last digit.
NEARLY_ZERO = 1e-9


class ShareError(CapacityError):
    """A client or a session has its whole share: wait, then try again.

    Attributes:
        retry_s: time to wait, rounded up to a millisecond, so that a client that keeps to it is served; None:
            waiting does not help.
    """

    def __init__(self, message: str, *, limit: int, retry_s: float | None = RETRY_S) -> None:
        super().__init__(message, limit=limit)
        # Rounded to microseconds first: a float's last digit is not a millisecond more.
        self.retry_s = None if retry_s is None else math.ceil(round(retry_s * 1_000, 3)) / 1_000

    @property
    def status(self) -> int:
        """HTTP status of the refusal.

        429 where waiting helps, which clients do automatically. 403 where it does not: by RFC 9110 (15.5.4) a
        client does not repeat such a request with the same credentials.
        """
        return 403 if self.retry_s is None else 429


class Slot:
    """Place that is taken. Also a context manager; releasing it twice has no further effect."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free: Callable[[], None] | None = free

    def give_back(self) -> None:
        """Release the place."""
        free, self._free = self._free, None
        if free is not None:
            free()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        self.give_back()


class ConcurrencyLimit:
    """Limit of concurrent activities: in all, and of one key where that is bounded too.

    Args:
        limit: in all.
        full: message when all are taken.
        each: of one key.
        each_full: message when one key has reached its limit.
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
        """Number of places taken in all."""
        return self._taken

    def check(
        self,
        key: str = "",
        *,
        promised: int = 0,
        limit: int | None = None,
        each: int | None = None,
        for_newcomers: int = 0,
    ) -> None:
        """Check that there is a place.

        Args:
            key: that would take it.
            promised: number of places that others will take.
            limit: present number of places in all, where that changes.
            each: present number of places of one key, where that changes.
            for_newcomers: places among the last ones that only a key takes that has none.

        Raises:
            ShareError: this key has reached its limit.
            CapacityError: all are taken.
        """
        limit, each = self._limit if limit is None else limit, self._each if each is None else each
        held = self._taken_of.get(key, 0)
        if each is not None and held >= each:
            raise ShareError(self._each_full, limit=each)
        if self._taken + promised >= limit - (for_newcomers if held else 0):
            raise CapacityError(self._full, limit=limit)

    def take(
        self,
        key: str = "",
        *,
        limit: int | None = None,
        each: int | None = None,
        for_newcomers: int = 0,
    ) -> Slot:
        """Take a place.

        Args:
            key: that takes it.
            limit, each, for_newcomers: as for ``check``.

        Raises:
            ShareError, CapacityError: as ``check`` does.
        """
        self.check(key, limit=limit, each=each, for_newcomers=for_newcomers)
        self._taken += 1
        self._taken_of[key] = self._taken_of.get(key, 0) + 1
        return Slot(partial(self._free, key))

    def _free(self, key: str) -> None:
        self._taken -= 1
        self._taken_of[key] -= 1
        if not self._taken_of[key]:
            del self._taken_of[key]


class Rate:
    """Rate limit per client: a token bucket for each, full when the client is first seen.

    Args:
        per_minute: tokens that are added in a minute, and the most that may be taken at once.
        clients: number of clients that are remembered. The one not seen for longest is evicted first. A flood
            of addresses costs no more memory than that, and a busy client stays counted.
        full: message of an empty bucket; ``{limit}`` stands for its tokens in a period.
        burst: most tokens that may be taken at once, as a part of those of a period.
        period_s: in which ``per_minute`` are added, where that is not a minute.
        clock_s: monotonic; that of the running loop by default.
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
        # Remaining tokens and the loop time at which they were counted, least recently seen first.
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def check(self, client: str, *, limit: int | None = None) -> None:
        """Check that there is a token, without taking it.

        Args:
            client: of the bucket.
            limit: of this client, in place of ``per_minute``.

        Raises:
            ShareError: there is none left.
        """
        limit, now_s = self._per_minute if limit is None else limit, self._clock_s()
        self._require(self._left(self._buckets.get(client), limit, now_s), limit)

    def take(self, client: str, *, limit: int | None = None) -> None:
        """Take a token.

        Args:
            client: of the bucket.
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
            client: of the bucket.
            limit: of this client, in place of ``per_minute``.
        """
        bucket = self._buckets.get(client)
        if bucket is None:
            # Evicted meanwhile: it is full when the client is seen again.
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
