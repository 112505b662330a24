"""Comments of readers on a session, each at a time of it.

Comments are no events: they are written without a claim, also during a call of another process, and change
nothing of the conversation. They are not exported, and are deleted with their session.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.core.errors import StoreError
from parley.session_store.callers import check_session
from parley.session_store.schema import session_comment_table
from parley.session_store.store import SessionStore

# Comments of one session.
MOST_COMMENTS = 500
_comment = session_comment_table.c


class TooManyCommentsError(StoreError):
    """A session has as many comments as it may have."""


@dataclass(frozen=True, slots=True)
class SessionComment:
    """Comment of a reader.

    Attributes:
        id: 32 hexadecimal digits.
        at_us: time of the session that it is about, on the session clock.
        created_us: wall clock at which it was written, microseconds since the Unix epoch.
        author: digest of the client that wrote it (``core.grants``); empty where it had none.
        name: shown name of the author.
        text: as it was typed.
    """

    id: str
    at_us: int
    created_us: int
    author: str
    name: str
    text: str


class SessionComments:
    """Comments on all sessions of a store.

    Args:
        store: that holds them.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def add(
        self,
        session_id: str,
        *,
        at_us: int,
        author: str,
        name: str,
        text: str,
        replaces: Collection[str] = (),
    ) -> SessionComment:
        """Add a comment and return it.

        Args:
            session_id: of the session.
            at_us, author, name, text: of the comment.
            replaces: ids of comments that are deleted for it, or stay where it is refused.

        Raises:
            TooManyCommentsError: the session has ``MOST_COMMENTS``.
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        made = SessionComment(secrets.token_hex(16), at_us, self._store.wall_us(), author, name, text)
        await self._store.transact(partial(_put, session_id=session_id, comment=made, replaces=replaces))
        return made

    async def of_session(self, session_id: str) -> list[SessionComment]:
        """Return the comments on a session, in order of the time that they are about.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        return await self._store.look(partial(_read, session_id=session_id))

    async def find(self, session_id: str, comment_id: str) -> SessionComment | None:
        """Return one comment on a session; None when there is none.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        found = await self._store.look(partial(_read, session_id=session_id, comment_id=comment_id))
        return found[0] if found else None

    async def delete(self, session_id: str, comment_id: str) -> None:
        """Delete a comment, if it is there.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        await self._store.transact(partial(_drop, session_id=session_id, comment_id=comment_id))


def _put(
    connection: sa.Connection, *, session_id: str, comment: SessionComment, replaces: Collection[str]
) -> None:
    check_session(connection, session_id)
    for comment_id in replaces:
        _drop(connection, session_id=session_id, comment_id=comment_id)
    of_session = sa.select(sa.func.count()).where(
        _comment.session_id == session_id, _comment.id != comment.id
    )
    if (connection.scalar(of_session) or 0) >= MOST_COMMENTS:
        raise TooManyCommentsError(f"this session has {MOST_COMMENTS} comments already")
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    # A second attempt, after the answer to the first was lost, changes nothing.
    connection.execute(
        made.insert(session_comment_table)
        .values(
            id=comment.id,
            session_id=session_id,
            at_us=comment.at_us,
            created_us=comment.created_us,
            author=comment.author,
            name=comment.name,
            text=comment.text,
        )
        .on_conflict_do_nothing()
    )


def _read(
    connection: sa.Connection, *, session_id: str, comment_id: str | None = None
) -> list[SessionComment]:
    query = sa.select(session_comment_table).where(_comment.session_id == session_id)
    if comment_id is not None:
        query = query.where(_comment.id == comment_id)
    rows = connection.execute(query.order_by(_comment.at_us, _comment.created_us, _comment.id))
    return [SessionComment(row.id, row.at_us, row.created_us, row.author, row.name, row.text) for row in rows]


def _drop(connection: sa.Connection, *, session_id: str, comment_id: str) -> None:
    connection.execute(
        sa.delete(session_comment_table).where(_comment.session_id == session_id, _comment.id == comment_id)
    )
