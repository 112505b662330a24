"""Offset of another machine's clock to this process's, from exchanges with it. Pure.

The other clock is read between a request and its answer, so each exchange bounds the offset from both sides.
The bounds of several exchanges are narrower than those of one, which may have taken long. Bounds that
exclude each other mean that one of the clocks was set, and the newest exchange is then right.
"""

# Clocks of machines drift apart by some tens of microseconds in a second.
RENEW_US = 30_000_000


class ClockOffset:
    """Offset of one clock; a time of this process plus ``us`` is a time of the other clock.

    Attributes:
        us: the offset; 0 before the first exchange.
    """

    def __init__(self) -> None:
        self.us = 0
        self._least_us = self._most_us = 0
        self._since_us: int | None = None

    def add(self, *, asked_us: int, theirs_us: int, answered_us: int) -> None:
        """Record an exchange.

        Args:
            asked_us: time of the request.
            theirs_us: time of the other clock in the answer.
            answered_us: time of the answer.
        """
        least_us, most_us = theirs_us - answered_us, theirs_us - asked_us
        is_old = self._since_us is None or answered_us - self._since_us >= RENEW_US
        if is_old or least_us > self._most_us or most_us < self._least_us:
            self._since_us = answered_us
        else:
            least_us, most_us = max(least_us, self._least_us), min(most_us, self._most_us)
        self._least_us, self._most_us = least_us, most_us
        self.us = (least_us + most_us) // 2
