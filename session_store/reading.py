"""Transactions that read. Plain functions over a connection, the same for both databases."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from parley.core.errors import UnknownSessionError
from parley.session_store.events import Event, Kind
from parley.session_store.rows import MAX_INT, SessionInfo, event_of, event_text, session_info, shown_id
from parley.session_store.schema import event_table, session_table, session_tag_table

# Bound of a page that is read as JSON: the payloads of a thousand events may be a megabyte each.
PAGE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class JsonPage:
    """Events as JSON texts, in order.

    Attributes:
        texts: one per event.
        last: ``(event_us, seq)`` of the last one; None when there is none.
        is_last: true when no event follows.
    """

    texts: tuple[str, ...]
    last: tuple[int, int] | None
    is_last: bool


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """Part of a timeline to read.

    Attributes:
        after: ``(event_us, seq)`` of the event before its first one, in its direction; None: from the start.
        limit: maximum number of events.
        kinds: only these; None for all.
        newest_first: from the end of the session to its beginning.
    """

    after: tuple[int, int] | None
    limit: int
    kinds: Collection[Kind] | None = None
    newest_first: bool = False

    @property
    def statement(self) -> sa.Select[Any]:
        """Statement that reads events in the order of the page, from ``after`` on."""
        return _back_in_time if self.newest_first else _by_time

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of ``statement``."""
        start = (MAX_INT, MAX_INT) if self.newest_first else (-1, 0)
        event_us, seq = start if self.after is None else self.after
        return {"event_us": event_us, "seq": seq, "limit": self.limit}


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
_of_session = sa.select(event_table).where(event_table.c.session_id == sa.bindparam("id"))
_by_seq = (
    _of_session.where(event_table.c.seq > sa.bindparam("after"))
    .order_by(event_table.c.seq)
    .limit(sa.bindparam("limit"))
)
# Reads the primary key from its end: only the newest event of the kind and those after it.
_newest = (
    _of_session.where(event_table.c.kind == sa.bindparam("kind")).order_by(event_table.c.seq.desc()).limit(1)
)
_of_key = _of_session.where(event_table.c.key == sa.bindparam("key"))
_place = sa.tuple_(event_table.c.event_us, event_table.c.seq)
_given_place = sa.tuple_(
    sa.bindparam("event_us", type_=sa.BigInteger), sa.bindparam("seq", type_=sa.BigInteger)
)
_by_time = (
    _of_session.where(_place > _given_place)
    .order_by(event_table.c.event_us, event_table.c.seq)
    .limit(sa.bindparam("limit"))
)
_back_in_time = (
    _of_session.where(_place < _given_place)
    .order_by(event_table.c.event_us.desc(), event_table.c.seq.desc())
    .limit(sa.bindparam("limit"))
)
# Excludes unwanted kinds instead of selecting the wanted ones: an event of an unknown kind must not be
# skipped silently, but refused as elsewhere.
_without = event_table.c.kind.not_in(sa.bindparam("others", expanding=True))


def read_session(connection: sa.Connection, session_id: str) -> SessionInfo:
    """Return a session.

    Raises:
        UnknownSessionError: there is no such session.
    """
    row = connection.execute(_session, {"id": session_id}).first()
    if row is None:
        raise UnknownSessionError(f"there is no session {shown_id(session_id)}")
    return session_info(row)


def read_sessions(
    connection: sa.Connection, *, tenant: str, before: str | None, limit: int
) -> list[SessionInfo]:
    """Return sessions of a tenant, newest first, starting after ``before``.

    Raises:
        UnknownSessionError: there is no session ``before``.
    """
    parameters: dict[str, object] = {"tenant": tenant, "limit": limit}
    statement = _by_creation
    if before is not None:
        statement = _created_before
        parameters |= {"before": before, "created_us": read_session(connection, before).created_us}
    return [session_info(row) for row in connection.execute(statement, parameters)]


def read_events(
    connection: sa.Connection,
    session_id: str,
    *,
    after_seq: int,
    limit: int,
    kinds: Collection[Kind] | None = None,
) -> list[Event]:
    """Return events in order of commit, of all kinds or of these.

    Raises:
        UnknownSessionError: there is no such session.
        StoreError: a newer release wrote one of them.
    """
    return _page(connection, _by_seq, session_id, kinds, {"after": after_seq, "limit": limit})


