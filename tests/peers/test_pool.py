"""A pool and its workers, over real sockets and processes."""

import asyncio
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from parley.core.errors import CapacityError
from parley.models.omni import Preparation
from parley.models.omni.hosted.engine import HostedOmniSettings, WorkerOmniEngine
from parley.runtime.engine_hosting.messages import EngineMessage
from parley.serving.pool.pool import Assignment, AssignmentRefused, Pool
from parley.serving.pool.process import WorkerProcess
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from parley.serving.scheduler.scheduler import SchedulerSettings
from parley.serving.scheduler.types import QueuePlace, RefusalReason, Task, WorkerRequest, WorkerState
from tests.fakes.omni import ScriptedOmniHost
from tests.fakes.worker import SECRET, SECRET_ENV, Served, worker
from tests.peers.minicpm_server import minicpm_server

pytestmark = pytest.mark.paired

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)


@pytest.fixture
def two() -> Iterator[list[Served]]:
    """Run two workers around scripted engines."""
    with ExitStack() as exits:
        yield [exits.enter_context(worker(ScriptedOmniHost(), name=name)) for name in ("v", "w")]


def settings(served: list[Served], **more: Any) -> PoolTuning:
    workers = [WorkerSpec(name=each.server.settings.name, url=each.url) for each in served]
    return PoolTuning.model_validate({"workers": workers, "secret_env": SECRET_ENV, **more})


def want(session: str = "", **more: Any) -> WorkerRequest:
    number = next(NUMBERS)
    return WorkerRequest(f"ticket {number}", session or f"session {number}", Task.OMNI_DUPLEX, **more)


class There:
    """Conversation that goes where it was placed."""

    def __init__(self, placed: Assignment) -> None:
        self._placed = placed

    def lease(self) -> tuple[str, EngineMessage]:
        return self._placed.url, self._placed.first


def at_worker(placed: Assignment) -> WorkerOmniEngine:
    """Return the conversation's engine after it has taken the lease."""
    chosen = HostedOmniSettings(url=placed.url, secret_env=SECRET_ENV, open_timeout_s=1, unit_timeout_s=1)
    return WorkerOmniEngine(There(placed), chosen)


def process_of(pool: Pool, worker: str) -> WorkerProcess:
    process = pool.process(worker)
    assert process is not None
    return process


