"""Manifest of a batch job: which sources are done, parked or still to do.

A SQLite file in the folder of the outputs. A change is on the disk when a method returns, so a run that is
killed at any moment goes on where it was. One run at a time holds the folder (``hold_folder``). Blocks.

A source is done when its JSON file has the key of its item. A run that was killed after writing the outputs
and before recording it finds that key, and does not transcribe the source again.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path

from parley.batch.destination import ParkedItem
from parley.batch.sources import BatchSource
from parley.batch.transcript import written_key
from parley.core.errors import ConfigError

MANIFEST, LOCK = "manifest.db", ".manifest.lock"
# Held by workers on other machines, which inherit nothing.
WORKERS_LOCK = ".workers.lock"
HELD_S, LOCK_POLL_S = 5.0, 0.05
_TABLE = """
CREATE TABLE IF NOT EXISTS items (
    name TEXT PRIMARY KEY, key TEXT NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '', audio_ms INTEGER NOT NULL DEFAULT 0, cpu_ms INTEGER NOT NULL DEFAULT 0
)
"""


# Of the sources: two roots would write outputs of the same names.
_ROOT = "CREATE TABLE IF NOT EXISTS roots (path BLOB PRIMARY KEY)"


class ItemState(StrEnum):
    """State of an item."""

    PENDING = "pending"
    DONE = "done"
    PARKED = "parked"


class Manifest:
    """Manifest in a folder that this process holds. For one thread.

    Args:
        folder: of the outputs.

    Raises:
        ConfigError: the file is no manifest.
        sqlite3.OperationalError: it cannot be read or written; also from every method.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / MANIFEST
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(_TABLE)
            self._database.execute(_ROOT)
            self._database.execute(
                "SELECT name, key, state, tries, reason, audio_ms, cpu_ms FROM items LIMIT 1"
            )
        except sqlite3.OperationalError:
            # Not writable, or locked by another program.
            raise
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"{path}: not a manifest ({error}); remove it: outputs that are there are found again"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def belong_to(self, root: str) -> None:
        """Record the folder or address whose sources have their outputs here.

        Raises:
            ConfigError: another folder's have.
        """
        self._database.execute(
            "INSERT INTO roots SELECT ? WHERE NOT EXISTS (SELECT 1 FROM roots)", (os.fsencode(root),)
        )
        (known,) = self._database.execute("SELECT path FROM roots").fetchone()
        if (theirs := os.fsdecode(known)) != root:
            raise ConfigError(f"{self._folder}: holds the transcripts of {theirs}; choose another for {root}")

    def plan(
        self, items: Sequence[tuple[BatchSource, str]], *, retry_parked: bool = False
    ) -> list[BatchSource]:
        """Record the sources of a run with their keys; return those that are still to do.

        A source whose key has changed is new. One that is done and whose JSON file was removed is done again.
        """
        known = {
            name: (key, ItemState(state))
            for name, key, state in self._database.execute("SELECT name, key, state FROM items")
        }
        to_do: list[BatchSource] = []
        with self._transaction():
            for source, key in items:
                before, state = known.get(source.name, ("", ItemState.PENDING))
                is_parked = before == key and state is ItemState.PARKED
                if is_parked and not retry_parked:
                    continue
                if written_key(self._folder, source.name) == key:
                    if before != key or state is not ItemState.DONE:
                        self._put(source.name, key, ItemState.DONE)
                    continue
                if before != key or state is not ItemState.PENDING:
                    self._put(source.name, key, ItemState.PENDING)
                to_do.append(source)
        return to_do

    def finish(self, name: str, *, audio_ms: int, cpu_ms: int) -> None:
        """Record that the outputs of a source are written."""
        self._database.execute(
            "UPDATE items SET state = ?, tries = tries + 1, audio_ms = ?, cpu_ms = ? WHERE name = ?",
            (ItemState.DONE, audio_ms, cpu_ms, name),
        )

    def fail(self, name: str, reason: str, *, most_tries: int) -> bool:
        """Record a failed try; park the source after the last one and return True then."""
        self._database.execute(
            "UPDATE items SET tries = tries + 1, reason = ?,"
            " state = CASE WHEN tries + 1 >= ? THEN ? ELSE state END WHERE name = ?",
            (reason, most_tries, ItemState.PARKED, name),
        )
        row = self._database.execute("SELECT state FROM items WHERE name = ?", (name,)).fetchone()
        return bool(row[0] == ItemState.PARKED)

    def parked(self) -> list[ParkedItem]:
        """Return the parked sources in the order of their names."""
        rows = self._database.execute(
            "SELECT name, reason, tries FROM items WHERE state = ? ORDER BY name", (ItemState.PARKED,)
        )
        return [ParkedItem(*row) for row in rows]

    def count(self, state: ItemState) -> int:
        """Return the number of items in a state."""
        return int(
            self._database.execute("SELECT count(*) FROM items WHERE state = ?", (state,)).fetchone()[0]
        )

    def _put(self, name: str, key: str, state: ItemState) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO items (name, key, state) VALUES (?, ?, ?)", (name, key, state)
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with closing(self._database.cursor()) as cursor:
            cursor.execute("BEGIN")
            try:
                yield
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")


@contextmanager
def hold_folder(folder: Path) -> Iterator[int]:
    """Create the folder and hold it for this run; yield the descriptor of the lock.

    Workers inherit the descriptor, so that the folder is free only when the last of them is gone; those of
    other machines hold a lock of their own (``hold_as_worker``). Those of a run that was killed end within
    ``HELD_S``.

    Raises:
        ConfigError: another run holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from error
    with _locked(folder, LOCK, fcntl.LOCK_EX) as handle:
        if (folder / WORKERS_LOCK).exists():
            with _locked(folder, WORKERS_LOCK, fcntl.LOCK_EX):
                pass
        yield handle


@contextmanager
def hold_as_worker(folder: Path) -> Iterator[int]:
    """Hold the folder for a worker on another machine than the run; yield the descriptor of the lock.

    Raises:
        ConfigError: the next run has begun.
    """
    with _locked(folder, WORKERS_LOCK, fcntl.LOCK_SH) as handle:
        yield handle


@contextmanager
def _locked(folder: Path, name: str, kind: int) -> Iterator[int]:
    try:
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from error
    try:
        _lock(handle, folder, kind)
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path, kind: int) -> None:
    until_s = time.monotonic() + HELD_S
    while True:
        try:
            return fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() >= until_s:
                raise ConfigError(
                    f"{folder}: another run is writing there; wait for its end or stop it"
                ) from error
        # A lock of a file has no wait with a deadline.
        time.sleep(LOCK_POLL_S)
