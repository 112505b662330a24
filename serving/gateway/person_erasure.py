"""Deletion of everything of one person.

Input: a telephone number, a user of an application, the owner of sessions, or one of the sessions. Output:
the sessions that were deleted, and totals by kind. Their calls end. A person who calls again meanwhile is
found again: the sessions are looked for until none is left, ``MOST_ROUNDS`` times.

What identifies a person lies with their sessions (``session_store.people``) and goes with them. A request
keeps it to its end, and deletes a session that leads to others after them, so that the next request finds
what is left. One person is forgotten at a time; a request takes ``MOST_ERASED`` sessions at most, and says
when there are more.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from parley.core.errors import PeerError, UnknownSessionError
from parley.core.grants import ClientIdentity
from parley.serving.gateway.auth.client_keys import ClientKeys
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.session_erasure import ErasedSession, RemovedParts, SessionEraser, joined
from parley.session_store.people import SessionsOfPeople, SoughtPerson
from parley.session_store.store import SessionStore

MOST_ERASED = 500
MOST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class NamedPerson:
    """Person as an operator names them, by exactly one of the first four.

    Attributes:
        number: telephone number.
        user: an application's name for its user.
        owner: owner of sessions, as the store has it.
        session: id of one of the sessions.
        called: number that the telephone number has called; None: ``phone.number``.
        tenant: of the application, empty for those without a name; None: the only one that has keys.
        linked: also sessions that are linked to a found one by a number or an owner.
    """

    number: str | None = None
    user: str | None = None
    owner: str | None = None
    session: str | None = None
    called: str | None = None
    tenant: str | None = None
    linked: bool = False


@dataclass(frozen=True, slots=True)
class ForgottenPerson:
    """Result of a request.

    Attributes:
        sessions: ids of the sessions that are gone, or would be.
        erased: totals, what is pending, and problems.
        more: sessions are left: the same request goes on with them.
    """

    sessions: tuple[str, ...]
    erased: ErasedSession
    more: bool


class PersonEraser:
    """Deletes everything of one person, for one gateway.

    Args:
        store: of the sessions.
        eraser: deletes each session.
        keys: of applications.
        book: recognises callers by number; None: there are no calls.
        most_erased: sessions of one request.
    """

    def __init__(
        self,
        store: SessionStore,
        eraser: SessionEraser,
        keys: ClientKeys,
        book: CallerDirectory | None = None,
        *,
        most_erased: int = MOST_ERASED,
    ) -> None:
        self._most_erased = most_erased
        self._people = SessionsOfPeople(store)
        self._eraser, self._keys, self._book = eraser, keys, book
        self._turn = asyncio.Lock()

    async def find(self, person: NamedPerson) -> ForgottenPerson:
        """Return what would be deleted in the store; nothing is changed.

        Raises:
            PeerError: the person cannot be looked for.
            StoreUnavailableError: the database does not answer.
        """
        found = await self._people.find(self._sought(person))
        ids = found.ids[: self._most_erased]
        counted = RemovedParts(await self._people.count(ids))
        return ForgottenPerson(ids, ErasedSession(counted), len(found.ids) > len(ids))

    async def forget(self, person: NamedPerson, *, by: ClientIdentity) -> ForgottenPerson:
        """Delete everything of a person.

        Raises:
            PeerError: the person cannot be looked for.
            StoreUnavailableError: the database does not answer; what was deleted so far stays deleted.
        """
        sought = self._sought(person)
        async with self._turn:
            gone: list[str] = []
            parts: list[ErasedSession] = []
            for _ in range(MOST_ROUNDS):
                found = await self._people.find(sought)
                sought = replace(sought, digests=found.digests, owners=found.owners)
                if not found.ids or len(gone) >= self._most_erased:
                    break
                # One that is deleted by another request meanwhile is gone as well.
                gone += await self._erase(found.ids[: self._most_erased - len(gone)], parts, by)
            left = await self._people.find(sought)
            pending = await self._eraser.scrub() if gone else ()
        erased = joined([*parts, ErasedSession(pending=pending)])
        return ForgottenPerson(tuple(gone), erased, bool(left.ids))

    async def _erase(
        self, session_ids: Sequence[str], parts: list[ErasedSession], by: ClientIdentity
    ) -> list[str]:
        gone = []
        for session_id in session_ids:
            try:
                parts.append(await self._eraser.erase(session_id, by=by))
            except UnknownSessionError:
                continue
            gone.append(session_id)
        return gone

    def _sought(self, person: NamedPerson) -> SoughtPerson:
        """Return what the store is searched for.

        Raises:
            PeerError: the person cannot be looked for.
        """
        if person.number is not None:
            if self._book is None:
                raise PeerError("this server has no phone calls (phone:), and knows no numbers")
            digests = self._book.digests_of_person(person.number, person.called)
            return SoughtPerson(digests, linked=person.linked)
        if person.user is not None:
            if person.tenant is None and len(set(self._keys.tenants.values())) > 1:
                # Users of one name at two tenants are two people.
                raise PeerError("user: name the tenant: applications of several have keys here")
            owners = self._keys.owners_of_user(person.user, tenant=person.tenant)
            if not owners:
                raise PeerError("user: this server has no key of such an application")
            return SoughtPerson(owners=owners, linked=person.linked)
        if person.owner is not None:
            return SoughtPerson(owners=[person.owner], linked=person.linked)
        return SoughtPerson(session_id=person.session, linked=person.linked)
