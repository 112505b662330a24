"""Token bucket: limits the rate of one client in messages, bytes or time.

Pure: the caller of each method passes the time, in microseconds on any clock that does not go back.
"""

_US_PER_S = 1_000_000


class TokenBucket:
    """Token bucket that refills at a steady rate and may be overdrawn.

    Args:
        per_s: tokens added per second.
        burst: capacity, and the number of tokens at first.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._counted_us: int | None = None

    def take(self, count: float, now_us: int) -> bool:
        """Take ``count`` tokens if there are enough; return whether there were."""
        self._refill(now_us)
        if self._left < count:
            return False
        self._left -= count
        return True

    def take_or_wait_us(self, count: float, now_us: int) -> int:
        """Take ``count`` tokens and return 0, or return the wait in microseconds when there are too few."""
        return 0 if self.take(count, now_us) else self.wait_us(count, now_us)

    def wait_us(self, count: float, now_us: int) -> int:
        """Return the wait until there are ``count`` tokens; 0 when there are. Takes none."""
        self._refill(now_us)
        if self._left >= count:
            return 0
        return max(1, round((count - self._left) * _US_PER_S / self._per_s))

    def overdraw(self, count: float, now_us: int) -> None:
        """Take ``count`` tokens, even when there are too few."""
        self._refill(now_us)
        self._left -= count

    def owed_us(self, now_us: int) -> int:
        """Return the time until the balance is no longer negative; 0 when it is not."""
        self._refill(now_us)
        return max(0, round(-self._left * _US_PER_S / self._per_s))

    def _refill(self, now_us: int) -> None:
        passed_us = 0 if self._counted_us is None else max(0, now_us - self._counted_us)
        self._counted_us = now_us
        self._left = min(self._burst, self._left + passed_us * self._per_s / _US_PER_S)
