"""Gateways that share a line on Ray, with workers that Ray places. The engines speak to a real server."""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import psutil
import pytest

from parley.core.errors import EngineError
from parley.evals.bench.shared_pool.__main__ import kept_order
from parley.models.omni import Preparation
from parley.models.omni.hosted.engine import HostedOmniSettings, WorkerOmniEngine
from parley.serving.pool.pool import Assignment, Pool
from parley.serving.pool.settings import PoolTuning, RaySettings
from parley.serving.scheduler.types import Task, WorkerRequest
from tests.peers import test_shared_pool
from tests.peers.minicpm_server import minicpm_server
from tests.peers.ray.environment import SECRET_ENV, LocalCluster
from tests.peers.test_pool import There, until
from tests.worker_process import ROOT

pytestmark = [pytest.mark.alone, pytest.mark.packages, pytest.mark.asyncio(loop_scope="module")]

NUMBERS = itertools.count()
# Ray notices the end of an actor or node after seconds, and starts another in about as many.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with minicpm_server() as server:
        yield server.url


def want(session: str) -> WorkerRequest:
    return WorkerRequest(f"ticket {next(NUMBERS)}", session, Task.OMNI_DUPLEX)


class Site:
    """Two gateways of a line."""

    def __init__(self, cluster: LocalCluster, engine: str, places: tuple[str, ...]) -> None:
        self.cluster = cluster
        self.name = f"pool-{secrets.token_hex(4)}"
        workers = [
            {
                "name": place,
                "engine": "minicpm_worker",
                "settings": {"url": engine},
                "ray": {"resources": {place: 1}},
            }
            for place in places
        ]
        ray = {"address": cluster.address, "python": cluster.python}
        shared = {"name": self.name, "lease_s": 3.0, "ray": ray}
        self.settings = PoolTuning.model_validate({"workers": workers, "shared": shared})
        self.pools: list[Pool] = []
        # Order in which callers got a worker, and who has each now.
        self.order: list[str] = []
        self.holders: dict[str, str] = {}

    async def call(self, pool: Pool, session: str, over: asyncio.Event) -> Assignment:
        """Wait for a worker, hold its lease until an event, with another worker where it is lost."""
        placed = await pool.acquire(want(session))
        while not await self._hold(placed, session, over):
            pool.failed(placed)
            placed = await pool.regain(placed)
        pool.release(placed, well=True)
        return placed

    async def _hold(self, placed: Assignment, session: str, over: asyncio.Event) -> bool:
        """Hold a lease; return whether that was until the event."""
        process = placed.lease.incarnation
        assert process not in self.holders, "granted twice"
        self.order.append(session)
        self.holders[process] = session
        waits = [asyncio.ensure_future(each.wait()) for each in (over, placed.lost)]
        try:
            held = await asyncio.to_thread(at_worker, placed)
            await asyncio.to_thread(held.prepare, Preparation())
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            with suppress(EngineError):
                await asyncio.to_thread(held.cleanup)
        except EngineError:
            # The process of the worker has ended.
            return False
        finally:
            for each in waits:
                each.cancel()
            del self.holders[process]
        return over.is_set()

    async def start(self, *callers: tuple[Pool, str, asyncio.Event]) -> list[asyncio.Task[Assignment]]:
        """Start calls one after the other, so that their order is known."""
        calls = []
        for pool, session, over in callers:
            known = len(self.order) + len(self.pools[0].places())
            calls.append(asyncio.create_task(self.call(pool, session, over)))
            await until(
                lambda known=known: all(len(self.order) + len(pool.places()) > known for pool in self.pools),
                PATIENCE_S,
            )
        return calls

    async def end(self, *options: str) -> list[str]:
        """Run the command that ends actors; return what it prints, sorted."""
        ending = await asyncio.create_subprocess_exec(
            *(self.cluster.python, "-m", "serving.pool.on_ray.end"),
            *("--address", self.cluster.address, "--name", self.name, *options),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            printed, _ = await asyncio.wait_for(ending.communicate(), PATIENCE_S)
        finally:
            if ending.returncode is None:
                ending.kill()
        return sorted(printed.decode().splitlines())

    async def ready(self, *workers: str) -> None:
        """Wait until every gateway knows these workers as free."""
        await until(
            lambda: all(
                pool.workers()[name].get("state") == "idle" for pool in self.pools for name in workers
            ),
            PATIENCE_S,
        )

    async def queued(self, *sessions: str) -> None:
        """Wait until every gateway has seen this line."""
        await until(
            lambda: all([each.session_id for each in pool.places()] == list(sessions) for pool in self.pools),
            PATIENCE_S,
        )


def at_worker(placed: Assignment) -> WorkerOmniEngine:
    """Return the conversation's engine after it has taken the lease."""
    chosen = HostedOmniSettings(url=placed.url, secret_env=SECRET_ENV, open_timeout_s=5)
    return WorkerOmniEngine(There(placed), chosen)


@asynccontextmanager
async def site(cluster: LocalCluster, engine: str, *places: str) -> AsyncIterator[Site]:
    made = Site(cluster, engine, places)
    try:
        async with AsyncExitStack() as exits:
            made.pools = [await exits.enter_async_context(Pool(made.settings)) for _ in range(2)]
            await made.ready(*places)
            yield made
    finally:
        # After the gateways, which would start them again.
        await asyncio.to_thread(cluster.do, "end", made.name)


async def test_callers_of_two_gateways_wait_in_one_line_for_a_worker_on_another_node(
    cluster: LocalCluster, engine: str
) -> None:
    async with site(cluster, engine, "far") as here:
        first, second = here.pools
        over = asyncio.Event()
        calls = await here.start((first, "a", over), (second, "b", over), (first, "c", over))
        await here.queued("b", "c")
        # The media goes to a port of the worker, which is no child of this process.
        await until(lambda: [each["session_id"] for each in second.workers()["far"]["held"]] == ["a"])
        over.set()
        placed = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
        assert here.order == ["a", "b", "c"] and {each.lease.worker for each in placed} == {"far"}


@pytest.mark.slow
async def test_a_line_whose_actor_was_killed_keeps_its_order_and_its_leases(
    cluster: LocalCluster, engine: str
) -> None:
    async with site(cluster, engine, "far") as here:
        first, second = here.pools
        over, rest = asyncio.Event(), asyncio.Event()
        calls = await here.start((first, "a", over), (second, "b", rest), (first, "c", rest))
        for newcomer in ("d", "e"):
            assert await asyncio.to_thread(cluster.do, "kill", "ray::LineActor") == 1
            # While there is no line, and last in the one that comes.
            calls.append(asyncio.create_task(here.call(second, newcomer, rest)))
            await here.queued("b", "c", *"de"[: len(calls) - 3])
        assert here.order == ["a"] and list(here.holders.values()) == ["a"]
        over.set()
        rest.set()
        await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
        assert here.order == ["a", "b", "c", "d", "e"]


@pytest.mark.slow
async def test_a_gateway_whose_ray_process_was_killed_keeps_its_calls_and_places(
    cluster: LocalCluster, engine: str
) -> None:
    async with site(cluster, engine, "far") as here:
        first, second = here.pools
        over = asyncio.Event()
        calls = await here.start((first, "a", over), (second, "b", over), (first, "c", over))
        for process in psutil.Process().children():
            if "parley.serving.pool.on_ray.bridge" in process.cmdline():
                process.kill()
        calls.append(asyncio.create_task(here.call(second, "d", over)))
        await here.queued("b", "c", "d")
        assert here.order == ["a"] and list(here.holders.values()) == ["a"]
        over.set()
        await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
        assert here.order == ["a", "b", "c", "d"]


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["--print-url", "ray::WorkerActor"])
async def test_a_worker_that_is_killed_comes_back_for_the_conversation_that_it_had(
    cluster: LocalCluster, engine: str, killed: str
) -> None:
    async with site(cluster, engine, "far") as here:
        first, second = here.pools
        over = asyncio.Event()
        calls = await here.start((first, "a", over), (second, "b", over))
        assert await asyncio.to_thread(cluster.do, "kill", killed) == 1
        # The one that lost it is the head of the line.
        await here.queued("a", "b")
        await until(lambda: here.order == ["a", "a"] and here.holders, PATIENCE_S)
        over.set()
        await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
        assert here.order == ["a", "a", "b"]


