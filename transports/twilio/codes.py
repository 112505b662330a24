"""A code among the keys that a caller presses, whenever they press them.

In: keys with their times. Out: codes of the right length. Keys that are further apart than ``pause_ms`` are
not of one code, and ``*`` or ``#`` begins anew: who mistypes waits, or presses one of them. A longer row of
keys is one code after the other, so that nobody tries a code with each key. Behind ``tries`` wrong ones no
key means anything.

Pure: times come in, in milliseconds on any clock.
"""


class PressedCodes:
    """Of one call."""

    def __init__(self, *, digits: int, pause_ms: int, tries: int) -> None:
        self._digits, self._pause_ms, self._tries = digits, pause_ms, tries
        self._pressed = ""
        self._last_ms = 0

    @property
    def is_over(self) -> bool:
        """No key means anything any more."""
        return self._tries <= 0

    def press(self, key: str, at_ms: int) -> str | None:
        """A key; the code that it completes."""
        if self.is_over:
            return None
        if at_ms - self._last_ms > self._pause_ms or not key.isdigit():
            self._pressed = ""
        self._last_ms = at_ms
        if key.isdigit():
            self._pressed += key
        if len(self._pressed) < self._digits:
            return None
        code, self._pressed = self._pressed, ""
        return code

    def was_wrong(self) -> None:
        """The last one stood for nothing."""
        self._tries -= 1
