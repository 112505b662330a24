"""Migrate a database to the newest schema.

A new SQLite file gets the newest tables at once (``new_store``), any other database migration by migration.
Runs inside the caller's transaction and lock. When two processes start at once, the second therefore finds
the work done, and an upgrade that fails changes nothing.
"""

from pathlib import Path

import sqlalchemy as sa

from parley.core.errors import ConfigError
from parley.session_store.migrations import new_store
from parley.session_store.schema import HEAD, VERSION_TABLE, metadata


def version(connection: sa.Connection) -> str | None:
    """Return the revision of a database; None for one without our tables.

    Raises:
        ConfigError: the tables belong to another program.
    """
    tables = set(sa.inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        found = connection.scalar(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE)))
        if found is not None:
            return str(found)
    # A SQLite file holds one program's tables; a PostgreSQL database may hold those of many.
    foreign = tables & set(metadata.tables) if connection.dialect.name == "postgresql" else tables
    if foreign - {VERSION_TABLE}:
        raise ConfigError(
            f"the database contains tables that are not a session store ({', '.join(sorted(foreign))}): use "
            "a separate database for the store"
        )
    return None


def check_version(connection: sa.Connection) -> bool:
    """Return whether the schema is the newest one.

    Raises:
        ConfigError: a newer release or another program wrote it.
    """
    found = version(connection)
    if found is None or found == HEAD:
        return found == HEAD
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory(str(Path(__file__).parent)).walk_revisions()}
    if found not in known:
        raise ConfigError(
            f"the session store was written by a newer release (its schema is {found}, this release knows "
            f"{HEAD}): start that release, or set another store.url"
        )
    return False


def upgrade(connection: sa.Connection, revision: str = HEAD) -> bool:
    """Migrate the schema to ``revision``; return whether there was anything to do.

    The caller holds a lock that excludes other processes.

    Raises:
        ConfigError: as ``check_version`` does.
    """
    if check_version(connection):
        return False
    if revision == new_store.REVISION and _is_new_file(connection):
        # What the migrations make it, 45 ms sooner, and without the import of alembic (100 ms).
        for statement in new_store.STATEMENTS:
            connection.exec_driver_sql(statement)
    else:
        migrate(connection, revision)
    return True


def migrate(connection: sa.Connection, revision: str) -> None:
    """Run the migrations that lead to ``revision``, one after the other."""
    # Slow to import, and needed only at a start on an old database.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    command.upgrade(config, revision)


def _is_new_file(connection: sa.Connection) -> bool:
    if connection.dialect.name != "sqlite":
        return False
    return not connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema").scalar()
