"""Progress of long work on standard error: one line that is updated on a terminal, else one line a step."""

import sys


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Count of the steps of a measurement.

    Args:
        what: measured, for the line.
        total: number of steps. None when it is not known.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0

    def step(self, note: object = "") -> None:
        """Report one more step, with its outcome or what it did."""
        self._done += 1
        count = str(self._done) if self._total is None else f"{self._done} of {self._total}"
        line = f"{self._what}: {count}{f', {note}' if note != '' else ''}"
        if not sys.stderr.isatty():
            say(line)
            return
        # Erase the rest of a longer line before.
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        if self._done == self._total:
            say("")
