"""Two gateways that share a line, with real workers over sockets."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from parley.core.errors import CapacityError, EngineBusyError
from parley.models.llm.hosted.engine import PoolLlmSettings
from parley.models.llm.hosted.session_cache import CachedDialogue
from parley.models.omni import Preparation
from parley.serving.pool.dialogues import DialogueWorkers
from parley.serving.pool.pool import Pool
from parley.serving.pool.shared.lines import SharedLines
from parley.serving.scheduler.types import QueuePlace
from parley.session_store.settings import StoreSettings
from tests.fakes.omni import ScriptedOmniHost
from tests.fakes.worker import SECRET, SECRET_ENV, Served, worker
from tests.peers.postgres import postgres, postgres_url
from tests.peers.shared_pool import QUICK, prepared, until
from tests.peers.test_pool import at_worker, ready, settings, want
from tests.unit.serving.pool.test_dialogues import first, report

# Fixtures.
__all__ = ["postgres", "postgres_url"]

pytestmark = pytest.mark.paired


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)


@pytest.fixture
def served() -> Iterator[list[Served]]:
    with ExitStack() as exits:
        yield [exits.enter_context(worker(ScriptedOmniHost(), name=name)) for name in ("v", "w")]


async def test_callers_of_two_gateways_wait_in_one_line_for_the_same_workers(
    served: list[Served], postgres_url: str
) -> None:
    await prepared(postgres_url)
    opened = partial(Pool, settings(served, shared=QUICK), store=StoreSettings(url=postgres_url))
    async with opened() as here, opened() as there:
        await ready(here, 2)
        await ready(there, 2)
        placed = await here.acquire(want("mine"))
        engine = await asyncio.to_thread(at_worker, placed)
        await asyncio.to_thread(engine.prepare, Preparation())
        other = await there.acquire(want())
        assert other.lease.worker != placed.lease.worker
        places: list[QueuePlace] = []
        waits = asyncio.create_task(there.acquire(want("first"), on_place=places.append))
        await until(lambda: [each.session_id for each in here.places()] == ["first"])
        later = asyncio.create_task(here.acquire(want("second")))
        await until(lambda: [each.session_id for each in there.places()] == ["first", "second"])
        assert places[-1].position == 1 and places[-1].wait_ms is not None
        assert {each.lease.session_id for each in there.running()} >= {"mine"}
        assert here.waiting == there.waiting == 2
        await asyncio.to_thread(engine.cleanup)
        here.release(placed, well=True)
        granted = await asyncio.wait_for(waits, 60)
        assert granted.lease.worker == placed.lease.worker and not later.done()
        there.release(other, well=True)
        assert (await asyncio.wait_for(later, 60)).lease.worker == other.lease.worker
        await until(lambda: here.places() == there.places() == [])


async def test_a_worker_that_a_stranger_holds_is_tried_once_until_it_is_free(
    served: list[Served], postgres_url: str
) -> None:
    await prepared(postgres_url)
    shared = settings(served[:1], shared=QUICK)
    async with (
        Pool(settings(served[:1])) as stranger,
        Pool(shared, store=StoreSettings(url=postgres_url)) as here,
    ):
        await ready(stranger, 1)
        taken = await stranger.acquire(want())
        engine = await asyncio.to_thread(at_worker, taken)
        await until(lambda: here.workers()["v"].get("state") == "duplex_active")
        placed = await here.acquire(want())
        with pytest.raises(CapacityError):
            await asyncio.to_thread(at_worker, placed)
        here.lease_rejected(placed, busy=True)
        again = asyncio.create_task(here.regain(placed))
        reports = here.workers()["v"]
        # More reports of a worker that is still held bring no grant.
        await until(lambda: here.workers()["v"] is not reports)
        assert not again.done() and here.waiting == 1
        await asyncio.to_thread(engine.cleanup)
        stranger.release(taken, well=True)
        placed = await asyncio.wait_for(again, 60)
        here.release(placed, well=True)


async def test_memory_for_language_models_is_counted_over_gateways(postgres_url: str) -> None:
    await prepared(postgres_url)
    store = StoreSettings(url=postgres_url)
    lines = [SharedLines(QUICK, store) for _ in range(2)]
    chosen = PoolLlmSettings(queue_timeout_s=30)
    here, there = (DialogueWorkers(chosen, first, each) for each in lines)
    briefly = DialogueWorkers(PoolLlmSettings(queue_timeout_s=0.5), first, lines[1])
    for each in lines:
        each.start()
    try:
        for made in (here, there, briefly):
            made.on_state("w", "ws://w", report(2, streams=1), None)
        for session, made in (("a", here), ("b", there)):
            await asyncio.to_thread(made.lease_of, session, 1, CachedDialogue())
        with pytest.raises(EngineBusyError, match="in use"):
            await asyncio.to_thread(briefly.lease_of, "c", 1, CachedDialogue())
        waits = asyncio.create_task(asyncio.to_thread(there.lease_of, "d", 1, CachedDialogue()))
        await until(lambda: here.waiting == 1)
        here.ended("a", 1)
        url, _ = await asyncio.wait_for(waits, 60)
        assert url == "ws://w" and there.memory()["w"].conversations == 2
    finally:
        for made in (here, there, briefly):
            made.close()
        await asyncio.gather(*(each.close() for each in lines))
