"""What the transactions that read do. Plain functions over a connection, the same for both databases."""

import sqlalchemy as sa

from core.errors import UnknownSessionError
from session_store.events import Event
from session_store.rows import SessionInfo, event_of, session_info
from session_store.schema import event_table, session_table

_session = sa.select(session_table).where(session_table.c.id == sa.bindparam("id"))
_by_creation = (
    sa.select(session_table)
    .where(session_table.c.tenant == sa.bindparam("tenant"))
    .order_by(session_table.c.created_us.desc(), session_table.c.id.desc())
    .limit(sa.bindparam("limit"))
)
_created_before = _by_creation.where(
    sa.tuple_(session_table.c.created_us, session_table.c.id)
    < sa.tuple_(sa.bindparam("created_us", type_=sa.BigInteger), sa.bindparam("before", type_=sa.String))
)
_by_seq = (
    sa.select(event_table)
    .where(event_table.c.session_id == sa.bindparam("id"), event_table.c.seq > sa.bindparam("after"))
    .order_by(event_table.c.seq)
    .limit(sa.bindparam("limit"))
)
_by_time = (
    sa.select(event_table)
    .where(
        event_table.c.session_id == sa.bindparam("id"),
        sa.tuple_(event_table.c.event_us, event_table.c.seq)
        > sa.tuple_(sa.bindparam("event_us", type_=sa.BigInteger), sa.bindparam("seq", type_=sa.BigInteger)),
    )
    .order_by(event_table.c.event_us, event_table.c.seq)
    .limit(sa.bindparam("limit"))
)


def read_session(connection: sa.Connection, session_id: str) -> SessionInfo:
    """One session.

    Raises:
        UnknownSessionError: there is none.
    """
    row = connection.execute(_session, {"id": session_id}).first()
    if row is None:
        raise UnknownSessionError(f"there is no session {session_id}")
    return session_info(row)


def read_sessions(
    connection: sa.Connection, *, tenant: str, before: str | None, limit: int
) -> list[SessionInfo]:
    """Sessions of a tenant, newest first, from behind ``before`` on.

    Raises:
        UnknownSessionError: there is no session ``before``.
    """
    parameters: dict[str, object] = {"tenant": tenant, "limit": limit}
    statement = _by_creation
    if before is not None:
        statement = _created_before
        parameters |= {"before": before, "created_us": read_session(connection, before).created_us}
    return [session_info(row) for row in connection.execute(statement, parameters)]


def read_events(connection: sa.Connection, session_id: str, *, after_seq: int, limit: int) -> list[Event]:
    """Events in order of commit.

    Raises:
        UnknownSessionError: there is no such session.
        StoreError: one of them is of a newer release.
    """
    rows = connection.execute(_by_seq, {"id": session_id, "after": after_seq, "limit": limit})
    return _events(connection, session_id, rows)


def read_timeline(
    connection: sa.Connection, session_id: str, *, after: tuple[int, int], limit: int
) -> list[Event]:
    """Events in order of time, then of commit, from behind the place ``after`` on.

    Raises:
        UnknownSessionError: there is no such session.
        StoreError: one of them is of a newer release.
    """
    event_us, seq = after
    rows = connection.execute(_by_time, {"id": session_id, "event_us": event_us, "seq": seq, "limit": limit})
    return _events(connection, session_id, rows)


def _events(connection: sa.Connection, session_id: str, rows: sa.CursorResult[tuple]) -> list[Event]:
    events = [event_of(dict(row)) for row in rows.mappings()]
    if not events:
        # Nothing there, or nothing new?
        read_session(connection, session_id)
    return events
