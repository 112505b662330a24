"""Progress of long work on standard error: one line that is updated on a terminal, else one line a step."""

import sys


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return a foreign text, such as the name of a file, without characters that a terminal obeys."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class Progress:
    """Count of the steps of long work.

    Args:
        what: measured or done, for the line.
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
        _renew(line)
        if self._done == self._total:
            say("")

    def note(self, note: object) -> None:
        """Show what happens inside of a step; on a terminal only."""
        if sys.stderr.isatty() and self._done != self._total:
            count = str(self._done) if self._total is None else f"{self._done} of {self._total}"
            _renew(f"{self._what}: {count}, {note}")


def _renew(line: str) -> None:
    # Erase the rest of a longer line before.
    print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
