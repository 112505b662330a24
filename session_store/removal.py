"""Counts of what is deleted with a session, by kind.

Plain functions over a connection, the same for both databases. The rows are counted in the transaction that
deletes them. Their tables refer to the session, and are deleted with it by their foreign keys.
"""

import json
from collections.abc import Mapping, Sequence
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


def count_rows(connection: sa.Connection, session_ids: Sequence[str]) -> RemovedRows:
    """Return the counts of the rows of existing sessions, of which a statement can name all."""
    counted = {name: _rows_of(connection, table, session_ids) for name, table in _TABLES.items()}
    of_sessions = sa.select(sa.func.count()).where(_event.session_id.in_(session_ids))
    return RemovedRows(
        sessions=len(session_ids),
        events=_count(connection, of_sessions),
        evidence=_count(connection, of_sessions.where(_event.kind == Kind.EVIDENCE)),
        voiceprints=_voiceprints(connection, session_ids),
        numbers=_numbers(connection, session_ids),
        **counted,
    )


def _count(connection: sa.Connection, statement: sa.Select[int]) -> int:
    return connection.scalar(statement) or 0


def _rows_of(connection: sa.Connection, table: sa.Table, session_ids: Sequence[str]) -> int:
    return _count(connection, sa.select(sa.func.count()).where(table.c.session_id.in_(session_ids)))


def _numbers(connection: sa.Connection, session_ids: Sequence[str]) -> int:
    """Return the number of digests: those whose next call continues a session, and those that called."""
    return sum(_rows_of(connection, table, session_ids) for table in (caller_table, caller_session_table))


def _voiceprints(connection: sa.Connection, session_ids: Sequence[str]) -> int:
    newest = (
        sa.select(_event.session_id, sa.func.max(_event.seq).label("seq"))
        .where(_event.session_id.in_(session_ids), _event.kind == Kind.VOICES)
        .group_by(_event.session_id)
        .subquery()
    )
    payloads = connection.scalars(
        sa.select(_event.payload).join(
            newest, (_event.session_id == newest.c.session_id) & (_event.seq == newest.c.seq)
        )
    )
    # An imported session may hold anything.
    found = (json.loads(payload).get("voices") for payload in payloads)
    return sum(len(voices) for voices in found if isinstance(voices, list))
