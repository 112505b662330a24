"""Size of the database of a session store, with everything else that is in it."""

import sqlalchemy as sa

from parley.session_store.store import SessionStore

# As SQLite knows it: whole pages, also those that are free. Its log is not included.
_SQLITE = sa.text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
_POSTGRESQL = sa.text("SELECT pg_database_size(current_database())")


async def stored_bytes(store: SessionStore) -> int:
    """Return the size of the database in bytes.

    Raises:
        StoreUnavailableError: the database does not answer.
    """
    return await store.look(_size)


def _size(connection: sa.Connection) -> int:
    statement = _POSTGRESQL if connection.dialect.name == "postgresql" else _SQLITE
    return int(connection.scalar(statement) or 0)
