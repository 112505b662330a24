"""Audit log: deletions, actions of operators, outbound calls, and wrong credentials.

Each act is one line: a record of the process's log (``audit`` among its extras) and, where the deployment has
a data folder, a JSON object in a file there that only its owner can read. The log holds nothing that people
said or typed, no credential, and only the beginning of a session's id.

* ``audit.jsonl`` has the acts of admitted clients: logins, changes, deletions, calls. Each is written.
* ``wrong_credentials.jsonl`` has those of clients that were not admitted: at most ``WRONG_PER_ADDRESS`` lines
  a minute for one address and ``WRONG_IN_ALL`` for all. A flood of them displaces no line of the acts.

A dedicated thread writes a file from a queue of ``MOST_WAITING`` lines. At ``MOST_BYTES`` the file is
renamed, and the newest ``FILES`` are kept. A line that cannot be written is tried again until the process
ends. When the queue is full, the line goes to the process's log alone, as a warning. The next line of a file
holds the number of missing ones (``left_out``).
"""

import json
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from loguru import logger

from parley.serving.gateway.limits import Rate, ShareError

WRONG_PER_ADDRESS, WRONG_IN_ALL = 30, 120
COUNTED_ADDRESSES = 1_000
WRONG_FILE = "wrong_credentials.jsonl"
MOST_WAITING = 5_000
MOST_BYTES, FILES = 5_000_000, 4
MOST_TEXT_CHARS = 200
RETRY_S = 1.0
CLOSE_S = 2.0


class AuditLog:
    """Audit log of one process.

    Args:
        path: of the file of acts, in the same folder as that of wrong credentials; None: there is neither.
        clock_s: monotonic.
        wall_s: Unix time.
        most_waiting: maximum number of lines that wait to be written to one file.
        most_bytes: size at which a file is renamed.
        retry_s: time to the next attempt to write a line.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        most_waiting: int = MOST_WAITING,
        most_bytes: int = MOST_BYTES,
        retry_s: float = RETRY_S,
    ) -> None:
        self._wall_s = wall_s
        bounds = _Bounds(most_waiting, most_bytes, retry_s)
        self._acts = _Lines(path, bounds)
        self._wrong = _Lines(None if path is None else path.with_name(WRONG_FILE), bounds)
        self._each = Rate(WRONG_PER_ADDRESS, "", clients=COUNTED_ADDRESSES, clock_s=clock_s)
        self._all = Rate(WRONG_IN_ALL, "", clients=1, clock_s=clock_s)

    def record(self, act: str, *, address: str = "", **facts: object) -> None:
        """Write a line about an admitted client; does not block.

        Args:
            act: name of the act, such as ``session.deleted``.
            address: of the client.
            facts: further values.
        """
        self._acts.put(self._line(act, address, facts))

    def record_wrong_credential(self, act: str, *, address: str, **facts: object) -> None:
        """Write a line about a wrong credential, within the rates; does not block.

        Args:
            act: name of the attempt, such as ``operator.wrong_token``.
            address: of the client.
            facts: further values.
        """
        try:
            self._each.take(address)
            self._all.take("")
        except ShareError:
            self._wrong.leave_out()
        else:
            self._wrong.put(self._line(act, address, facts))

    def close(self) -> None:
        """Write the queued lines, within ``CLOSE_S`` for each file. Blocks: to be called in a thread."""
        self._acts.close()
        self._wrong.close()

    def _line(self, act: str, address: str, facts: dict[str, object]) -> dict[str, object]:
        return {
            "at": datetime.fromtimestamp(self._wall_s(), UTC).isoformat(timespec="milliseconds"),
            "act": act,
            "address": address,
            **{name: _shown(value) for name, value in facts.items()},
        }


@dataclass(frozen=True, slots=True)
class _Bounds:
    most_waiting: int
    most_bytes: int
    retry_s: float


class _Lines:
    """Lines of the process's log that are also written to a file, where there is one."""

    def __init__(self, path: Path | None, bounds: _Bounds) -> None:
        self._path = path
        self._bounds = bounds
        self._left_out = 0
        self._waiting: queue.Queue[str | None] = queue.Queue(bounds.most_waiting)
        self._closing = threading.Event()
        self._writer: threading.Thread | None = None

    def leave_out(self) -> None:
        """Count a line that is not written."""
        self._left_out += 1

    def put(self, line: dict[str, object]) -> None:
        if self._left_out:
            line["left_out"] = self._left_out
        shown = " ".join(f"{name}={value}" for name, value in line.items() if name not in ("at", "act"))
        record = logger.bind(audit=True, **line)
        if self._path is not None:
            if self._writer is None:
                self._writer = threading.Thread(
                    target=self._run, args=(self._path,), name="audit", daemon=True
                )
                self._writer.start()
            try:
                self._waiting.put_nowait(json.dumps(line))
            except queue.Full:
                self._left_out += 1
                record.warning("audit, not in its file: {} {}", line["act"], shown)
                return
        self._left_out = 0
        record.info("audit: {} {}", line["act"], shown)

    def close(self) -> None:
        if self._writer is None:
            return
        self._closing.set()
        try:
            self._waiting.put(None, timeout=CLOSE_S)
        except queue.Full:
            logger.warning(f"audit: cannot write {self._path}; its last lines are lost")
            return
        self._writer.join(CLOSE_S)
        self._writer = None
        self._closing.clear()

    def _run(self, path: Path) -> None:
        failed = False
        while (line := self._waiting.get()) is not None:
            while True:
                is_last = self._closing.is_set()
                try:
                    _append(path, line, most_bytes=self._bounds.most_bytes)
                except OSError as error:
                    if not failed:
                        logger.error(f"audit: cannot write {path}: {error.strerror or error}")
                    failed = True
                    if is_last:
                        break
                    self._closing.wait(self._bounds.retry_s)
                else:
                    failed = False
                    break


def _append(path: Path, line: str, *, most_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size >= most_bytes:
        for number in range(FILES - 1, 0, -1):
            older = path.with_suffix(f".{number}.jsonl")
            newer = path if number == 1 else path.with_suffix(f".{number - 1}.jsonl")
            if newer.exists():
                newer.replace(older)
    # Appended by a single write: processes that share the folder do not interleave their lines.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def _shown(value: object) -> object:
    return value[:MOST_TEXT_CHARS] if isinstance(value, str) else value


def masked(number: str) -> str:
    """Return a phone number or SIP address, masked so that it can still be found in a bill."""
    return number if len(number) < 8 else f"{number[:5]}***{number[-2:]}"
