"""Rate-limit log messages that remote peers can trigger.

At most one message per interval is logged; the next one reports how many were suppressed.
"""


class LogThrottle:
    """Rate limit for the messages about one kind of event.

    Args:
        every_s: minimum time between two messages.
    """

    def __init__(self, every_s: float = 1.0) -> None:
        self._every_s = every_s
        self._next_s: float | None = None
        self._kept_back = 0

    def line(self, text: str, now_s: float) -> str | None:
        """Return the message to log, or None when it is suppressed.

        Args:
            text: the message.
            now_s: on any monotonic clock.
        """
        if self._next_s is not None and now_s < self._next_s:
            self._kept_back += 1
            return None
        kept_back, self._kept_back = self._kept_back, 0
        self._next_s = now_s + self._every_s
        return f"{text} ({kept_back} more before it)" if kept_back else text
