"""Transactions that write.

Plain functions over a connection, the same for both databases. Each one first locks the rows of its sessions,
so that the values read there (epoch, next place) remain valid until the commit. A row that another process
holds locked is skipped instead of waited for. Its session is tried again, and the others proceed.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

from parley.core.errors import FencedError, SessionExistsError, StoreError, UnknownSessionError
from parley.session_store.database import CHANNEL, LockedError
from parley.session_store.events import Event, Kind
from parley.session_store.removal import RemovedRows, count_rows
from parley.session_store.rows import (
    DRAFT_COLUMNS,
    Row,
    SessionInfo,
    event_of,
    new_event,
    session_info,
    shown_id,
)
from parley.session_store.schema import event_table, session_table, session_tag_table

# What an announcement says of a session that was deleted, by retention and on request; of any other it has
# the newest event.
EXPIRED, ERASED = "0", "erased"
# Rows in one statement: far below the maximum number of parameters of a driver.
CHUNK = 500
# Of tags that an import brings; ``tags`` makes no more and no longer ones.
MOST_IMPORTED_TAGS, MOST_IMPORTED_CHARS = 20, 40

_lock = sa.select(session_table).order_by(session_table.c.id).with_for_update(skip_locked=True)
_existing = sa.select(session_table.c.id).where(session_table.c.id.in_(sa.bindparam("ids", expanding=True)))
_stored = sa.select(event_table).where(
    # A list of one: by a plain equality SQLite would select first, and read the whole session.
    event_table.c.session_id.in_(sa.select(sa.bindparam("session", type_=session_table.c.id.type))),
    event_table.c.key.in_(sa.bindparam("keys", expanding=True)),
)
_insert_events = sa.insert(event_table)
_insert_session = sa.insert(session_table)
_advance = (
    sa.update(session_table)
    .where(session_table.c.id == sa.bindparam("of"), session_table.c.epoch == sa.bindparam("under"))
    .values(
        next_seq=sa.bindparam("next"),
        last_us=sa.bindparam("last"),
        bytes=session_table.c.bytes + sa.bindparam("more", type_=sa.BigInteger),
        kv_handle=sa.bindparam("cache", type_=sa.Text),
    )
)
_claim = (
    sa.update(session_table)
    .where(session_table.c.id == sa.bindparam("of"))
    .values(epoch=session_table.c.epoch + 1)
)
_forget_tags = sa.delete(session_tag_table).where(session_tag_table.c.session_id == sa.bindparam("of"))
_insert_tags = sa.insert(session_tag_table)
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
EVENT_COLUMNS = tuple(event_table.c.keys())
_whole = itemgetter(*EVENT_COLUMNS)
# The columns of an event are its place in the timeline, then those of a draft in the same order.
_values = itemgetter(*DRAFT_COLUMNS)
_standing = itemgetter(*map(session_table.c.keys().index, ("epoch", "next_seq", "last_us", "kv_handle")))
assert EVENT_COLUMNS == ("session_id", "seq", "epoch", *DRAFT_COLUMNS)
_announce = sa.text("SELECT pg_notify(:channel, said) FROM unnest(CAST(:words AS text[])) AS said")


@dataclass(frozen=True, slots=True)
class Append:
    """Drafts of one claim, as rows without their place in the timeline.

    Attributes:
        session_id: of the session.
        epoch: of the claim.
        rows: the drafts.
        kv_handle: context that a worker has of the session now; None: as it is in the row.
    """

    session_id: str
    epoch: int
    rows: Sequence[Row]
    kv_handle: str | None = None


@dataclass(slots=True)
class _Place:
    """Position of a session inside one transaction."""

    epoch: int
    next_seq: int
    last_us: int
    kv_handle: str | None
    more_bytes: int = 0

    def take(self, draft: Row) -> int:
        """Return the place of one more event, and advance the position."""
        seq = self.next_seq
        self.next_seq = seq + 1
        self.more_bytes += len(draft["payload"])
        self.last_us = max(self.last_us, draft["event_us"], draft["arrival_us"])
        return seq


Outcome = list[Event] | Exception


def commit_appends(
    connection: sa.Connection, appends: Sequence[Append], *, look_up: bool = False
) -> list[Outcome]:
    """Store the drafts that are not stored yet; return the outcome of each append.

    A superseded claim and a deleted session write no row and get their error; the other appends are
    unaffected. Keys are looked up only on demand, because they are rarely stored already. Without
    ``look_up``, a stored key fails the whole transaction (RefusedError), and the caller repeats it with
    ``look_up``.
    """
    sessions, locked = _lock_sessions(connection, {append.session_id for append in appends})
    places = {id_: _Place(*_standing(row)) for id_, row in sessions.items()}
    events = _stored_events(connection, appends) if look_up else {}
    outcomes: list[Outcome] = []
    new: list[tuple[object, ...]] = []
    moved: dict[str, _Place] = {}
    for append in appends:
        id_, epoch = append.session_id, append.epoch
        place = places.get(id_)
        if place is None or place.epoch != epoch:
            outcomes.append(_refusal(id_, known=place is not None, locked=locked))
            continue
        if append.kv_handle is not None:
            place.kv_handle = append.kv_handle
        stored: list[Event] = []
        for draft in append.rows:
            name = (id_, draft["key"])
            event = events.get(name)
            if event is None:
                seq = place.take(draft)
                new.append((id_, seq, epoch, *_values(draft)))
                event = events[name] = new_event(draft, session_id=id_, seq=seq, epoch=epoch)
                moved[id_] = place
            stored.append(event)
        outcomes.append(stored)
    if new:
        _execute_many(connection, _insert_events, EVENT_COLUMNS, new)
        _execute_many(
            connection,
            _advance,
            ("next", "last", "more", "cache", "of", "under"),
            [
                (place.next_seq, place.last_us, place.more_bytes, place.kv_handle, id_, place.epoch)
                for id_, place in moved.items()
            ],
        )
        _notify(connection, (f"{id_} {place.next_seq - 1}" for id_, place in moved.items()))
    return outcomes


def insert_session(connection: sa.Connection, info: SessionInfo, *, bytes_stored: int = 0) -> None:
    """Store a session, whose events are stored apart.

    Args:
        connection: of a transaction.
        info: the session.
        bytes_stored: sum of the payloads of its events.

    Raises:
        SessionExistsError: a session with its id exists.
    """
    row = {
        "id": info.id,
        "tenant": info.tenant,
        "epoch": info.epoch,
        "next_seq": info.last_seq + 1,
        "created_us": info.created_us,
        "last_us": info.last_us,
        "owner": info.owner,
        "bytes": bytes_stored,
    }
    try:
        connection.execute(_insert_session, row)
    except sa.exc.IntegrityError:
        # Detected by the insert and not by an earlier query: another process may import it at the same time.
        raise SessionExistsError(f"session {shown_id(info.id)} exists already") from None


def insert_whole(connection: sa.Connection, info: SessionInfo, rows: Sequence[Row]) -> None:
    """Store a session with all its events.

    Raises:
        SessionExistsError: a session with its id exists.
    """
    insert_session(connection, info, bytes_stored=sum(len(row["payload"]) for row in rows))
    for start in range(0, len(rows), CHUNK):
        chunk = [_whole(row) for row in rows[start : start + CHUNK]]
        _execute_many(connection, _insert_events, EVENT_COLUMNS, chunk)
    tagged = [row for row in rows if row["kind"] == Kind.TAGS]
    if tagged:
        write_tags(connection, info.id, _stated_tags(tagged[-1]))


def _stated_tags(row: Row) -> list[str]:
    """Return the tags of an event, a bounded number of short texts: an import may have it from anywhere."""
    stated = json.loads(row["payload"]).get("tags")
    texts = [each for each in stated if isinstance(each, str)] if isinstance(stated, list) else []
    # Not every text can be stored: half of a surrogate pair, and in PostgreSQL a zero.
    short = [each for each in texts if 0 < len(each) <= MOST_IMPORTED_CHARS and each.isprintable()]
    return list(dict.fromkeys(short))[:MOST_IMPORTED_TAGS]


def claim_session(connection: sa.Connection, session_id: str) -> SessionInfo:
    """Increment the epoch of a session.

    Raises:
        UnknownSessionError: there is no such session.
        LockedError: another process holds it.
    """
    sessions, locked = _lock_sessions(connection, {session_id})
    if session_id not in sessions:
        raise _refusal(session_id, known=False, locked=locked)
    connection.execute(_claim, {"of": session_id})
    before = session_info(sessions[session_id])
    return replace(before, epoch=before.epoch + 1)


def standing_epoch(connection: sa.Connection, session_id: str) -> int:
    """Lock a session and return the epoch of its present claim.

    An append under it is in order between those of the claim's holder, which goes on.

    Raises:
        UnknownSessionError: there is no such session.
        LockedError: another process holds it.
    """
    sessions, locked = _lock_sessions(connection, {session_id})
    if session_id not in sessions:
        raise _refusal(session_id, known=False, locked=locked)
    return int(sessions[session_id].epoch)


def write_tags(connection: sa.Connection, session_id: str, tags: Iterable[str]) -> None:
    """Replace the tags of a session, by which it is found (``tags``)."""
    connection.execute(_forget_tags, {"of": session_id})
    rows = [{"tag": tag, "session_id": session_id} for tag in tags]
    if rows:
        connection.execute(_insert_tags, rows)


def delete_session(connection: sa.Connection, session_id: str) -> RemovedRows:
    """Delete every row of a session; return how many there were, by kind.

    Raises:
        UnknownSessionError: there is no such session.
        LockedError: another process holds it.
    """
    sessions, locked = _lock_sessions(connection, {session_id})
    if session_id not in sessions:
        raise _refusal(session_id, known=False, locked=locked)
    removed = count_rows(connection, [session_id])
    _delete_sessions(connection, [session_id], ERASED)
    return removed


def delete_oldest(connection: sa.Connection, before_us: int, *, sessions: int, events: int) -> list[str]:
    """Delete sessions whose last event is before ``before_us``, the oldest first; return their ids.

    At most ``sessions`` of them are deleted, with at most ``events`` events, except that the first may have
    more.
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
        _delete_sessions(connection, chosen, EXPIRED)
    return chosen


