"""Who waits for new events of a session, and how word of them arrives.

A commit of this process wakes its followers at once. What other processes write is announced by PostgreSQL
and found by polling otherwise; an announcement says which session, and the follower reads.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from loguru import logger

from core.errors import StoreUnavailableError
from session_store.database import Database

RECONNECT_S = 1.0


class Followers:
    """The followers of a process, by session."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def of(self, session_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when there may be something new."""
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
        """Tell the followers of these sessions."""
        for session_id in session_ids:
            for news in self._waiting.get(session_id, ()):
                news.set()

    def wake_all(self) -> None:
        """Tell everybody."""
        self.wake(list(self._waiting))


async def listen(database: Database, followers: Followers) -> None:
    """Wake followers by what other processes announce, until cancelled."""
    while True:
        try:
            await database.listen(lambda words: followers.wake([words.partition(" ")[0]]))
        except StoreUnavailableError as error:
            logger.warning(f"session store: followers poll: {error}")
        # Something may have been said meanwhile.
        followers.wake_all()
        await asyncio.sleep(RECONNECT_S)
