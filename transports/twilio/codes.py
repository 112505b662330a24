"""A code among the keys that a caller presses, at any time of the call.

Input: keys with their times. Output: codes of the right length. Keys that are further apart than ``pause_ms``
belong to different codes, and ``*`` or ``#`` begins anew, so a caller who mistypes waits or presses one of
them. A longer series of keys is read as consecutive codes, so that each key is not another try. After
``tries`` wrong codes all keys are ignored.

Pure: times are passed in, in milliseconds of any clock.
"""


class PressedCodes:
    """Codes pressed in one call."""

    def __init__(self, *, digits: int, pause_ms: int, tries: int) -> None:
        self._digits, self._pause_ms, self._tries = digits, pause_ms, tries
        self._pressed = ""
        self._last_ms = 0

    @property
    def is_over(self) -> bool:
        """True when all keys are ignored from now on."""
        return self._tries <= 0

    def press(self, key: str, at_ms: int) -> str | None:
        """Add a key; return the code that it completes, or None."""
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
        """Count the last code as wrong."""
        self._tries -= 1