def touch(connection: sa.Connection) -> None:
    """Perform a write without effect, to find out whether the database accepts writes."""
    connection.execute(_touch_one)


def _delete_sessions(connection: sa.Connection, ids: Sequence[str], why: str) -> None:
    # Their events are deleted with them, by the foreign key.
    connection.execute(_delete, {"ids": _padded(ids)})
    _notify(connection, (f"{id_} {why}" for id_ in ids))


def _lock_sessions(
    connection: sa.Connection, ids: Collection[str]
) -> tuple[dict[str, sa.Row[Any]], set[str]]:
    """Return the rows of sessions, locked, and the ids of those that another process holds locked."""
    ordered = sorted(ids)
    rows: dict[str, sa.Row[Any]] = {}
    for chunk in _chunks(ordered):
        padded = tuple(_padded(chunk))
        statement = _lock_statement(connection.dialect, len(padded))
        rows.update((row[0], row) for row in connection.exec_driver_sql(statement, padded).all())
    missing = [id_ for id_ in ordered if id_ not in rows]
    locked: set[str] = set()
    for chunk in _chunks(missing):
        locked.update(connection.scalars(_existing, {"ids": _padded(chunk)}))
    return rows, locked


def _stored_events(connection: sa.Connection, appends: Sequence[Append]) -> dict[tuple[str, str], Event]:
    keys: dict[str, list[str]] = {}
    for append in appends:
        keys.setdefault(append.session_id, []).extend(row["key"] for row in append.rows)
    # One query per session: SQLite reads the whole table for pairs of session and key.
    return {
        (session_id, row["key"]): event_of(dict(row))
        for session_id, wanted in keys.items()
        for chunk in _chunks(wanted)
        for row in connection.execute(_stored, {"session": session_id, "keys": _padded(chunk)}).mappings()
    }