def read_next_events(
    connection: sa.Connection, session_id: str, *, after_seq: int, limit: int
) -> tuple[list[Event], bool]:
    """Return events in order of commit, and whether there are no more.

    The list also ends with the first event that reaches ``PAGE_BYTES``: the payload of a picture is large.

    Raises:
        UnknownSessionError: there is no such session.
        StoreError: a newer release wrote one of them.
    """
    events: list[Event] = []
    size = 0
    for row in _rows(connection, _by_seq, session_id, None, {"after": after_seq, "limit": limit}):
        if size >= PAGE_BYTES:
            return events, False
        events.append(event_of(row))
        size += len(row["payload"])
    if not events:
        read_session(connection, session_id)
    return events, len(events) < limit


def read_newest(connection: sa.Connection, session_id: str, *, kind: Kind) -> Event | None:
    """Return the event of a kind that was committed last; None when there is none.

    Raises:
        UnknownSessionError: there is no such session.
    """
    found = _page(connection, _newest, session_id, None, {"kind": kind.value})
    return found[0] if found else None


def read_keyed(connection: sa.Connection, session_id: str, *, key: str) -> Event | None:
    """Return the event with an idempotency key; None when there is none.

    Raises:
        UnknownSessionError: there is no such session.
    """
    found = _page(connection, _of_key, session_id, None, {"key": key})
    return found[0] if found else None


def read_timeline(connection: sa.Connection, session_id: str, page: TimelinePage) -> list[Event]:
    """Return events in order of time, then of commit, or in the reverse order.

    Raises:
        UnknownSessionError: there is no such session.
        StoreError: a newer release wrote one of them.
    """
    return _page(connection, page.statement, session_id, page.kinds, page.parameters)


def read_json_timeline(connection: sa.Connection, session_id: str, page: TimelinePage) -> JsonPage:
    """Return a page as ``read_timeline`` does, as JSON.

    It also ends with the first event that reaches ``PAGE_BYTES``.

    Raises:
        StoreError: as ``read_timeline`` does.
    """
    return _json_page(connection, page.statement, session_id, page.kinds, page.parameters, with_session=True)


def read_json_events(connection: sa.Connection, session_id: str, *, after_seq: int, limit: int) -> JsonPage:
    """Return a page as ``read_events`` does, as JSON without session ids.

    It also ends with the first event that reaches ``PAGE_BYTES``.

    Raises:
        StoreError: as ``read_events`` does.
    """
    parameters = {"after": after_seq, "limit": limit}
    return _json_page(connection, _by_seq, session_id, None, parameters, with_session=False)


def read_tags(connection: sa.Connection, session_id: str) -> tuple[str, ...]:
    """Return the tags of a session, in the order of the alphabet; none for one that does not exist."""
    query = sa.select(session_tag_table.c.tag).where(session_tag_table.c.session_id == session_id)
    # The databases order by alphabets of their own.
    return tuple(sorted(connection.scalars(query)))


def _json_page(
    connection: sa.Connection,
    statement: sa.Select[Any],
    session_id: str,
    kinds: Collection[Kind] | None,
    parameters: dict[str, Any],
    *,
    with_session: bool,
) -> JsonPage:
    texts: list[str] = []
    size = 0
    last: tuple[int, int] | None = None
    is_cut = False
    for row in _rows(connection, statement, session_id, kinds, parameters):
        is_cut = size >= PAGE_BYTES
        if is_cut:
            break
        texts.append(event_text(row, with_session=with_session))
        size += len(texts[-1])
        last = (row["event_us"], row["seq"])
    if last is None:
        read_session(connection, session_id)
    return JsonPage(tuple(texts), last, not is_cut and len(texts) < parameters["limit"])


def _page(
    connection: sa.Connection,
    statement: sa.Select[Any],
    session_id: str,
    kinds: Collection[Kind] | None,
    parameters: dict[str, Any],
) -> list[Event]:
    events = [event_of(row) for row in _rows(connection, statement, session_id, kinds, parameters)]
    if not events:
        # Distinguishes a missing session from one without such events.
        read_session(connection, session_id)
    return events


def _rows(
    connection: sa.Connection,
    statement: sa.Select[Any],
    session_id: str,
    kinds: Collection[Kind] | None,
    parameters: dict[str, Any],
) -> Iterator[Mapping[str, Any]]:
    others = [] if kinds is None else [kind.value for kind in Kind if kind not in kinds]
    if others:
        statement = statement.where(_without)
        parameters = {**parameters, "others": others}
    with connection.execute(statement, {"id": session_id, **parameters}) as rows:
        for row in rows.mappings():
            yield dict(row)
