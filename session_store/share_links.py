"""Links by which a recorded session is read without a credential, until they expire or are revoked.

A link is an id, which may be known, and a secret of 256 random bits. The database holds the SHA-256 of the
secret, so that a reader of the database cannot open links, and any process of a deployment can check one. A
link shows the session as it was when the link was made: events up to ``until_seq``.

An ended link stays for ``KEPT_DAYS``, so that its readers get to know why it does not open. All links of a
session are deleted with it.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from functools import partial
from typing import Literal

import sqlalchemy as sa

from parley.core.errors import StoreError
from parley.session_store.callers import check_session
from parley.session_store.schema import share_link_table
from parley.session_store.store import SessionStore

# Open links of one session.
MOST_LINKS = 20
# Ended links of one session that are kept, the newest ones.
MOST_ENDED = 50
KEPT_DAYS = 90
_US_PER_DAY = 86_400_000_000
_link = share_link_table.c

LinkState = Literal["open", "expired", "revoked"]


class TooManyLinksError(StoreError):
    """A session has as many open links as it may have."""


@dataclass(frozen=True, slots=True)
class ShareLink:
    """Link as it was read, without its secret.

    Attributes:
        id: public, 16 hexadecimal digits.
        session_id: of the session that it shows.
        until_seq: of the newest event that it shows.
        created_us, until_us: wall clock, microseconds since the Unix epoch.
        revoked_us: when it was revoked; None: it was not.
    """

    id: str
    session_id: str
    until_seq: int
    created_us: int
    until_us: int
    revoked_us: int | None

    def state(self, now_us: int) -> LinkState:
        """Return the state at a time of the wall clock."""
        if self.revoked_us is not None:
            return "revoked"
        return "open" if now_us < self.until_us else "expired"


class ShareLinks:
    """Links of all sessions of a store.

    Args:
        store: that holds them.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def make(self, session_id: str, *, for_s: float) -> tuple[ShareLink, str]:
        """Make a link to the session as it is now; return it and its secret, which is stored nowhere.

        Raises:
            TooManyLinksError: ``MOST_LINKS`` of the session are open.
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        info = await self._store.info(session_id)
        secret = secrets.token_urlsafe(32)
        now_us = self._store.wall_us()
        link = ShareLink(
            secrets.token_hex(8), session_id, info.last_seq, now_us, now_us + round(for_s * 1_000_000), None
        )
        await self._store.transact(partial(_put, link=link, digest=_digest(secret)))
        return link, secret

    async def of_session(self, session_id: str) -> list[ShareLink]:
        """Return the links of a session, newest first.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        return await self._store.look(partial(_read_all, session_id=session_id))

    async def find(self, link_id: str) -> ShareLink | None:
        """Return the link of an id; None when there is none.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        found = await self._store.look(partial(_read, link_id=link_id))
        return None if found is None else found[0]

    async def check(self, link_id: str, secret: str) -> ShareLink | None:
        """Return the link that an id and its secret open, also an ended one; None for any other secret.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        found = await self._store.look(partial(_read, link_id=link_id))
        if found is None or not hmac.compare_digest(found[1], _digest(secret)):
            return None
        return found[0]

    async def revoke(self, session_id: str, link_id: str) -> bool:
        """Revoke a link of a session; return False when the session has no such link.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        now_us = self._store.wall_us()
        return await self._store.transact(
            partial(_revoke, session_id=session_id, link_id=link_id, now_us=now_us)
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _link_of(row: sa.Row[tuple[object, ...]]) -> ShareLink:
    return ShareLink(row.id, row.session_id, row.until_seq, row.created_us, row.until_us, row.revoked_us)


def _put(connection: sa.Connection, *, link: ShareLink, digest: str) -> None:
    check_session(connection, link.session_id)
    connection.execute(
        sa.delete(share_link_table).where(_link.until_us < link.created_us - KEPT_DAYS * _US_PER_DAY)
    )
    present = _read_all(connection, session_id=link.session_id)
    if any(each.id == link.id for each in present):
        # The first attempt was committed, and its answer was lost.
        return
    states = {each.id: each.state(link.created_us) for each in present}
    if list(states.values()).count("open") >= MOST_LINKS:
        raise TooManyLinksError(f"{MOST_LINKS} links to this session are open: revoke one of them first")
    ended = [id_ for id_, state in states.items() if state != "open"]
    connection.execute(sa.delete(share_link_table).where(_link.id.in_(ended[MOST_ENDED:])))
    connection.execute(
        sa.insert(share_link_table).values(
            id=link.id,
            session_id=link.session_id,
            digest=digest,
            until_seq=link.until_seq,
            created_us=link.created_us,
            until_us=link.until_us,
            revoked_us=None,
        )
    )


def _read_all(connection: sa.Connection, *, session_id: str) -> list[ShareLink]:
    rows = connection.execute(
        sa.select(share_link_table)
        .where(_link.session_id == session_id)
        .order_by(_link.created_us.desc(), _link.id)
    )
    return [_link_of(row) for row in rows]


def _read(connection: sa.Connection, *, link_id: str) -> tuple[ShareLink, str] | None:
    row = connection.execute(sa.select(share_link_table).where(_link.id == link_id)).one_or_none()
    return None if row is None else (_link_of(row), row.digest)


def _revoke(connection: sa.Connection, *, session_id: str, link_id: str, now_us: int) -> bool:
    connection.execute(
        sa.update(share_link_table)
        .where(_link.session_id == session_id, _link.id == link_id, _link.revoked_us.is_(None))
        .values(revoked_us=now_us)
    )
    found = sa.select(_link.id).where(_link.session_id == session_id, _link.id == link_id)
    return connection.scalar(found) is not None
