"""Sessions of one person: by telephone number, by owner, or by one of the sessions.

A person has no record of their own. Their sessions are those

* in which their number has called, or which its next call continues (digests, see ``callers``);
* which their browser, or the user of an application that they are, has created (``owner``);
* which share a number or such an owner with a session that is named.

An application's own key names no person: all sessions of its users would be found by it. Sessions are found
one step from what is named; with ``linked`` also through the numbers and owners of what is found, until there
is nothing more. A number or a browser may be shared, and then leads to the sessions of other people.

Numbers and owners lie with the sessions and go with them. So the sessions come in an order in which they can
be deleted a part at a time: one that leads to others comes after them.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.core.grants import names_person
from parley.session_store.callers import check_session
from parley.session_store.removal import RemovedRows, count_rows
from parley.session_store.schema import caller_session_table, caller_table, session_table
from parley.session_store.store import SessionStore

# Sessions that are returned at a time; who deletes them asks again.
MOST_SESSIONS = 1_000
# Values in one statement.
CHUNK = 500

_session, _caller, _called = session_table.c, caller_table.c, caller_session_table.c


@dataclass(frozen=True, slots=True)
class SoughtPerson:
    """Person whose sessions are looked for, by any of these.

    Attributes:
        digests: of a telephone number (``protocols.phone_numbers``).
        owners: of sessions (``core.grants``).
        session_id: one of the sessions.
        linked: sessions that share a number or an owner with any that is found are found too.
    """

    digests: Sequence[str] = ()
    owners: Sequence[str] = ()
    session_id: str | None = None
    linked: bool = False


@dataclass(frozen=True, slots=True)
class FoundSessions:
    """Sessions of a person.

    Attributes:
        ids: at most ``MOST_SESSIONS``; one that leads to others comes after them.
        digests: of the numbers by which they were found.
        owners: by which they were found.
    """

    ids: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


class SessionsOfPeople:
    """Sessions of people in a store.

    Args:
        store: the store.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def note_caller(self, session_id: str, digest: str) -> None:
        """Note that a number has called in a session.

        Raises:
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        await self._store.transact(partial(put_caller_session, session_id=session_id, digest=digest))

    async def find(self, sought: SoughtPerson) -> FoundSessions:
        """Return a person's sessions.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        return await self._store.query(partial(find_sessions, sought=sought), is_long=True)

    async def count(self, session_ids: Sequence[str]) -> RemovedRows:
        """Return what the store has of sessions; those that are gone count nothing.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        return await self._store.query(partial(_count_existing, session_ids=session_ids), is_long=True)


def put_caller_session(connection: sa.Connection, *, session_id: str, digest: str) -> None:
    """Note that a number has called in a session; it may be noted already.

    Raises:
        UnknownSessionError: there is no such session.
    """
    check_session(connection, session_id)
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(
        made.insert(caller_session_table)
        .values(digest=digest, session_id=session_id)
        .on_conflict_do_nothing(index_elements=["digest", "session_id"])
    )


def find_sessions(connection: sa.Connection, *, sought: SoughtPerson) -> FoundSessions:
    """Return a person's sessions."""
    named = set[str]() if sought.session_id is None else _existing(connection, [sought.session_id])
    more_digests, more_owners = _marks_of(connection, named)
    digests, owners = {*sought.digests, *more_digests}, {*sought.owners, *more_owners}
    steps, found = [named], set(named)
    next_digests, next_owners = set(digests), set(owners)
    while next_digests or next_owners:
        reached = (_by_digests(connection, next_digests) | _by_owners(connection, next_owners)) - found
        steps.append(reached)
        found |= reached
        if not sought.linked:
            break
        more_digests, more_owners = _marks_of(connection, reached)
        next_digests, next_owners = more_digests - digests, more_owners - owners
        digests |= next_digests
        owners |= next_owners
    ids = [each for step in reversed(steps) for each in sorted(step)]
    return FoundSessions(tuple(ids[:MOST_SESSIONS]), tuple(sorted(digests)), tuple(sorted(owners)))


def _existing(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    return _gathered(connection, _session.id, _session.id, ids)


def _by_digests(connection: sa.Connection, digests: Collection[str]) -> set[str]:
    """Return the sessions of numbers."""
    return _gathered(connection, _caller.session_id, _caller.digest, digests) | _gathered(
        connection, _called.session_id, _called.digest, digests
    )


def _by_owners(connection: sa.Connection, owners: Collection[str]) -> set[str]:
    return _gathered(connection, _session.id, _session.owner, owners)


def _marks_of(connection: sa.Connection, ids: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the numbers of sessions, as digests, and those of their owners that are people."""
    digests = _gathered(connection, _caller.digest, _caller.session_id, ids) | _gathered(
        connection, _called.digest, _called.session_id, ids
    )
    owners = _gathered(connection, _session.owner, _session.id, ids)
    return digests, {owner for owner in owners if names_person(owner)}


def _gathered(
    connection: sa.Connection, wanted: "sa.Column[str]", known: "sa.Column[str]", values: Iterable[str]
) -> set[str]:
    """Return the values of one column in the rows that have one of these values in another."""
    ordered = sorted(values)
    return {
        value
        for start in range(0, len(ordered), CHUNK)
        for value in connection.scalars(sa.select(wanted).where(known.in_(ordered[start : start + CHUNK])))
        if value is not None
    }


def _count_existing(connection: sa.Connection, *, session_ids: Sequence[str]) -> RemovedRows:
    existing = sorted(_existing(connection, session_ids))
    starts = range(0, len(existing), CHUNK)
    return sum((count_rows(connection, existing[start : start + CHUNK]) for start in starts), RemovedRows())
