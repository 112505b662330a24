"""Workers of a MiniCPM-o server in a pool: by their health, without leases."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.models.omni import OmniEngine, Preparation
from parley.serving.gateway.admin.operations import Operations
from parley.serving.pool.omni import PooledConversation, PooledOmni, PoolOmniSettings
from parley.serving.pool.pool import Pool
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from parley.serving.scheduler.types import Task, WorkerState
from tests.fakes.omni import ScriptedOmniHost
from tests.fakes.worker import SECRET, SECRET_ENV, worker
from tests.peers.minicpm_server import (
    Faults,
    MiniCpmWorker,
    minicpm_worker,
    minicpm_worker_process,
)
from tests.peers.operations_gateway import BEARER, asking, gateway
from tests.peers.test_browser import serving
from tests.peers.test_duplex_sockets import client
from tests.peers.test_pool import until

pytestmark = pytest.mark.paired

SECOND = np.zeros(16_000, np.float32)
# Short intervals, so that timeouts are reached soon.
SOON: dict[str, Any] = {"health_ms": 50, "silent_ms": 400, "dead_ms": 60_000}


def far(name: str, url: str, **settings: Any) -> WorkerSpec:
    return WorkerSpec(name=name, url=url, kind="minicpm_o_server", settings=settings)


def chosen(*specs: WorkerSpec, **more: Any) -> PoolTuning:
    return PoolTuning.model_validate({"workers": specs, **SOON, **more})


def conversation(pool: Pool, session: str = "session") -> PooledConversation:
    host = PooledOmni(pool, PoolOmniSettings())
    return host.of_call(session, 0, task=Task.AUDIO_DUPLEX)


def ready(pool: Pool, name: str) -> bool:
    return pool.standing(name) is WorkerState.READY


async def talks(engine: OmniEngine, units: int = 1) -> None:
    def talk() -> None:
        for _ in range(units):
            engine.prefill(SECOND)
            engine.generate()
            engine.finalize()

    await asyncio.to_thread(talk)


@asynccontextmanager
async def placed(
    pool: Pool, session: str = "session"
) -> AsyncIterator[tuple[PooledConversation, OmniEngine]]:
    """Return a conversation that has a worker and has begun."""
    one = conversation(pool, session)
    async with asyncio.timeout(60):
        await one.place()
    engine = one.open_engine()
    await asyncio.to_thread(engine.prepare, Preparation("Be kind."))
    try:
        yield one, engine
    finally:
        await asyncio.to_thread(engine.cleanup)
        one.over(well=True)
        one.close()


async def test_a_conversation_goes_to_such_a_worker_and_no_secret_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SECRET_ENV, raising=False)
    with minicpm_worker() as server:
        spec = far("far0", server.base, sampling={"length_penalty": 1.3})
        async with Pool(chosen(spec, secret_env=SECRET_ENV)) as pool:
            await until(lambda: ready(pool, "far0"))
            async with placed(pool) as (_, engine):
                await talks(engine, 2)
                assert server.prepared[0]["system_prompt"] == "Be kind."
                assert server.prepared[0]["config"]["length_penalty"] == 1.3
            # The id is made here and reveals nothing of the session.
            [path] = server.paths
            kind, _, chance = path.removeprefix("/ws/duplex?session_id=").partition("_")
            assert kind == "adx" and len(chance) == 32
            await until(lambda: server.stopped == 1)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"status": "initializing", "doing": "loading", "model_loaded": False}, "loading"),
        ({"status": "error", "model_loaded": False}, "error"),
        ({"status": "healthy", "model_loaded": False}, "error"),
        ({"doing": "error"}, "error"),
        ({"doing": "busy_chat"}, "busy_chat"),
        ({"doing": "duplex_paused", "current": "20260101_000000_omni_else"}, "duplex_paused"),
        ({"answers": False}, "offline"),
    ],
)
async def test_one_that_is_not_idle_is_not_granted_until_it_is(state: dict[str, Any], status: str) -> None:
    with minicpm_worker(**state) as server:
        async with Pool(chosen(far("far0", server.base))) as pool:
            await until(lambda: server.asked >= 2)
            async with asking(gateway(Operations(pool=pool)), headers=BEARER) as http:
                [shown] = (await http.get("/workers")).json()["workers"]
            assert shown["status"] == status
            waits = asyncio.create_task(conversation(pool).place())
            asked = server.asked
            await until(lambda: server.asked > asked + 1)
            # A worker must not be free even for a moment: a conversation that was placed there would be sent
            # on.
            assert pool.waiting == 1 and not waits.done() and pool.seen()[0].placed == 0
            server.status, server.doing, server.model_loaded, server.answers = "healthy", "idle", True, True
            server.ends.set()
            async with asyncio.timeout(60):
                await waits
            assert server.doing == "duplex_active"


async def test_it_is_shown_with_what_it_says() -> None:
    with minicpm_worker() as server:
        async with Pool(chosen(far("far0", server.base))) as pool:
            await until(lambda: ready(pool, "far0"))
            async with (
                asking(gateway(Operations(pool=pool)), headers=BEARER) as http,
                placed(pool, "0a1b2c3d-more"),
            ):
                await until(lambda: pool.workers()["far0"]["state"] == "duplex_active")
                [shown] = (await http.get("/workers")).json()["workers"]
    assert (shown["status"], shown["gpu_id"], shown["avg_inference_time_ms"]) == ("duplex_active", 3, 41.5)
    assert (shown["current_session_id"], shown["current_request_type"]) == ("0a1b2c3d", "audio_duplex")
    assert shown["total_requests"] == 1 and shown["host"] == "127.0.0.1"


async def test_after_a_conversation_it_is_not_granted_before_it_says_that_it_is_idle() -> None:
    with minicpm_worker(cleans_s=0.5) as server:
        refused = []

        def asked(connection: Any, request: Any) -> Any:
            answer = MiniCpmWorker.ask(server, connection, request)
            if answer is not None and request.path != "/health":
                refused.append(request.path)
            return answer

        server.hook = asked
        async with Pool(chosen(far("far0", server.base))) as pool:
            await until(lambda: ready(pool, "far0"))
            async with placed(pool) as (_, engine):
                await talks(engine)
            async with placed(pool, "next") as (_, engine):
                await talks(engine)
            assert len(server.prepared) == 2 and not refused


async def test_an_answer_from_before_the_end_of_a_conversation_does_not_count() -> None:
    """A health report from before the end of a conversation does not make the worker free.

    The report takes a while, and called the worker idle when it was requested.
    """
    with minicpm_worker() as server:
        async with Pool(chosen(far("far0", server.base))) as pool:
            await until(lambda: ready(pool, "far0"))
            kept = pool._kept["far0"]
            assert kept.server is not None
            idle = await kept.server.ask()
            asked_s = asyncio.get_running_loop().time()
            async with placed(pool):
                pass
            pool._on_health(kept, idle, asked_s)
            assert pool.standing("far0") is WorkerState.SUSPECT
            await until(lambda: ready(pool, "far0"))


async def test_one_that_someone_else_has_is_passed_over() -> None:
    with minicpm_worker() as taken, minicpm_worker() as free:
        # Polled so rarely that the pool believes the worker free.
        specs = far("far0", taken.base), far("far1", free.base)
        async with Pool(chosen(*specs, health_ms=60_000)) as pool:
            await until(lambda: ready(pool, "far0") and ready(pool, "far1"))
            taken.doing = "busy_half_duplex"
            async with placed(pool, "a"):
                assert len(free.prepared) == 1 and not taken.prepared
                assert pool.standing("far0") is WorkerState.SUSPECT


async def test_one_that_is_taken_between_its_health_and_the_handshake_is_busy_and_no_failure() -> None:
    with minicpm_worker() as first, minicpm_worker() as second:
        specs = far("far0", first.base), far("far1", second.base)
        # After a failure it would be left alone for longer than the test waits.
        avoided = {"suspect_ms": 120_000, "longest_suspect_ms": 120_000}
        async with Pool(chosen(*specs, scheduler=avoided)) as pool:
            await until(lambda: ready(pool, "far0") and ready(pool, "far1"))

            def taken(connection: Any, request: Any) -> Any:
                if request.path != "/health":
                    first.doing = "duplex_active"
                return MiniCpmWorker.ask(first, connection, request)

            first.hook = taken
            async with placed(pool):
                assert len(second.prepared) == 1
            first.hook = None
            first.doing = "idle"
            await until(lambda: ready(pool, "far0"))
            async with placed(pool), placed(pool, "other"):
                assert len(first.prepared) == 1


async def test_one_that_refuses_and_calls_itself_idle_is_no_storm() -> None:
    with minicpm_worker(tells_nothing=True) as server:
        more = {"scheduler": {"suspect_ms": 200}}
        async with Pool(chosen(far("far0", server.base), **more)) as pool:
            await until(lambda: ready(pool, "far0"))
            waits = asyncio.create_task(conversation(pool).place())
            await asyncio.sleep(1)
            # Attempts are at 0, 0.2 and 0.6 s, each with two more requests; health checks are twenty in a
            # second.
            assert server.asked < 60 and not waits.done()
            server.tells_nothing = False
            async with asyncio.timeout(3):
                await waits


async def test_a_stopped_one_is_never_granted_and_its_conversation_moves_at_the_deadline() -> None:
    with minicpm_worker_process() as hangs, minicpm_worker() as other:
        specs = far("far0", hangs.base, unit_timeout_s=0.5), far("far1", other.base)
        async with Pool(chosen(*specs)) as pool:
            await until(lambda: ready(pool, "far0") and ready(pool, "far1"))
            async with placed(pool) as (one, engine):
                assert not other.prepared
                hangs.signal(signal.SIGSTOP)
                with pytest.raises(EngineError, match="does not answer in time"):
                    await talks(engine)
                await asyncio.to_thread(engine.cleanup)
                one.over(well=False)
                async with asyncio.timeout(3):
                    await one.place()
                again = one.open_engine()
                await asyncio.to_thread(again.prepare, Preparation())
                await talks(again)
                assert len(other.prepared) == 1
                await until(lambda: pool.standing("far0") is WorkerState.SUSPECT)
                waits = asyncio.create_task(conversation(pool, "next").place())
                await asyncio.sleep(1)
                assert not waits.done() and pool.waiting == 1
                hangs.signal(signal.SIGCONT)
                async with asyncio.timeout(60):
                    await waits
                await asyncio.to_thread(again.cleanup)


async def test_one_that_stops_while_it_is_believed_idle_is_passed_over_soon() -> None:
    with minicpm_worker_process() as hangs, minicpm_worker() as other:
        specs = far("far0", hangs.base, connect_timeout_s=60), far("far1", other.base)
        async with Pool(chosen(*specs, health_ms=60_000)) as pool:
            await until(lambda: ready(pool, "far0") and ready(pool, "far1"))
            hangs.signal(signal.SIGSTOP)
            # The limit is silent_ms, not the connection timeout.
            async with asyncio.timeout(30), placed(pool):
                assert len(other.prepared) == 1


async def test_a_killed_one_is_noticed_by_its_connection_and_comes_back() -> None:
    with ExitStack() as exits:
        dies = exits.enter_context(minicpm_worker_process())
        # Polled so rarely that only its connection reveals the failure.
        async with Pool(chosen(far("far0", dies.base), health_ms=2_000)) as pool:
            await until(lambda: ready(pool, "far0"))
            await asyncio.sleep(0.1)
            one = conversation(pool)
            await one.place()
            lost = one.lost
            dies.signal(signal.SIGKILL)
            async with asyncio.timeout(1.5):
                await lost.wait()
            assert pool.standing("far0") is None and pool.workers()["far0"] == {}
            one.over(well=False)
            waits = asyncio.create_task(one.place())
            port = int(dies.base.rpartition(":")[2])
            exits.enter_context(minicpm_worker_process(port))
            async with asyncio.timeout(60):
                await waits
            one.over(well=True)


async def test_gateways_of_a_line_on_ray_report_its_processes_by_one_name() -> None:
    # The cluster is not reached: what a gateway reports does not depend on it.
    shared = {"ray": {"address": "127.0.0.1:1", "python": sys.executable}}
    with minicpm_worker() as server:
        async with Pool(chosen(far("far0", server.base), shared=shared, dead_ms=500)) as pool:
            seen = []
            for _ in range(2):
                await until(lambda: pool.workers()["far0"].get("state") == "idle")
                seen.append(pool.workers()["far0"]["incarnation"])
                server.answers = False
                await until(lambda: pool.workers()["far0"] == {})
                server.answers = True
    assert seen == ["far0", "far0"]


async def test_one_that_breaks_off_in_the_middle_has_failed() -> None:
    with minicpm_worker(faults=Faults(at=2)) as breaks, minicpm_worker() as other:
        async with Pool(chosen(far("far0", breaks.base), far("far1", other.base))) as pool:
            await until(lambda: ready(pool, "far0") and ready(pool, "far1"))
            async with placed(pool) as (one, engine):
                with pytest.raises(EngineError, match="without a word"):
                    await talks(engine, 2)
                one.over(well=False)
                await one.place()
                again = one.open_engine()
                await asyncio.to_thread(again.prepare, Preparation())
                assert len(other.prepared) == 1
                await asyncio.to_thread(again.cleanup)


async def test_a_pool_mixes_them_with_workers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    with minicpm_worker() as server, worker(ScriptedOmniHost(), name="ours") as ours:
        specs = WorkerSpec(name="ours", url=ours.url), far("far0", server.base)
        async with Pool(chosen(*specs, secret_env=SECRET_ENV)) as pool:
            await until(lambda: ready(pool, "ours") and ready(pool, "far0"))
            async with placed(pool, "a") as (_, one), placed(pool, "b") as (_, two):
                # One worker has units of its own length, the other has a second.
                assert len(server.prepared) == 1
                assert sorted({one.unit_ms, two.unit_ms})[-1] == 1_000
                assert len(pool.running()) == 2


async def test_one_that_drains_is_given_no_one_and_goes_on() -> None:
    with minicpm_worker() as drains, minicpm_worker() as other:
        async with Pool(chosen(far("far0", drains.base), far("far1", other.base))) as pool:
            await until(lambda: ready(pool, "far0") and ready(pool, "far1"))
            async with placed(pool) as (_, engine):
                await pool.drain("far0")
                await until(lambda: pool.standing("far0") is WorkerState.DRAINING)
                await talks(engine)
            async with placed(pool, "next") as (_, engine):
                assert len(other.prepared) == 1


async def test_a_call_that_ends_while_it_connects_gives_the_worker_back() -> None:
    with minicpm_worker() as server:
        async with Pool(chosen(far("far0", server.base))) as pool:
            await until(lambda: ready(pool, "far0"))
            for wait_s in (0.0, 0.002, 0.005, 0.01, 0.02):
                one = conversation(pool)
                place = asyncio.create_task(one.place())
                await asyncio.sleep(wait_s)
                place.cancel()
                await asyncio.gather(place, return_exceptions=True)
                # On a fast machine the last of them has its worker already.
                one.over(well=True)
                await until(lambda: ready(pool, "far0") and server.doing == "idle")
                assert pool.running() == []


# The whole server.


def pooled(*urls: str) -> str:
    each = ", ".join(
        f"{{name: far{number}, url: '{url}', kind: minicpm_o_server, settings: {{unit_timeout_s: 1}}}}"
        for number, url in enumerate(urls)
    )
    return f"workers: {{workers: [{each}]}}\nduplex: {{engine: {{name: pool}}}}\n"


async def test_two_workers_and_three_callers(tmp_path: Path) -> None:
    with minicpm_worker() as first, minicpm_worker() as second:
        more = pooled(first.base, second.base)
        with serving(tmp_path, "llm: {name: documents}", more=more, calls=4) as served:
            async with client(served) as one, client(served) as two:
                await one.prepared()
                await two.prepared()
                assert len(first.prepared) == len(second.prepared) == 1
                async with client(served) as three:
                    assert (await three.next("queued"))["position"] == 1
                    await one.chunk()
                    await one.next("result")
                    async with httpx.AsyncClient(base_url=served.address) as http:
                        shown = (await http.get("/workers")).json()["workers"]
                    assert [each["status"] for each in shown] == ["duplex_active", "duplex_active"]
                    await one.send("stop")
                    await three.next("queue_done")
                    await three.prepared()
                    await three.chunk()
                    await three.next("result")
            assert sorted([len(first.prepared), len(second.prepared)]) == [1, 2]


async def test_a_client_whose_worker_is_killed_reads_it_at_once_and_goes_on_with_the_other(
    tmp_path: Path,
) -> None:
    with minicpm_worker_process() as dies, minicpm_worker() as other:
        more = pooled(dies.base, other.base)
        with serving(tmp_path, "llm: {name: documents}", more=more) as served:
            async with client(served) as one:
                await one.prepared()
                assert not other.prepared
                await one.chunk()
                await one.next("result")
                dies.signal(signal.SIGKILL)
                # No unit is due, and the health probes give the worker up after 6 s only.
                assert (await one.next("error", within_s=4))["code"] == "inference_error"
                await one.goes_on()
                assert len(other.prepared) == 1


async def test_a_client_whose_worker_hangs_is_moved_at_its_deadline(tmp_path: Path) -> None:
    with minicpm_worker_process() as hangs, minicpm_worker() as other:
        more = pooled(hangs.base, other.base)
        with serving(tmp_path, "llm: {name: documents}", more=more) as served:
            async with client(served) as one:
                await one.prepared()
                await one.chunk()
                await one.next("result")
                hangs.signal(signal.SIGSTOP)
                await one.chunk()
                # unit_timeout_s is 1; the health probes give the worker up after 6 s.
                assert (await one.next("error", within_s=4))["code"] == "inference_error"
                await one.goes_on()
                assert len(other.prepared) == 1
