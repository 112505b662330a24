"""Counts of what is deleted with a session, by kind.

Plain functions over a connection, the same for both databases. The rows are counted in the transaction that
deletes them. Their tables refer to the session, and are deleted with it by their foreign keys.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import sqlalchemy as sa

from parley.session_store.events import Kind
from parley.session_store.schema import (
    call_code_table,
    call_link_table,
    caller_session_table,
    caller_table,
    event_table,
    session_comment_table,
    session_tag_table,
    share_link_table,
    vault_entry_table,
)

_event = event_table.c


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """Rows that were deleted with sessions, or would be.

    Attributes:
        sessions: number of sessions.
        events: events of every kind, with their idempotency keys.
        voiceprints: voices of the newest event of voiceprints, which is one of the events.
        evidence: signed entries, which are events too.
        comments: notes of readers.
        links: links by which a session is read.
        tags: tags.
        numbers: digests of telephone numbers, one for each line that they called and one for all.
        codes: call codes.
        call_links: links of running phone calls.
        vault_entries: words that redaction replaced.
    """

    sessions: int = 0
    events: int = 0
    voiceprints: int = 0
    evidence: int = 0
    comments: int = 0
    links: int = 0
    tags: int = 0
    numbers: int = 0
    codes: int = 0
    call_links: int = 0
    vault_entries: int = 0

    def __add__(self, other: "RemovedRows") -> "RemovedRows":
        return RemovedRows(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


# Tables whose rows belong to one session; those of numbers are counted together.
_TABLES: Mapping[str, sa.Table] = {
    "comments": session_comment_table,
    "links": share_link_table,
    "tags": session_tag_table,
    "codes": call_code_table,
    "call_links": call_link_table,
    "vault_entries": vault_entry_table,
}


def count_rows(connection: sa.Connection, session_id: str) -> RemovedRows:
    """Return the counts of the rows of an existing session."""
    counted = {name: _rows_of(connection, table, session_id) for name, table in _TABLES.items()}
    of_session = sa.select(sa.func.count()).where(_event.session_id == session_id)
    return RemovedRows(
        sessions=1,
        events=_count(connection, of_session),
        evidence=_count(connection, of_session.where(_event.kind == Kind.EVIDENCE)),
        voiceprints=_voiceprints(connection, session_id),
        numbers=_numbers(connection, session_id),
        **counted,
    )


def total(counts: Iterable[RemovedRows]) -> RemovedRows:
    """Return the sum of counts."""
    return sum(counts, RemovedRows())


def _count(connection: sa.Connection, statement: sa.Select[int]) -> int:
    return connection.scalar(statement) or 0


def _rows_of(connection: sa.Connection, table: sa.Table, session_id: str) -> int:
    return _count(connection, sa.select(sa.func.count()).where(table.c.session_id == session_id))


def _numbers(connection: sa.Connection, session_id: str) -> int:
    """Return the number of digests: those whose next call continues the session, and those that called."""
    return sum(_rows_of(connection, table, session_id) for table in (caller_table, caller_session_table))


def _voiceprints(connection: sa.Connection, session_id: str) -> int:
    newest = connection.scalar(
        sa.select(_event.payload)
        .where(_event.session_id == session_id, _event.kind == Kind.VOICES)
        .order_by(_event.seq.desc())
        .limit(1)
    )
    # An imported session may hold anything.
    voices = None if newest is None else json.loads(newest).get("voices")
    return len(voices) if isinstance(voices, list) else 0