async def until(holds: Any, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


async def ready(pool: Pool, count: int) -> None:
    await until(lambda: sum(facts.get("state") == "idle" for facts in pool.workers().values()) == count, 20)


async def test_a_conversation_goes_to_the_worker_that_it_was_given(two: list[Served]) -> None:
    async with Pool(settings(two)) as pool:
        await ready(pool, 2)
        placed = await pool.acquire(want())
        engine = await asyncio.to_thread(at_worker, placed)
        await asyncio.to_thread(engine.prepare, Preparation())
        await until(lambda: pool.workers()[placed.lease.worker]["state"] == "duplex_active")
        await asyncio.to_thread(engine.cleanup)
        pool.release(placed, well=True)
        assert pool.running() == []


async def test_a_free_worker_is_granted_without_waiting_for_its_next_report(two: list[Served]) -> None:
    async with Pool(settings(two, health_ms=60_000)) as pool:
        await ready(pool, 2)
        async with asyncio.timeout(30):
            for _ in range(100):
                pool.release(await pool.acquire(want()), well=True)


async def test_who_waits_knows_where_it_stands_and_is_served_in_order(two: list[Served]) -> None:
    async with Pool(settings(two[:1])) as pool:
        await ready(pool, 1)
        first = await pool.acquire(want())
        received: list[list[QueuePlace]] = [[], []]
        waiting = [
            asyncio.create_task(pool.acquire(want(), on_place=received[number].append)) for number in range(2)
        ]
        await until(lambda: all(received))
        assert [places[-1].position for places in received] == [1, 2]
        # 90 s is the assumed length of such a conversation until others have been measured.
        assert received[0][-1].wait_ms == pytest.approx(90_000, abs=500)
        pool.release(first, well=True)
        second = await waiting[0]
        await until(lambda: received[1][-1].position == 1)
        pool.release(second, well=True)
        pool.release(await waiting[1], well=True)


async def test_who_leaves_the_queue_frees_the_place_at_once(two: list[Served]) -> None:
    async with Pool(settings(two[:1])) as pool:
        await ready(pool, 1)
        first = await pool.acquire(want())
        leaves, stays = (asyncio.create_task(pool.acquire(want())) for _ in range(2))
        await until(lambda: len(pool.places()) == 2)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        assert len(pool.places()) == 1
        pool.release(first, well=True)
        pool.release(await stays, well=True)


async def test_an_operator_takes_someone_out_who_is_told(two: list[Served]) -> None:
    async with Pool(settings(two[:1])) as pool:
        await ready(pool, 1)
        first = await pool.acquire(want())
        waits = asyncio.create_task(pool.acquire(want()))
        await until(pool.places)
        assert pool.evict(pool.places()[0].ticket_id) and not pool.evict("nobody's")
        with pytest.raises(AssignmentRefused, match="an operator") as refused:
            await waits
        assert refused.value.reason is RefusalReason.CANCELLED
        pool.release(first, well=True)


async def test_a_full_queue_says_how_many_wait(two: list[Served]) -> None:
    async with Pool(settings(two[:1], scheduler={"max_waiting": 0})) as pool:
        await ready(pool, 1)
        first = await pool.acquire(want())
        with pytest.raises(AssignmentRefused, match="the queue is full .0 wait"):
            await pool.acquire(want())
        pool.release(first, well=True)


async def test_a_worker_that_another_gateway_has_is_not_granted(two: list[Served]) -> None:
    async with Pool(settings(two)) as here, Pool(settings(two)) as there:
        await ready(here, 2)
        await ready(there, 2)
        placed = await here.acquire(want())
        engine = await asyncio.to_thread(at_worker, placed)
        name = placed.lease.worker
        await until(lambda: there.workers()[name]["state"] == "duplex_active")
        other = await there.acquire(want())
        assert other.lease.worker != name
        waits = asyncio.create_task(there.acquire(want()))
        await until(there.places)
        await asyncio.to_thread(engine.cleanup)
        here.release(placed, well=True)
        async with asyncio.timeout(2):
            assert (await waits).lease.worker == name


async def test_1000_acquires_of_two_gateways_with_random_cancels_never_share_a_worker(
    two: list[Served],
) -> None:
    """Acquire 1,000 times from two gateways, with random cancellations.

    Each gateway acts on its own view, and the worker decides.
    """
    draw = random.Random(6)
    has: Counter[str] = Counter()
    taken = refused = cancelled = 0

    async def call(pool: Pool) -> None:
        nonlocal taken, refused, cancelled
        try:
            async with asyncio.timeout(draw.choice((0.001, 0.02, 60))):
                placed = await pool.acquire(want())
        except TimeoutError:
            cancelled += 1
            return
        try:
            while True:
                try:
                    engine = await asyncio.to_thread(at_worker, placed)
                    break
                except CapacityError:
                    refused += 1
                    pool.lease_rejected(placed, busy=True)
                    placed = await pool.regain(placed)
            has[placed.lease.worker] += 1
            assert has[placed.lease.worker] == 1
            taken += 1
            await asyncio.sleep(draw.random() / 1_000)
            has[placed.lease.worker] -= 1
            await asyncio.to_thread(engine.cleanup)
        finally:
            pool.release(placed, well=True)

    async with Pool(settings(two)) as here, Pool(settings(two)) as there:
        await ready(here, 2)
        await ready(there, 2)
        async with asyncio.timeout(60), asyncio.TaskGroup() as calls:
            for number in range(1_000):
                calls.create_task(call((here, there)[number % 2]))
                if number % 5 == 0:
                    await asyncio.sleep(draw.random() / 500)
        assert here.running() == there.running() == [] and here.places() == there.places() == []
    assert taken + cancelled == 1_000 and taken > 200 and cancelled > 200


# Workers that are started here.


@pytest.fixture
def minicpm() -> Iterator[str]:
    with minicpm_server() as server:
        yield server.url


def started(url: str, count: int = 1, **more: Any) -> PoolTuning:
    workers = [
        WorkerSpec(name=f"w{number}", engine="minicpm_worker", settings={"url": url})
        for number in range(count)
    ]
    return PoolTuning.model_validate({"workers": workers, **more})


async def test_a_worker_that_is_killed_is_told_and_the_conversation_goes_on_at_another(minicpm: str) -> None:
    async with Pool(started(minicpm, 2)) as pool:
        await ready(pool, 2)
        placed = await pool.acquire(want())
        pid = process_of(pool, placed.lease.worker).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(2):
            await placed.lost.wait()
            again = await pool.regain(placed)
        assert again.lease.worker != placed.lease.worker
        pool.release(again, well=True)
        # The dead worker is back again.
        await ready(pool, 2)
        assert process_of(pool, placed.lease.worker).pid not in (None, pid)


async def test_a_worker_that_is_stopped_is_not_granted_and_is_replaced(minicpm: str) -> None:
    async with Pool(started(minicpm, 2, silent_ms=400, dead_ms=1_500)) as pool:
        await ready(pool, 2)
        pid = process_of(pool, "w0").pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: pool.standing("w0") is WorkerState.SUSPECT, 1)
        placed = await pool.acquire(want())
        assert placed.lease.worker == "w1"
        pool.release(placed, well=True)
        await until(lambda: process_of(pool, "w0").pid not in (None, pid), 10)
        await ready(pool, 2)


