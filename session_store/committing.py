"""What the transactions that write do.

Plain functions over a connection, the same for both databases. Every one of them first locks the rows of its
sessions, so that what it reads there (epoch, next place) holds until it is committed. A row that another
process has locked at this moment is passed over and not waited for: its session is tried again, the others go
on.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

from core.errors import FencedError, StoreError, UnknownSessionError
from session_store.database import CHANNEL, LockedError
from session_store.events import Event
from session_store.rows import Row, SessionInfo, event_of, session_info
from session_store.schema import event_table, session_table

# Rows in one statement: far under what a driver takes as parameters.
CHUNK = 500

_lock = (
    sa.select(session_table)
    .where(session_table.c.id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(session_table.c.id)
    .with_for_update(skip_locked=True)
)
_existing = sa.select(session_table.c.id).where(session_table.c.id.in_(sa.bindparam("ids", expanding=True)))
_stored = sa.select(event_table).where(
    event_table.c.session_id == sa.bindparam("session"),
    event_table.c.key.in_(sa.bindparam("keys", expanding=True)),
)
_insert_events = sa.insert(event_table)
_insert_session = sa.insert(session_table)
_advance = (
    sa.update(session_table)
    .where(session_table.c.id == sa.bindparam("of"), session_table.c.epoch == sa.bindparam("under"))
    .values(next_seq=sa.bindparam("next"), last_us=sa.bindparam("last"))
)
_claim = (
    sa.update(session_table)
    .where(session_table.c.id == sa.bindparam("of"))
    .values(epoch=session_table.c.epoch + 1)
)
_delete = sa.delete(session_table).where(session_table.c.id.in_(sa.bindparam("ids", expanding=True)))
_oldest = (
    sa.select(session_table.c.id, session_table.c.next_seq)
    .where(session_table.c.last_us < sa.bindparam("before"))
    .order_by(session_table.c.last_us)
    .limit(sa.bindparam("limit"))
    .with_for_update(skip_locked=True)
)
_touch_one = (
    sa.update(session_table)
    .where(
        session_table.c.id
        == sa.select(session_table.c.id).limit(1).with_for_update(skip_locked=True).scalar_subquery()
    )
    .values(epoch=session_table.c.epoch)
)
_announce = sa.text("SELECT pg_notify(:channel, said) FROM unnest(CAST(:words AS text[])) AS said")


@dataclass(frozen=True, slots=True)
class Append:
    """Drafts of one claim, as rows that lack their place."""

    session_id: str
    epoch: int
    rows: Sequence[Row]


Outcome = list[Event] | Exception


def commit_appends(
    connection: sa.Connection, appends: Sequence[Append], *, look_up: bool = False
) -> list[Outcome]:
    """Store what is not stored yet and say, for each append, what became of it.

    A claim that was superseded and a session that is gone write no row and get their error; the others are
    not concerned. Keys are looked up only on demand, because they are hardly ever there: without ``look_up``
    one that is breaks the whole transaction (RefusedError), and the caller comes again with it.
    """
    sessions, locked = _lock_sessions(connection, {append.session_id for append in appends})
    outcomes: list[Outcome] = []
    new: list[Row] = []
    moved: dict[str, sa.Row[Any]] = {}
    next_seq = {id_: row.next_seq for id_, row in sessions.items()}
    last_us = {id_: row.last_us for id_, row in sessions.items()}
    by_key = _stored_rows(connection, appends) if look_up else {}
    for append in appends:
        session = sessions.get(append.session_id)
        if session is None or session.epoch != append.epoch:
            outcomes.append(_refusal(append.session_id, known=session is not None, locked=locked))
            continue
        events: list[Event] = []
        for draft in append.rows:
            place = (append.session_id, draft["key"])
            row = by_key.get(place)
            if row is None:
                row = by_key[place] = {
                    "session_id": append.session_id,
                    "seq": next_seq[append.session_id],
                    "epoch": append.epoch,
                    **draft,
                }
                new.append(row)
                moved[append.session_id] = session
                next_seq[append.session_id] += 1
                last_us[append.session_id] = max(
                    last_us[append.session_id], draft["event_us"], draft["arrival_us"]
                )
            events.append(event_of(row))
        outcomes.append(events)
    if new:
        _execute_many(connection, _insert_events, new)
        _execute_many(
            connection,
            _advance,
            [
                {"of": id_, "under": row.epoch, "next": next_seq[id_], "last": last_us[id_]}
                for id_, row in moved.items()
            ],
        )
        _tell(connection, (f"{id_} {next_seq[id_] - 1}" for id_ in moved))
    return outcomes


def insert_session(connection: sa.Connection, info: SessionInfo) -> None:
    """Store a session without events."""
    row = {
        "id": info.id,
        "tenant": info.tenant,
        "epoch": info.epoch,
        "next_seq": info.last_seq + 1,
        "created_us": info.created_us,
        "last_us": info.last_us,
    }
    connection.execute(_insert_session, row)


def insert_whole(connection: sa.Connection, info: SessionInfo, rows: Sequence[Row]) -> None:
    """Store a session with all its events.

    Raises:
        StoreError: there is one of its id.
    """
    if connection.execute(_existing, {"ids": [info.id]}).first() is not None:
        raise StoreError(f"session {info.id} is there already")
    insert_session(connection, info)
    for start in range(0, len(rows), CHUNK):
        _execute_many(connection, _insert_events, rows[start : start + CHUNK])


def claim_session(connection: sa.Connection, session_id: str) -> SessionInfo:
    """Move the epoch on.

    Raises:
        UnknownSessionError: there is none.
        LockedError: somebody else holds it.
    """
    sessions, locked = _lock_sessions(connection, {session_id})
    if session_id not in sessions:
        raise _refusal(session_id, known=False, locked=locked)
    connection.execute(_claim, {"of": session_id})
    before = session_info(sessions[session_id])
    return SessionInfo(
        before.id, before.tenant, before.epoch + 1, before.last_seq, before.created_us, before.last_us
    )


def delete_session(connection: sa.Connection, session_id: str) -> None:
    """Delete every row of a session.

    Raises:
        UnknownSessionError: there is none.
        LockedError: somebody else holds it.
    """
    sessions, locked = _lock_sessions(connection, {session_id})
    if session_id not in sessions:
        raise _refusal(session_id, known=False, locked=locked)
    _delete_sessions(connection, [session_id])


def delete_oldest(connection: sa.Connection, before_us: int, *, sessions: int, events: int) -> list[str]:
    """Delete sessions whose last event is older, the oldest first, and name them.

    At most ``sessions`` of them, with at most ``events`` events unless the first has more.
    """
    found = connection.execute(_oldest, {"before": before_us, "limit": sessions}).all()
    chosen: list[str] = []
    total = 0
    for row in found:
        total += row.next_seq - 1
        if chosen and total > events:
            break
        chosen.append(row.id)
    if chosen:
        _delete_sessions(connection, chosen)
    return chosen


def touch(connection: sa.Connection) -> None:
    """Write something that changes nothing, to find out whether the database takes writes."""
    connection.execute(_touch_one)


def _delete_sessions(connection: sa.Connection, ids: Sequence[str]) -> None:
    # Their events go with them, by the foreign key.
    connection.execute(_delete, {"ids": _padded(ids)})
    _tell(connection, (f"{id_} 0" for id_ in ids))


def _lock_sessions(
    connection: sa.Connection, ids: Collection[str]
) -> tuple[dict[str, sa.Row[Any]], set[str]]:
    """The rows of sessions, locked, and which of the others are locked by somebody else."""
    ordered = sorted(ids)
    rows: dict[str, sa.Row[Any]] = {}
    for chunk in _chunks(ordered):
        rows.update((row.id, row) for row in connection.execute(_lock, {"ids": _padded(chunk)}))
    missing = [id_ for id_ in ordered if id_ not in rows]
    locked: set[str] = set()
    for chunk in _chunks(missing):
        locked.update(connection.scalars(_existing, {"ids": _padded(chunk)}))
    return rows, locked


def _stored_rows(connection: sa.Connection, appends: Sequence[Append]) -> dict[tuple[str, str], Row]:
    keys: dict[str, list[str]] = {}
    for append in appends:
        keys.setdefault(append.session_id, []).extend(row["key"] for row in append.rows)
    # One question per session: SQLite reads the whole table for pairs of session and key.
    return {
        (session_id, row["key"]): dict(row)
        for session_id, wanted in keys.items()
        for chunk in _chunks(wanted)
        for row in connection.execute(_stored, {"session": session_id, "keys": _padded(chunk)}).mappings()
    }


def _refusal(session_id: str, *, known: bool, locked: set[str]) -> StoreError:
    if known:
        return FencedError(f"session {session_id} was claimed by somebody else since")
    if session_id in locked:
        return LockedError(f"session {session_id} is locked by another process")
    return UnknownSessionError(f"there is no session {session_id}")


def _tell(connection: sa.Connection, words: Iterable[str]) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_announce, {"channel": CHANNEL, "words": list(words)})


def _execute_many(connection: sa.Connection, statement: sa.Executable, rows: Sequence[Row]) -> None:
    """As ``connection.execute`` with many rows, without working each of them over.

    Nothing in our tables needs that: the drivers take every type as it is. It would be a quarter of the
    processor time of an append.
    """
    compiled = _compiled(statement, connection.dialect, tuple(rows[0]))
    names = compiled.positiontup
    assert names is not None
    connection.exec_driver_sql(str(compiled), [tuple([row[name] for name in names]) for row in rows])


@lru_cache(maxsize=32)
def _compiled(statement: Any, dialect: sa.Dialect, names: tuple[str, ...]) -> SQLCompiler:
    compiled: SQLCompiler = statement.compile(dialect=dialect, column_keys=list(names))
    return compiled


def _chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))


def _padded(values: Sequence[str]) -> list[str]:
    """Up to a power of two by repetition: each length is another statement for the driver to prepare."""
    size = 1
    while size < len(values):
        size *= 2
    return [*values, *[values[-1]] * (size - len(values))]
