"""Shared lines of one gateway: one for full-duplex engines, one for each row of language models.

Owns their tasks, from ``start`` to ``close``. A line that is requested later is started then.
"""

import asyncio
import threading
from collections.abc import Callable

from parley.core.errors import ConfigError
from parley.serving.pool.settings import SharedPoolSettings
from parley.serving.pool.shared.scheduler import SharedScheduler
from parley.serving.pool.shared.sync import LineSync
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import Effect
from parley.session_store.settings import StoreSettings

AnyScheduler = Scheduler | SharedScheduler


class SharedLines:
    """Lines of one gateway in one database. ``scheduler`` may be called in any thread.

    Args:
        settings: of the shared pool.
        store: whose database holds them; None: there is none.

    Raises:
        ConfigError: the store is not a PostgreSQL database.
    """

    def __init__(self, settings: SharedPoolSettings, store: StoreSettings | None) -> None:
        url = None if store is None else store.address()
        if url is None or url.get_backend_name() != "postgresql":
            raise ConfigError(
                "workers.shared needs a PostgreSQL database for the sessions (remembering.store.url or "
                "PARLEY_STORE_URL)"
            )
        self._url = url
        self._settings = settings
        self._lock = threading.Lock()
        self._syncs: list[LineSync] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def scheduler(
        self,
        line: str,
        settings: SchedulerSettings,
        on_effects: Callable[[list[Effect]], None],
        *,
        eta: Eta,
        now_ms: Callable[[], int],
    ) -> SharedScheduler:
        """Return the scheduler of a line; the arguments are those of ``SharedScheduler`` and ``LineSync``."""
        scheduler = SharedScheduler(settings, eta=eta, now_ms=now_ms)
        sync = LineSync(self._url, self._settings, line, scheduler, on_effects)
        with self._lock:
            self._syncs.append(sync)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(sync.start)
        return scheduler

    def start(self) -> None:
        """Start the lines that there are, on the running loop."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            for sync in self._syncs:
                sync.start()

    async def close(self) -> None:
        """End the tasks, and leave the lines."""
        with self._lock:
            syncs, self._syncs, self._loop = self._syncs, [], None
        await asyncio.gather(*(sync.close() for sync in syncs))
