"""Log an engine's decision in every unit to a file of JSON lines.

Input: ticks of a call, on the event loop. Output: ``FOLDER/CALL.ticks.jsonl``, with a head line of facts
about the call, then one line for each unit that was processed. The lines hold no words, only their number of
letters.

A dedicated thread writes the pending lines a few times a second. On a slow disk the queue is bounded
(``WAITING``): the oldest line is dropped, and the next written line holds the number of missing lines. When
the file is full (``limit_bytes``) or the disk fails, nothing more is written and a warning is logged. A new
log deletes those in its folder that are older than ``keep_days``.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from loguru import logger

# Only old files with this suffix are deleted.
SUFFIX = ".ticks.jsonl"
WAITING = 2_000
FLUSH_S = 0.5


class TickLog:
    """Log file of one call.

    Args:
        path: of the file; its folder is created.
        head: facts of the call.
        limit_bytes: of the file.
        keep_days: older logs in the same folder are deleted; None: never.
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
        """Queue a line of JSON values for one unit. Never blocks."""
        if len(self._lines) == WAITING:
            self._missing += 1
        self._lines.append(line)

    def close(self) -> None:
        """End the log. Pending lines are written in the background; ``join`` waits for them."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        """Wait until everything is written, or for ``timeout_s`` at most. Blocks."""
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
                            logger.warning(f"{self._path}: the tick log is full")
                            return
                        file.write(text)
                    file.flush()
        except OSError as error:
            logger.warning(f"{self._path}: cannot write ticks: {error.strerror}")

    def _forget_old(self) -> None:
        if self._keep_days is None:
            return
        oldest_s = time.time() - self._keep_days * 86_400
        for path in self._path.parent.glob(f"*{SUFFIX}"):
            # Another call may be deleting the same files.
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest_s:
                    path.unlink()
