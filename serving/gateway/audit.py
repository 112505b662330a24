"""Audit log: who tried to be someone else, what was deleted, what operators did, who was called.

One line for each act: a record of the process's log (``audit`` among its extras) and, where the deployment
has a data folder, a JSON object in ``audit.jsonl`` there, readable by its owner alone. Nothing that people
said or typed is in it, no credential, and of a session the beginning of its id.

A flood of acts (wrong tokens) costs no more than ``PER_MINUTE`` lines; how many were left out is said by the
next one. The file is written by a thread, from a queue of ``MOST_WAITING`` lines, and moved aside at
``MOST_BYTES``: the newest ``FILES`` are kept.
"""

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from loguru import logger

PER_MINUTE, AT_ONCE = 120, 60
MOST_WAITING = 1_000
MOST_BYTES, FILES = 5_000_000, 4
MOST_TEXT_CHARS = 200
CLOSE_S = 2.0


class AuditLog:
    """The audit log of one process.

    Args:
        path: of the file; None: there is none.
        clock_s: monotonic.
        wall_s: Unix time.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._tokens, self._counted_s = float(AT_ONCE), clock_s()
        self._left_out = 0
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._writer: threading.Thread | None = None

    def record(self, act: str, *, address: str = "", **facts: object) -> None:
        """Write one line; does not block.

        Args:
            act: what was done, as ``session.deleted``.
            address: of the client.
            facts: more of it.
        """
        now_s = self._clock_s()
        self._tokens = min(AT_ONCE, self._tokens + (now_s - self._counted_s) * PER_MINUTE / 60)
        self._counted_s = now_s
        if self._tokens < 1:
            self._left_out += 1
            return
        self._tokens -= 1
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(self._wall_s(), UTC).isoformat(timespec="milliseconds"),
            "act": act,
            "address": address,
            **{name: _shown(value) for name, value in facts.items()},
        }
        if self._left_out:
            line["left_out"], self._left_out = self._left_out, 0
        told = " ".join(f"{name}={value}" for name, value in line.items() if name not in ("at", "act"))
        logger.bind(audit=True, **line).info("audit: {} {}", act, told)
        if self._path is not None:
            self._write(line)

    def _write(self, line: Mapping[str, object]) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._run, name="audit", daemon=True)
            self._writer.start()
        try:
            self._lines.put_nowait(json.dumps(line))
        except queue.Full:
            self._left_out += 1

    def close(self) -> None:
        """Write what waits, within ``CLOSE_S``. Blocks: to be called in a thread."""
        if self._writer is None:
            return
        try:
            self._lines.put(None, timeout=CLOSE_S)
        except queue.Full:
            logger.warning("audit: the log cannot be written, its last lines are lost")
            return
        self._writer.join(CLOSE_S)
        self._writer = None

    def _run(self) -> None:
        failed = False
        while (line := self._lines.get()) is not None:
            try:
                self._append(line)
            except OSError as error:
                if not failed:
                    logger.error(f"audit: {self._path} cannot be written: {error.strerror or error}")
                failed = True
            else:
                failed = False

    def _append(self, line: str) -> None:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size >= MOST_BYTES:
            for number in range(FILES - 1, 0, -1):
                older = self._path.with_suffix(f".{number}.jsonl")
                newer = self._path if number == 1 else self._path.with_suffix(f".{number - 1}.jsonl")
                if newer.exists():
                    newer.replace(older)
        # Appended by one write: processes that share the folder do not cut each other's lines.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)


def _shown(value: object) -> object:
    return value[:MOST_TEXT_CHARS] if isinstance(value, str) else value


def masked(number: str) -> str:
    """A telephone number or SIP address of which enough is left to find it in a bill."""
    return number if len(number) < 8 else f"{number[:5]}***{number[-2:]}"
