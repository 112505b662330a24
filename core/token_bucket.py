"""Tokens that come back at a steady rate: how fast one client may go, in messages, bytes or time.

Pure: times come in, in microseconds on any clock that does not go back.
"""

_US_PER_S = 1_000_000


class TokenBucket:
    """Tokens that come back at a steady rate; may be overdrawn.

    Args:
        per_s: so many come back in a second.
        burst: so many are there at most, and at first.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._counted_us: int | None = None

    def take(self, count: float, now_us: int) -> bool:
        """Take tokens when there are so many; return whether there were."""
        self._refill(now_us)
        if self._left < count:
            return False
        self._left -= count
        return True

    def take_or_wait_us(self, count: float, now_us: int) -> int:
        """Take tokens when there are so many and return 0; otherwise return when there will be."""
        if self.take(count, now_us):
            return 0
        return max(1, round((count - self._left) * _US_PER_S / self._per_s))

    def overdraw(self, count: float, now_us: int) -> None:
        """Take tokens, there or not."""
        self._refill(now_us)
        self._left -= count

    def owed_us(self, now_us: int) -> int:
        """Return how long it takes until nothing is owed; 0 when nothing is."""
        self._refill(now_us)
        return max(0, round(-self._left * _US_PER_S / self._per_s))

    def _refill(self, now_us: int) -> None:
        passed_us = 0 if self._counted_us is None else max(0, now_us - self._counted_us)
        self._counted_us = now_us
        self._left = min(self._burst, self._left + passed_us * self._per_s / _US_PER_S)