def _refusal(session_id: str, *, known: bool, locked: set[str]) -> StoreError:
    if known:
        return FencedError(f"session {shown_id(session_id)} has been claimed by another process since")
    if session_id in locked:
        return LockedError(f"session {shown_id(session_id)} is locked by another process")
    return UnknownSessionError(f"there is no session {shown_id(session_id)}")


def _notify(connection: sa.Connection, words: Iterable[str]) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_announce, {"channel": CHANNEL, "words": list(words)})


def _execute_many(
    connection: sa.Connection,
    statement: sa.Insert | sa.Update,
    names: tuple[str, ...],
    rows: Sequence[tuple[object, ...]],
) -> None:
    """Execute a statement with many rows, without SQLAlchemy's processing of each row.

    Our tables do not need that processing, because the drivers accept every type as it is. It would be a
    quarter of the processor time of an append. ``names`` are those of the values in a row.
    """
    connection.exec_driver_sql(_many_statement(statement, connection.dialect, names), list(rows))


@lru_cache(maxsize=32)
def _many_statement(statement: sa.Insert | sa.Update, dialect: sa.Dialect, names: tuple[str, ...]) -> str:
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    assert isinstance(compiled, SQLCompiler)
    if compiled.positiontup != list(names):
        raise ValueError(
            f"the statement has the parameters {compiled.positiontup}, but the rows have {names}"
        )
    return str(compiled)


@lru_cache(maxsize=64)
def _lock_statement(dialect: sa.Dialect, size: int) -> str:
    """Return the locking statement for ``size`` ids.

    A list parameter that expands would be compiled anew in every transaction.
    """
    ids = [sa.bindparam(f"id_{number}", type_=session_table.c.id.type) for number in range(size)]
    return str(_lock.where(session_table.c.id.in_(ids)).compile(dialect=dialect))


def _chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))


def _padded(values: Sequence[str]) -> list[str]:
    """Return the values padded to a power of two by repetition.

    The driver prepares a statement for each length, so this keeps their number small.
    """
    size = 1
    while size < len(values):
        size *= 2
    return [*values, *[values[-1]] * (size - len(values))]
