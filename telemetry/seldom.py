"""Lines of the log that a stranger can cause: one in a while, with how many were kept back."""


class Seldom:
    """Of one thing that happens.

    Args:
        every_s: between two lines.
    """

    def __init__(self, every_s: float = 1.0) -> None:
        self._every_s = every_s
        self._next_s: float | None = None
        self._kept_back = 0

    def line(self, text: str, now_s: float) -> str | None:
        """The line as it is to be logged; None: not this one.

        Args:
            text: what happened.
            now_s: on any clock.
        """
        if self._next_s is not None and now_s < self._next_s:
            self._kept_back += 1
            return None
        kept_back, self._kept_back = self._kept_back, 0
        self._next_s = now_s + self._every_s
        return f"{text} ({kept_back} more before it)" if kept_back else text
