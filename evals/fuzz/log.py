"""Failures in a server's log, by the place in the code that raised them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parley.evals.abuse.target import FAILURES

# Frames and the last line of a traceback, also of one within an exception group.
FILE = re.compile(r'[ |>+\-]*File "([^"]+)", line \d+, in (\S+)')
RAISED = re.compile(r"^(?:[ +]*\| )?([A-Za-z_][\w.]*)(?:: (.*))?$")
TRACEBACK = "Traceback (most recent call last)"
LEVELS = re.compile(r"\| (ERROR|CRITICAL)\s*\|")
OUTSIDE = ("site-packages", "lib/python", "<frozen")
SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure in a log.

    Attributes:
        place: file and function in the product, and the class of the exception; or the message of a line.
        text: of the exception, or the line.
    """

    place: str
    text: str


class LogWatch:
    """Reader of a log that grows.

    Args:
        path: of the log.
        root: of the product: paths are shown relative to it.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = str(root.resolve())
        self._at = path.stat().st_size if path.exists() else 0
        self._rest = ""
        self._frames: list[tuple[str, str]] | None = None
        # A line that may be followed by its traceback.
        self._pending: Failure | None = None

    def size(self) -> int:
        """Return the size of the log in bytes."""
        return self._path.stat().st_size if self._path.exists() else 0

    def new(self) -> list[Failure]:
        """Return the failures that were written since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        return [failure for line in lines for failure in self._of(line)]

    def _of(self, line: str) -> Iterator[Failure]:
        if TRACEBACK in line:
            # The line before it says the same.
            self._pending, self._frames = None, self._frames or []
            return
        if self._pending is not None:
            yield self._pending
            self._pending = None
        if self._frames is not None:
            if frame := FILE.match(line):
                self._frames.append((frame[1], frame[2]))
            elif self._frames and (raised := RAISED.match(line)):
                place, self._frames = self._place(self._frames), None
                yield Failure(f"{place}: {raised[1]}", (raised[2] or "")[:SHOWN_CHARS])
        elif any(mark in line for mark in FAILURES) or LEVELS.search(line):
            message = line.rpartition(" - ")[2] or line
            # Names and numbers differ from call to call.
            place = re.sub(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", "N", message)[:160]
            self._pending = Failure(place, line[:SHOWN_CHARS])

    def _place(self, frames: list[tuple[str, str]]) -> str:
        """Return the innermost frame in the product, or the innermost of all."""
        ours = [
            frame
            for frame in frames
            if self._root in frame[0] and not any(part in frame[0] for part in OUTSIDE)
        ]
        file, function = (ours or frames)[-1]
        return f"{file.removeprefix(self._root + '/')} {function}"