@pytest.mark.slow
async def test_a_node_that_is_lost_takes_only_its_own_conversations_and_comes_back(
    cluster: LocalCluster, engine: str
) -> None:
    async with site(cluster, engine, "near", "far") as here:
        first, second = here.pools
        over = {name: asyncio.Event() for name in ("far", "near")}
        rest = asyncio.Event()
        calls = await here.start((first, "a", over["far"]), (second, "b", over["near"]), (first, "c", rest))
        # Free workers are taken by their names.
        assert [each.lease.worker for each in first.running()] == ["far", "near"]
        await asyncio.to_thread(cluster.do, "end_node")
        await here.queued("a", "c")
        assert list(here.holders.values()) == ["b"]
        await asyncio.to_thread(cluster.do, "add_node")
        await until(lambda: here.order == ["a", "b", "a"] and len(here.holders) == 2, PATIENCE_S)
        for event in (*over.values(), rest):
            event.set()
        placed = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
        assert here.order == ["a", "b", "a", "c"]
        assert placed[0].lease.worker == "far" and placed[1].lease.worker == "near"


@pytest.mark.slow
@pytest.mark.parametrize(
    "judged",
    [
        test_shared_pool.test_a_slot_goes_to_the_first_request_whichever_gateway_it_is_on,
        test_shared_pool.test_an_operator_removes_a_caller_of_another_gateway,
        test_shared_pool.test_a_full_line_counts_the_callers_of_all_gateways,
        test_shared_pool.test_memory_and_handles_count_over_all_gateways,
        test_shared_pool.test_a_restarted_worker_loses_its_conversations_and_takes_them_again,
        test_shared_pool.test_pools_of_other_names_share_nothing,
    ],
    ids=lambda judged: judged.__name__.removeprefix("test_"),
)
async def test_a_line_on_ray_passes_what_one_in_postgresql_passes(
    cluster: LocalCluster, judged: Callable[[RaySettings], Awaitable[None]]
) -> None:
    await judged(RaySettings(address=cluster.address, python=cluster.python))


