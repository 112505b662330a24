"""Find sessions by what was said, when, and over which transport: for the list of an operator.

Plain functions over a connection, the same for both databases. A text is looked for in the turns of both
sides as it stands in their JSON, without regard to the case of ASCII letters. There is no index of the texts:
the newest sessions are read first until a page is full, and the store's deadline bounds a search that finds
nothing.
"""

import json
from dataclasses import dataclass

import sqlalchemy as sa

from parley.session_store.events import Kind
from parley.session_store.reading import read_session, read_tags
from parley.session_store.rows import SessionInfo, session_info
from parley.session_store.schema import event_table, session_table, session_tag_table

# Characters of the first words in a summary.
MOST_WORDS_CHARS = 160
# Visits of one session that are read for its transports.
MOST_VISITS = 50
_ESCAPE = "\\"


@dataclass(frozen=True, slots=True)
class SessionSearch:
    """Conditions of a search; all that are given hold.

    Attributes:
        text: words of a turn; empty for any.
        transport: name of a transport as in the records (``webrtc``, ``phone``, ``text``); empty for any.
        since_us: last used at this time or later; 0 for any.
        until_us: created before this time; None for any.
        tag: a tag of the session, normalised (``tags``); empty for any.
    """

    text: str = ""
    transport: str = ""
    since_us: int = 0
    until_us: int | None = None
    tag: str = ""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Session in the list of a search.

    Attributes:
        info: the session.
        turns: number of turns of its user.
        transports: over which it was used, in the order of their first use.
        first_words: beginning of its first turn; empty without one.
        tags: in the order of the alphabet.
    """

    info: SessionInfo
    turns: int
    transports: tuple[str, ...]
    first_words: str
    tags: tuple[str, ...]


def search_sessions(
    connection: sa.Connection, *, tenant: str, search: SessionSearch, before: str | None, limit: int
) -> list[SessionSummary]:
    """Return sessions of a tenant that fit, newest first, starting after ``before``.

    Raises:
        UnknownSessionError: there is no session ``before``.
    """
    columns = session_table.c
    query = (
        sa.select(session_table)
        .where(columns.tenant == tenant, columns.last_us >= search.since_us)
        .order_by(columns.created_us.desc(), columns.id.desc())
        .limit(limit)
    )
    if search.until_us is not None:
        query = query.where(columns.created_us < search.until_us)
    if before is not None:
        place = sa.tuple_(sa.literal(read_session(connection, before).created_us), sa.literal(before))
        query = query.where(sa.tuple_(columns.created_us, columns.id) < place)
    if search.tag:
        tagged = session_tag_table.c
        of_tag = sa.select(tagged.session_id).where(tagged.tag == search.tag)
        query = query.where(columns.id.in_(of_tag))
    if search.transport:
        query = query.where(
            _has((Kind.JOINED, Kind.USER_TURN), f'"transport":{json.dumps(search.transport)}')
        )
    if search.text:
        query = query.where(_has((Kind.USER_TURN, Kind.BOT_TURN), json.dumps(search.text)[1:-1]))
    return [_summary(connection, session_info(row)) for row in connection.execute(query)]


def _has(kinds: tuple[Kind, ...], text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a session has an event of these kinds whose payload contains a text."""
    for special in (_ESCAPE, "%", "_"):
        text = text.replace(special, f"{_ESCAPE}{special}")
    columns = event_table.c
    return (
        sa.select(sa.literal(1))
        .where(
            columns.session_id == session_table.c.id,
            columns.kind.in_([kind.value for kind in kinds]),
            sa.func.lower(columns.payload).like(f"%{text.lower()}%", escape=_ESCAPE),
        )
        .exists()
    )


def _summary(connection: sa.Connection, info: SessionInfo) -> SessionSummary:
    columns = event_table.c
    of_session = sa.and_(columns.session_id == info.id, columns.kind == sa.bindparam("kind"))
    turns = sa.select(sa.func.count()).select_from(event_table).where(of_session)
    payloads = sa.select(columns.payload).where(of_session).order_by(columns.seq)
    turn = {"kind": Kind.USER_TURN.value}
    first = connection.execute(payloads.limit(1), turn).scalar()
    visits = connection.execute(payloads.limit(MOST_VISITS), {"kind": Kind.JOINED.value}).scalars()
    used = [json.loads(each).get("transport", "") for each in (*visits, *([first] if first else []))]
    words = str(json.loads(first).get("text", "")) if first else ""
    return SessionSummary(
        info,
        int(connection.execute(turns, turn).scalar() or 0),
        tuple(dict.fromkeys(str(each) for each in used if each)),
        words[:MOST_WORDS_CHARS],
        read_tags(connection, info.id),
    )
