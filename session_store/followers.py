"""Followers of sessions, and the notifications that wake them.

A commit of this process wakes its followers at once. PostgreSQL announces the writes of other processes;
otherwise they are found by polling. An announcement names the session, and the follower reads its events.

A deletion on request is announced apart from commits (``SessionDeletions``), for what is kept of sessions
outside of the store. One of another process is missed while the connection that listens is lost.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import StoreUnavailableError
from parley.session_store.committing import ERASED
from parley.session_store.database import Database

RECONNECT_S = 1.0
# Deletions of this process whose announcements come back from the database.
MOST_OWN = 1_000


@dataclass(frozen=True, slots=True)
class SessionDeleted:
    """Deletion of a session on request; retention is none.

    Attributes:
        session_id: of the session.
        is_elsewhere: another process has deleted it.
    """

    session_id: str
    is_elsewhere: bool


class SessionDeletions:
    """Deletions of sessions on request, in this process and in those that share its database."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[SessionDeleted], None]] = []
        # Deletions of this process; true once the database has announced one.
        self._own: BoundedDict[str, bool] = BoundedDict(MOST_OWN)

    def subscribe(self, on_deleted: Callable[[SessionDeleted], None]) -> None:
        """Have a function called with each deletion; it must not block, and must accept repetitions."""
        self._subscribers.append(on_deleted)

    @contextmanager
    def deleting(self, session_id: str) -> Iterator[None]:
        """Announce a deletion of this process when the block ends without an error.

        The announcement of the database may come before the answer to the commit, and is no other deletion.
        When the block fails, it was another process's.
        """
        self._own[session_id] = False
        try:
            yield
        except BaseException:
            if self._own.pop(session_id, False):
                self._notify(SessionDeleted(session_id, is_elsewhere=True))
            raise
        self._notify(SessionDeleted(session_id, is_elsewhere=False))

    def announced(self, words: str) -> None:
        """Announce the deletion that the database reports, where it is one of another process."""
        session_id, _, what = words.partition(" ")
        if what != ERASED:
            return
        if session_id in self._own:
            self._own[session_id] = True
        else:
            self._notify(SessionDeleted(session_id, is_elsewhere=True))

    def _notify(self, deleted: SessionDeleted) -> None:
        for on_deleted in self._subscribers:
            on_deleted(deleted)


class SessionFollowers:
    """Followers in this process, by session."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def of(self, session_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the session may have new events."""
        news = asyncio.Event()
        waiting = self._waiting.setdefault(session_id, set())
        waiting.add(news)
        try:
            yield news
        finally:
            waiting.discard(news)
            if not waiting and self._waiting.get(session_id) is waiting:
                del self._waiting[session_id]

    def wake(self, session_ids: Iterable[str]) -> None:
        """Notify the followers of these sessions."""
        for session_id in session_ids:
            for news in self._waiting.get(session_id, ()):
                news.set()

    def wake_all(self) -> None:
        """Notify all followers."""
        self.wake(list(self._waiting))


async def listen(database: Database, followers: SessionFollowers, deletions: SessionDeletions) -> None:
    """Wake followers, and announce deletions, on announcements of other processes; until cancelled."""

    def heard(words: str) -> None:
        followers.wake([words.partition(" ")[0]])
        deletions.announced(words)

    while True:
        try:
            await database.listen(heard)
        except StoreUnavailableError as error:
            logger.warning(f"session store: followers poll: {error}")
        # Announcements may have been missed meanwhile.
        followers.wake_all()
        await asyncio.sleep(RECONNECT_S)
