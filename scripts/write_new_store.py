"""Write session_store/migrations/new_store.py from the migrations: the statements for a new SQLite file.

Run by hand after a migration was added: ``python -m scripts.write_new_store``. Prints their number.
"""

import sqlite3
from pathlib import Path

import sqlalchemy as sa

from parley.session_store import migrations
from parley.session_store.schema import HEAD

INDEXES = ("CREATE INDEX", "CREATE UNIQUE INDEX")
MODULE = Path(migrations.__file__).parent / "new_store.py"
TOP = '''"""Statements that make a new SQLite file what the migrations make it, in a tenth of their time.

Written by ``python -m scripts.write_new_store``: change the migrations, not this module.
"""

# The revision that the statements lead to; later migrations follow them.
REVISION = "{revision}"
STATEMENTS = (
'''


def statements(revision: str) -> list[str]:
    """Return the statements that make an empty SQLite file one of a revision."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        with connection.begin():
            migrations.migrate(connection, revision)
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        dumped = [each for each in driver.iterdump() if each not in ("BEGIN TRANSACTION;", "COMMIT;")]
    tidy = ["\n".join(line.expandtabs(4).rstrip() for line in each.splitlines()) for each in dumped]
    # alembic makes the indexes of a table that it copies in an order that differs from run to run.
    return sorted(tidy, key=lambda each: (each.startswith(INDEXES), each))


def written() -> str:
    """Return the current content of the module."""
    return "".join([TOP.format(revision=HEAD), *map(_literal, statements(HEAD)), ")\n"])


def _literal(statement: str) -> str:
    return f'    """{statement}""",\n'


if __name__ == "__main__":
    MODULE.write_text(written(), encoding="utf-8")
    print(f"{len(statements(HEAD))} statements")
