"""SQLite files of session stores: empty ones, and locks on them.

A file is made once in a process and copied: that takes less time than making its tables.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sa

from parley.session_store import migrations


def new_session_file(path: Path) -> str:
    """Write an empty store to ``path`` and its folder, unless the file exists, and return its address."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_empty())
    return f"sqlite:///{path}"


@contextmanager
def locked(path: Path, *, reads: bool = True) -> Iterator[None]:
    """Lock a store's file, as another program would; its readers too, or its writers alone."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE" if reads else "BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.rollback()
        other.close()


@cache
def _empty() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        engine = sa.create_engine(f"sqlite:///{path}")
        with engine.begin() as connection:
            migrations.upgrade(connection)
        engine.dispose()
        return path.read_bytes()