@pytest.mark.slow
async def test_callers_of_two_gateway_processes_are_served_in_order_of_arrival(cluster: LocalCluster) -> None:
    place = RaySettings(address=cluster.address, python=cluster.python)
    order = await kept_order(place, callers=100, every_ms=5)
    assert order["served"] == order["callers"] == 100
    assert order["out_of_order"] == 0


@pytest.mark.slow
async def test_a_worker_that_is_drained_ends_and_is_not_started_again(
    cluster: LocalCluster, engine: str
) -> None:
    async with site(cluster, engine, "far") as here:
        first, second = here.pools
        await first.drain("far")
        await until(lambda: [pool.seen()[0].url for pool in here.pools] == [None, None], PATIENCE_S)
        # The actor that ran it is asked by each gateway again, and has started one process.
        worker = second.process("far")
        assert worker is not None and worker.starts == 1 and second.standing("far") is None
        assert await here.end("--worker", "far") == [f"ended {here.name}/worker/far"]
        await here.ready("far")


@pytest.mark.slow
async def test_the_command_ends_line_and_workers_and_gateways_start_them_again(
    cluster: LocalCluster, engine: str
) -> None:
    async with site(cluster, engine, "far") as here:
        first, second = here.pools
        before = first.workers()["far"]["incarnation"]
        assert await here.end() == [f"ended {here.name}/line/omni", f"ended {here.name}/worker/far"]
        await until(lambda: first.workers()["far"].get("incarnation") not in (None, before), PATIENCE_S)
        over = asyncio.Event()
        calls = await here.start((second, "a", over), (first, "b", over))
        over.set()
        await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
        assert here.order == ["a", "b"]
