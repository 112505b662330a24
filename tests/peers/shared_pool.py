"""Gateways of a shared pool in one process, over a real database or Ray cluster."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from parley.evals.bench.shared_pool.processes import end_pool
from parley.serving.pool.settings import RaySettings, SharedPoolSettings
from parley.serving.pool.shared.lines import SharedLines
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.scheduler import SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    LeaseGranted,
    LeaseLost,
    RefusalReason,
    Task,
    WorkerCapacity,
    WorkerRequest,
)
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionStore

QUICK = SharedPoolSettings(lease_s=1.5)
WAIT_S = 60.0


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def until(holds: Callable[[], object], within_s: float = WAIT_S) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


class Gateway:
    """Gateway that records the effects of its line."""

    def __init__(self, place: str | RaySettings, settings: SharedPoolSettings, **bounds: object) -> None:
        self.effects: list[Effect] = []
        if isinstance(place, str):
            self.lines = SharedLines(settings, StoreSettings(url=place))
        else:
            self.lines = SharedLines(settings.model_copy(update={"ray": place}), None)
        self.scheduler = self.lines.scheduler(
            "omni",
            SchedulerSettings.model_validate(bounds),
            self.effects.extend,
            eta=Eta(),
            now_ms=now_ms,
        )

    def reach(self, worker: str, *, life: str = "1", slots: int = 1, kv_bytes: int | None = None) -> None:
        self.take(self.scheduler.worker_up(WorkerCapacity(worker, life, slots, kv_bytes), now_ms()))

    def ask(self, ticket: str, task: Task = Task.OMNI_DUPLEX, **more: object) -> None:
        want = WorkerRequest(ticket, f"session of {ticket}", task, **more)  # type: ignore[arg-type]
        self.take(self.scheduler.ask(want, now_ms()))

    def release(self, ticket: str) -> None:
        self.take(self.scheduler.release(ticket, now_ms(), well=True))

    def take(self, effects: list[Effect]) -> None:
        self.effects.extend(effects)

    @property
    def granted(self) -> list[tuple[str, str]]:
        return [
            (each.ticket_id, each.lease.worker) for each in self.effects if isinstance(each, LeaseGranted)
        ]

    @property
    def lost(self) -> list[str]:
        return [each.ticket_id for each in self.effects if isinstance(each, LeaseLost)]

    @property
    def refused(self) -> list[tuple[str, RefusalReason]]:
        return [
            (each.ticket_id, each.reason)
            for each in self.effects
            if not isinstance(each, LeaseGranted | LeaseLost)
        ]

    @property
    def line(self) -> list[str]:
        return [place.ticket_id for place in self.scheduler.places(now_ms())]


async def prepared(place: str | RaySettings) -> None:
    """Migrate a database; a cluster needs nothing."""
    if not isinstance(place, str):
        return
    url = place
    await (await SessionStore.open(StoreSettings(url=url))).close()


@asynccontextmanager
async def gateways(
    place: str | RaySettings, settings: SharedPoolSettings = QUICK, **bounds: object
) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Run two gateways of one line."""
    await prepared(place)
    if not isinstance(place, str):
        # A cluster is not new for each test, as a database is.
        settings = settings.model_copy(update={"name": f"{settings.name}-{secrets.token_hex(4)}"})
    here, there = Gateway(place, settings, **bounds), Gateway(place, settings, **bounds)
    here.lines.start()
    there.lines.start()
    try:
        yield here, there
    finally:
        await asyncio.gather(here.lines.close(), there.lines.close())
        if not isinstance(place, str):
            await end_pool(settings.model_copy(update={"ray": place}))
