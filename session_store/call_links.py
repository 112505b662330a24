"""Transactions that link phone calls to the sessions in which they go on when they lose their stream.

A link belongs to the stream that wrote it last, its holder. The end of an earlier stream, in another process
for example, does not remove it. A lost stream is a row of its own, so that a process that dies at once cannot
be connected for ever; requests that repeat for the same lost stream are one row. Both are deleted with their
session, and after a day.

Plain functions over a connection, the same for both databases.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.session_store.callers import check_session
from parley.session_store.schema import call_link_table

_link = call_link_table.c


@dataclass(frozen=True, slots=True)
class CallLink:
    """Link of a call.

    Attributes:
        session_id: session that the call is in.
        holder: name of the stream that wrote it.
    """

    session_id: str
    holder: str


@dataclass(frozen=True, slots=True)
class LostStream:
    """Stream of a call that is lost.

    Attributes:
        places: digests under which lost streams of the call are counted, one for each that is allowed.
        link: of the call.
        since_us: time from which lost streams count.
        same_us: time from which another request for the same stream is its repetition.
    """

    places: Sequence[str]
    link: CallLink
    since_us: int
    same_us: int


def put_call_link(
    connection: sa.Connection, *, digest: str, link: CallLink, now_us: int, forget_us: int
) -> None:
    """Link a call to a session; delete links that are older than ``forget_us``.

    Raises:
        UnknownSessionError: there is no such session.
    """
    check_session(connection, link.session_id)
    connection.execute(sa.delete(call_link_table).where(_link.last_us < forget_us))
    _put(connection, digest, link, now_us)


def read_call_link(connection: sa.Connection, *, digest: str, since_us: int) -> CallLink | None:
    """Return the link of a call that was written since ``since_us``; None when there is none."""
    row = connection.execute(
        sa.select(_link.session_id, _link.holder).where(_link.digest == digest, _link.last_us >= since_us)
    ).first()
    return None if row is None else CallLink(row.session_id, row.holder)


def drop_call_link(connection: sa.Connection, *, digest: str, holder: str) -> int:
    """Delete the link of a call if this stream holds it; return how many there were."""
    return connection.execute(
        sa.delete(call_link_table).where(_link.digest == digest, _link.holder == holder)
    ).rowcount


def count_lost_stream(connection: sa.Connection, lost: LostStream, *, now_us: int) -> bool:
    """Count a lost stream; return False when the call has lost as many as it may.

    A request that repeats for the same stream is not counted again.

    Raises:
        UnknownSessionError: the session was deleted.
    """
    check_session(connection, lost.link.session_id)
    known = connection.execute(
        sa.select(_link.digest, _link.holder, _link.last_us).where(
            _link.digest.in_(lost.places), _link.last_us >= lost.since_us
        )
    ).all()
    if any(row.holder == lost.link.holder and row.last_us >= lost.same_us for row in known):
        return True
    taken = {row.digest for row in known}
    free = next((place for place in lost.places if place not in taken), None)
    if free is None:
        return False
    _put(connection, free, lost.link, now_us)
    return True


def _put(connection: sa.Connection, digest: str, link: CallLink, now_us: int) -> None:
    # When two streams begin at the same time, either may win: an upsert waits, an insert would be refused.
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    changed = {"session_id": link.session_id, "holder": link.holder, "last_us": now_us}
    connection.execute(
        made.insert(call_link_table)
        .values(digest=digest, **changed)
        .on_conflict_do_update(index_elements=["digest"], set_=changed)
    )