async def test_what_was_started_here_ends_with_the_pool(minicpm: str) -> None:
    async with Pool(started(minicpm)) as pool:
        await ready(pool, 1)
        pid = process_of(pool, "w0").pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    # The worker was notified, and had the time to return its engine.
    assert process_of(pool, "w0").status == 0


async def test_a_worker_that_is_told_to_end_is_not_started_again(minicpm: str) -> None:
    async with Pool(started(minicpm, 2, retry_ms=50)) as pool:
        await ready(pool, 2)
        await pool.drain("w0")
        await until(lambda: process_of(pool, "w0").status == 0)
        # The task that supervised it has ended as well.
        await until(lambda: "pool.w0" not in {task.get_name() for task in asyncio.all_tasks()})
        assert process_of(pool, "w0").pid is None and process_of(pool, "w0").starts == 1
        assert (await pool.acquire(want())).lease.worker == "w1"


async def test_a_watch_that_breaks_takes_nobodys_call_away(two: list[Served]) -> None:
    async with Pool(settings(two, retry_ms=50)) as pool:
        await ready(pool, 2)
        placed = await pool.acquire(want())
        engine = await asyncio.to_thread(at_worker, placed)
        name = placed.lease.worker
        broken = pool._kept[name].watch._socket
        assert broken is not None
        broken.transport.abort()
        await until(lambda: pool._kept[name].watch._socket not in (None, broken))
        await until(lambda: pool.workers()[name].get("state") == "duplex_active")
        assert not placed.lost.is_set()
        await asyncio.to_thread(engine.prepare, Preparation())
        await asyncio.to_thread(engine.cleanup)
        pool.release(placed, well=True)


async def test_a_callback_that_raises_harms_nobody(two: list[Served]) -> None:
    def raises(_place: QueuePlace) -> None:
        raise RuntimeError("somebody's defect")

    async with Pool(settings(two[:1])) as pool:
        await ready(pool, 1)
        placed = await pool.acquire(want())
        waits = asyncio.create_task(pool.acquire(want(), on_place=raises))
        await until(pool.places)
        pool.release(placed, well=True)
        pool.release(await waits, well=True)
        assert pool.running() == []


async def test_a_pool_that_closes_tells_those_who_lost_a_worker(two: list[Served]) -> None:
    pool = Pool(settings(two[:1]))
    async with pool:
        await ready(pool, 1)
        placed = await pool.acquire(want())
        pool.failed(placed)
        assert placed.lost.is_set()
    with pytest.raises(AssignmentRefused, match="the server is stopping"):
        await pool.regain(placed)


async def test_a_worker_that_cannot_load_is_no_storm() -> None:
    spec = WorkerSpec(name="w", engine="minicpm_worker", python="/bin/false")
    chosen = PoolTuning(workers=(spec,), retry_ms=200, scheduler=SchedulerSettings(no_worker_ms=300))
    began_s = time.monotonic()
    async with Pool(chosen) as pool:
        with pytest.raises(AssignmentRefused, match="no worker is available"):
            await pool.acquire(want())
        await until(lambda: process_of(pool, "w").starts == 4)
        # It ends at once: these are the waits between its restarts.
        assert time.monotonic() - began_s >= 0.2 + 0.4 + 0.8
