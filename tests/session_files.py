"""Empty SQLite files of session stores.

A file is made once in a process and copied: migrations take longer than many tests of a store's contents.
"""

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


@cache
def _empty() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        engine = sa.create_engine(f"sqlite:///{path}")
        with engine.begin() as connection:
            migrations.upgrade(connection)
        engine.dispose()
        return path.read_bytes()
