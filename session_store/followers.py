"""Followers of sessions, and the notifications that wake them.

A commit of this process wakes its followers at once. PostgreSQL announces the writes of other processes;
otherwise they are found by polling. An announcement names the session, and the follower reads its events.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from loguru import logger

from parley.core.errors import StoreUnavailableError
from parley.session_store.database import Database

RECONNECT_S = 1.0


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


async def listen(database: Database, followers: SessionFollowers) -> None:
    """Wake followers on announcements of other processes, until cancelled."""
    while True:
        try:
            await database.listen(lambda words: followers.wake([words.partition(" ")[0]]))
        except StoreUnavailableError as error:
            logger.warning(f"session store: followers poll: {error}")
        # Announcements may have been missed meanwhile.
        followers.wake_all()
        await asyncio.sleep(RECONNECT_S)
