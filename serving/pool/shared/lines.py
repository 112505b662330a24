"""Shared lines of one gateway: one for full-duplex engines, one for each row of language models.

The settings decide what holds them: PostgreSQL (``sync``) or Ray (``on_ray``). Owns their tasks, from
``start`` to ``close``. A line that is requested later is started then.
"""

import asyncio
import threading
from collections.abc import Callable

import sqlalchemy as sa

from parley.core.errors import ConfigError
from parley.serving.pool.on_ray.link import RayLink
from parley.serving.pool.on_ray.sync import RayLineSync
from parley.serving.pool.on_ray.worker import RayWorker
from parley.serving.pool.settings import PoolTuning, SharedPoolSettings, WorkerSpec
from parley.serving.pool.shared.scheduler import SharedScheduler
from parley.serving.pool.shared.sync import LineSync
from parley.serving.pool.shared.turns import LineTask
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import Effect
from parley.session_store.settings import StoreSettings
from parley.telemetry.settings import TraceSettings

AnyScheduler = Scheduler | SharedScheduler


class SharedLines:
    """Lines of one gateway in one database or cluster. ``scheduler`` may be called in any thread.

    Args:
        settings: of the shared pool.
        store: whose database holds them, unless a cluster does; None: there is none.

    Raises:
        ConfigError: the store is not a PostgreSQL database, or Ray is not installed.
    """

    def __init__(self, settings: SharedPoolSettings, store: StoreSettings | None) -> None:
        self._settings = settings
        self._link = None if settings.ray is None else RayLink(settings.ray)
        self._url = None if settings.ray is not None else _postgres_url(store)
        self._lock = threading.Lock()
        self._syncs: list[LineTask] = []
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
        """Return the scheduler of a line; the arguments are those of ``SharedScheduler`` and ``LineTask``."""
        scheduler = SharedScheduler(settings, eta=eta, now_ms=now_ms)
        sync = self._sync(line, scheduler, on_effects)
        with self._lock:
            self._syncs.append(sync)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(sync.start)
        return scheduler

    def ray_worker(
        self,
        spec: WorkerSpec,
        settings: PoolTuning,
        on_url: Callable[[str | None], None],
        traces: TraceSettings | None,
    ) -> RayWorker:
        """Return a worker that the cluster places; the arguments are those of ``RayWorker``."""
        assert self._link is not None
        return RayWorker(self._link, spec, settings, on_url=on_url, traces=traces)

    def start(self) -> None:
        """Start the lines that there are, on the running loop."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._link is not None:
                self._link.start()
            for sync in self._syncs:
                sync.start()

    async def close(self) -> None:
        """End the tasks, and leave the lines."""
        with self._lock:
            syncs, self._syncs, self._loop = self._syncs, [], None
        await asyncio.gather(*(sync.close() for sync in syncs))
        if self._link is not None:
            await self._link.close()

    def _sync(
        self, line: str, scheduler: SharedScheduler, on_effects: Callable[[list[Effect]], None]
    ) -> LineTask:
        if self._link is not None:
            return RayLineSync(self._link, self._settings, line, scheduler, on_effects)
        assert self._url is not None
        return LineSync(self._url, self._settings, line, scheduler, on_effects)


def _postgres_url(store: StoreSettings | None) -> sa.URL:
    url = None if store is None else store.address()
    if url is None or url.get_backend_name() != "postgresql":
        raise ConfigError(
            "workers.shared needs a PostgreSQL database for the sessions (remembering.store.url or "
            "PARLEY_STORE_URL), or a Ray cluster (workers.shared.ray)"
        )
    return url
