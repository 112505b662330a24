"""What an engine decided in every unit, as a file that is read later: one JSON object a line.

In: ticks of a call, on the event loop. Out: ``FOLDER/CALL.ticks.jsonl``: a head line with facts of the call,
then one line for each unit that was taken, without its words (how many letters they had is there).
A thread of its own writes what has gathered, a few times a second. Slow disk: what waits is bounded
(``WAITING``), the oldest goes, and the number of lines that are missing is in the next line that is written.
Full (``limit_bytes``), or the disk fails: nothing more is written, and a warning says so. Logs of the folder
that are older than ``keep_days`` are deleted when one is begun.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from loguru import logger

# Of these files, and of no others, the old ones are deleted.
SUFFIX = ".ticks.jsonl"
WAITING = 2_000
FLUSH_S = 0.5


class TickLog:
    """The file of one call.

    Args:
        path: of the file; its folder is made.
        head: facts of the call.
        limit_bytes: of the file.
        keep_days: logs beside it that are older are deleted; None: never.
    """

    def __init__(
        self,
        path: Path,
        head: Mapping[str, object],
        *,
        limit_bytes: int = 64_000_000,
        keep_days: int | None = None,
    ) -> None:
        self._path = path
        self._keep_days = keep_days
        self._limit_bytes = limit_bytes
        self._lines: deque[Mapping[str, object]] = deque(maxlen=WAITING)
        self._missing = 0
        self._written = 0
        self._over = threading.Event()
        self._lines.append({"kind": "head", **head})
        self._thread = threading.Thread(target=self._write_all, name="ticks", daemon=True)
        self._thread.start()

    def write(self, line: Mapping[str, object]) -> None:
        """One unit: JSON values. Never blocks."""
        if len(self._lines) == WAITING:
            self._missing += 1
        self._lines.append(line)

    def close(self) -> None:
        """Nothing more comes. What waits is written behind; whoever wants it there waits for ``join``."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        """Return when everything is written, or after so long. Blocks."""
        self._thread.join(timeout_s)

    def _write_all(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._forget_old()
            with self._path.open("w", encoding="utf-8") as file:
                is_over = False
                while not is_over:
                    is_over = self._over.wait(FLUSH_S)
                    while self._lines:
                        line = dict(self._lines.popleft())
                        if self._missing:
                            line["missing"], self._missing = self._missing, 0
                        text = json.dumps(line, separators=(",", ":")) + "\n"
                        self._written += len(text)
                        if self._written > self._limit_bytes:
                            logger.warning(f"{self._path}: the log of the ticks is full")
                            return
                        file.write(text)
                    file.flush()
        except OSError as error:
            logger.warning(f"{self._path}: ticks are not written: {error.strerror}")

    def _forget_old(self) -> None:
        if self._keep_days is None:
            return
        oldest_s = time.time() - self._keep_days * 86_400
        for path in self._path.parent.glob(f"*{SUFFIX}"):
            # Another call may be at the same.
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest_s:
                    path.unlink()
