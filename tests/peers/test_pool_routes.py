"""The pool and its workers as operators see and change them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from parley.models.omni import Preparation
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.admin.pool_view import PoolView
from parley.serving.pool.omni import PooledOmni, PoolOmniSettings
from parley.serving.pool.pool import Assignment, AssignmentRefused, Pool
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from parley.serving.scheduler.types import QueuePlace, RefusalReason, Task, WorkerRequest
from tests.fakes.omni import ScriptedOmniHost
from tests.fakes.worker import SECRET, SECRET_ENV, Served, worker
from tests.peers.operations_gateway import BEARER, TOKEN_ENV, asking, gateway
from tests.peers.test_pool import at_worker, ready, settings, until, want

SESSION = "0a1b2c3d-0000-4000-8000-000000000001"
COUNTED = ("idle", "busy", "duplex", "loading", "error", "offline")


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    monkeypatch.delenv(TOKEN_ENV, raising=False)


@pytest.fixture
def served() -> Iterator[list[Served]]:
    with ExitStack() as exits:
        yield [exits.enter_context(worker(ScriptedOmniHost(), name=name)) for name in ("v", "w")]


@dataclass
class Site:
    """A gateway with its pool, and an operator's client."""

    pool: Pool
    client: httpx.AsyncClient

    async def json(self, path: str, **more: Any) -> Any:
        answer = await self.client.get(path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def workers(self) -> dict[str, dict[str, Any]]:
        return {each["worker_id"]: each for each in (await self.json("/workers"))["workers"]}

    async def counts(self) -> dict[str, int]:
        status = await self.json("/status")
        counts = {kind: status[f"{kind}_workers"] for kind in COUNTED}
        # Each worker is counted in one of them.
        assert sum(counts.values()) == status["total_workers"]
        return {kind: count for kind, count in counts.items() if count}


@asynccontextmanager
async def site(chosen: PoolTuning, *, operator: bool = True) -> AsyncIterator[Site]:
    headers = BEARER if operator else {}
    async with Pool(chosen) as pool, asking(gateway(Operations(pool=pool)), headers=headers) as client:
        yield Site(pool, client)


@asynccontextmanager
async def one_waits(
    here: Site, **more: Any
) -> AsyncIterator[tuple[Assignment, WorkerRequest, "asyncio.Task[Assignment]"]]:
    """Run with one conversation on the only worker and another one waiting."""
    await ready(here.pool, 1)
    first = await here.pool.acquire(want())
    asked = want(SESSION)
    waits = asyncio.create_task(here.pool.acquire(asked, **more))
    await until(here.pool.places)
    try:
        yield first, asked, waits
    finally:
        waits.cancel()
        for result in await asyncio.gather(waits, return_exceptions=True):
            if isinstance(result, Assignment):
                here.pool.release(result, well=True)
        here.pool.release(first, well=True)


async def test_a_worker_is_shown_through_a_conversation(served: list[Served]) -> None:
    async with site(settings(served)) as here:
        await ready(here.pool, 2)
        before = datetime.now(UTC)
        idle = (await here.workers())["v"]
        assert (idle["status"], idle["state"], idle["total_requests"]) == ("idle", "idle", 0)
        assert (idle["host"], idle["port"]) == ("127.0.0.1", served[0].server.port)
        unknown = ("gpu_id", "current_session_id", "avg_inference_time_ms", "current_request_type")
        assert all(idle[name] is None for name in unknown) and idle["task_started_at"] is None
        assert abs((datetime.fromisoformat(idle["last_heartbeat"]) - before).total_seconds()) < 3
        assert await here.counts() == {"idle": 2}

        placed = await here.pool.acquire(want(SESSION))
        engine = await asyncio.to_thread(at_worker, placed)
        await asyncio.to_thread(engine.prepare, Preparation())
        name = placed.lease.worker
        await until(lambda: here.pool.workers()[name]["state"] == "duplex_active")
        busy = (await here.workers())[name]
        assert busy["status"] == busy["state"] == "duplex_active"
        # Without client keys a whole id is enough to use the session.
        assert busy["current_session_id"] == "0a1b2c3d"
        assert (busy["current_request_type"], busy["total_requests"]) == ("omni_duplex", 1)
        assert 0 <= (datetime.fromisoformat(busy["task_started_at"]) - before).total_seconds() < 10
        assert await here.counts() == {"idle": 1, "duplex": 1}

        await asyncio.to_thread(engine.cleanup)
        here.pool.release(placed, well=True)
        await ready(here.pool, 2)
        over = (await here.workers())[name]
        assert (over["status"], over["current_session_id"], over["total_requests"]) == ("idle", None, 1)


async def test_a_worker_that_was_given_away_is_not_shown_as_free(served: list[Served]) -> None:
    """A worker that was assigned is not shown as idle, though its own report comes later."""
    async with site(settings(served[:1])) as here:
        await ready(here.pool, 1)
        statuses = {}
        for task in Task:
            placed = await here.pool.acquire(WorkerRequest(f"ticket of {task}", SESSION, task))
            statuses[task] = (await here.workers())["v"]["status"]
            here.pool.release(placed, well=True)
        assert statuses == {
            Task.CHAT: "busy_chat",
            Task.HALF_DUPLEX: "busy_half_duplex",
            Task.AUDIO_DUPLEX: "duplex_active",
            Task.OMNI_DUPLEX: "duplex_active",
        }


async def test_a_worker_that_someone_else_has_is_shown_with_its_beginning(served: list[Served]) -> None:
    async with site(settings(served[:1])) as here, Pool(settings(served[:1])) as other:
        await ready(here.pool, 1)
        await ready(other, 1)
        placed = await other.acquire(want(SESSION))
        engine = await asyncio.to_thread(at_worker, placed)
        await until(lambda: here.pool.workers()["v"]["state"] == "duplex_active")
        shown = (await here.workers())["v"]
        assert (shown["status"], shown["current_session_id"]) == ("duplex_active", "0a1b2c3d")
        assert (shown["total_requests"], shown["current_request_type"]) == (0, None)
        await asyncio.to_thread(engine.cleanup)
        other.release(placed, well=True)


async def test_a_worker_that_is_not_there_is_offline_and_one_that_loads_is_loading() -> None:
    loading = worker(lambda: asyncio.run(asyncio.sleep(2)), name="slow")  # type: ignore[arg-type,return-value]
    with loading as slow:
        specs = (
            WorkerSpec(name="slow", url=slow.url),
            WorkerSpec(name="gone", url="ws://127.0.0.1:9"),
        )
        async with site(PoolTuning(workers=specs, secret_env=SECRET_ENV)) as here:
            await until(lambda: here.pool.workers()["slow"].get("state") == "loading")
            shown = await here.workers()
            assert (shown["slow"]["status"], shown["gone"]["status"]) == ("loading", "offline")
            assert shown["gone"]["state"] is None and shown["gone"]["last_heartbeat"] is None
            assert await here.counts() == {"loading": 1, "offline": 1}


async def test_a_worker_that_falls_silent_is_an_error_and_then_offline() -> None:
    host = ScriptedOmniHost()
    with worker(host, name="v", state_ms=60_000) as mute:
        chosen = settings([mute], silent_ms=200, dead_ms=1_500)
        async with site(chosen) as here:
            await until(lambda: here.pool.workers()["v"].get("state") == "idle")
            async with asyncio.timeout(3):
                while (await here.workers())["v"]["status"] != "error":
                    await asyncio.sleep(0.02)
            # Its last report is still shown, with its time.
            assert (await here.workers())["v"]["state"] == "idle"
            assert await here.counts() == {"error": 1}
            async with asyncio.timeout(60):
                while (await here.workers())["v"]["status"] != "offline":
                    await asyncio.sleep(0.02)


async def test_the_number_of_a_device_is_that_of_its_setting() -> None:
    specs = tuple(
        WorkerSpec(name=name, engine="moshi", settings=chosen, python="/bin/false")
        for name, chosen in {
            "one": {"device": "cuda:1"},
            "first": {"device": "cuda"},
            "none": {"device": "cpu"},
            "unsaid": {},
            "odd": {"device": 3},
        }.items()
    )
    pool = Pool(PoolTuning(workers=specs))
    shown = {each.worker_id: each.gpu_id for each in PoolView(pool).workers(whole=True).workers}
    assert shown == {"one": 1, "first": 0, "none": None, "unsaid": None, "odd": None}


async def test_strangers_see_how_many_and_not_who_or_where(served: list[Served]) -> None:
    async with site(settings(served[:1]), operator=False) as here:
        async with one_waits(here) as (placed, asked, _waits):
            shown = (await here.workers())["v"]
            assert shown["status"] == "duplex_active"
            assert shown["host"] is shown["port"] is shown["current_session_id"] is None
            whole = (await here.json("/workers", headers=BEARER))["workers"][0]
            assert whole["host"] == "127.0.0.1"
            assert whole["current_session_id"] == placed.lease.session_id[:8]
            status = json.dumps(await here.json("/status"))
            assert asked.ticket_id not in status and SESSION[:8] not in status
            assert (await here.client.get("/api/queue")).status_code == 403


async def test_the_queue_says_who_waits_and_how_long(served: list[Served]) -> None:
    async with site(settings(served[:1])) as here:
        async with one_waits(here) as (placed, asked, _waits):
            queue = await here.json("/api/queue")
            assert (queue["queue_length"], queue["max_queue_size"]) == (1, 1_020)
            [item], [run] = queue["items"], queue["running_tasks"]
            assert (item["ticket_id"], item["position"]) == (asked.ticket_id, 1)
            assert (item["request_type"], item["session_id"]) == ("omni_duplex", "0a1b2c3d")
            assert item["estimated_wait_s"] == pytest.approx(90, abs=1)
            now = datetime.now(UTC)
            assert abs((now - datetime.fromisoformat(item["enqueued_at"])).total_seconds()) < 3
            assert 0 <= item["wait_elapsed_s"] < 3
            assert (run["worker_id"], run["request_type"]) == (placed.lease.worker, "omni_duplex")
            assert run["elapsed_s"] + run["estimated_remaining_s"] == pytest.approx(90, abs=0.2)
            status = await here.json("/status")
            assert (status["queue_length"], status["max_queue_size"]) == (1, 1_000)
            assert status["running_tasks"][0]["worker_id"] == placed.lease.worker
            # The fields that every gateway reports are there as well.
            assert (status["status"], status["deployment"]) == ("ready", "test")


async def test_a_caller_who_knows_a_ticket_sees_it_alone(served: list[Served]) -> None:
    async with site(settings(served[:1]), operator=False) as here:
        async with one_waits(here) as (placed, asked, _waits):
            found = await here.json(f"/api/queue/{asked.ticket_id}")
            assert found["found"] is True
            assert (found["ticket"]["ticket_id"], found["ticket"]["position"]) == (asked.ticket_id, 1)
            for nobodys in ("nobodys", placed.ticket_id):
                missing = await here.json(f"/api/queue/{nobodys}")
                assert missing == {"found": False, "message": "there is no waiting request with this ticket"}


async def test_a_place_that_no_worker_may_free_has_no_estimate() -> None:
    gone = WorkerSpec(name="gone", url="ws://127.0.0.1:9")
    async with site(PoolTuning(workers=(gone,), secret_env=SECRET_ENV)) as here:
        waits = asyncio.create_task(here.pool.acquire(want()))
        await until(here.pool.places)
        [item] = (await here.json("/api/queue"))["items"]
        assert item["estimated_wait_s"] is None
        found = await here.json(f"/api/queue/{item['ticket_id']}")
        assert found["ticket"]["estimated_wait_s"] is None
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)


@pytest.mark.parametrize(
    ("headers", "reason", "received"),
    [
        (BEARER, RefusalReason.CANCELLED, "an operator removed you from the queue"),
        ({}, RefusalReason.WITHDRAWN, "your place in the queue was given up"),
    ],
)
async def test_who_is_taken_out_of_the_queue_is_told_by_whom(
    served: list[Served],
    headers: dict[str, str],
    reason: RefusalReason,
    received: str,
) -> None:
    async with site(settings(served[:1]), operator=False) as here:
        async with one_waits(here) as (_placed, asked, waits):
            path = f"/api/queue/{asked.ticket_id}"
            assert (await here.client.delete(path, headers=headers)).json() == {"success": True}
            with pytest.raises(AssignmentRefused, match=received) as refused:
                await asyncio.wait_for(waits, 1)
            assert refused.value.reason is reason
            assert (await here.json("/status"))["queue_length"] == 0
            assert (await here.client.delete(path, headers=headers)).json() == {"success": False}


async def test_callers_who_wait_for_a_line_stand_before_those_who_wait_for_an_engine(
    served: list[Served],
) -> None:
    async with Pool(settings(served[:1])) as pool:
        app = gateway(Operations(pool=pool))
        async with asking(app, headers=BEARER) as client, asking(app) as stranger:
            async with one_waits(Site(pool, client)) as (_, asked, _waits):
                app.state.calls.queue.join("l_0", transport="webrtc")
                app.state.calls.queue.join("CA0", transport="phone", expires_s=time.monotonic() + 60)
                queue = (await client.get("/api/queue")).json()
                assert queue["queue_length"] == 3
                assert [(each["kind"], each["position"], each["transport"]) for each in queue["items"]] == [
                    ("line", 1, "webrtc"),
                    ("line", 2, "phone"),
                    ("engine", 1, None),
                ]
                assert all(0 <= each["wait_elapsed_s"] < 10 for each in queue["items"])
                assert queue["items"][0]["session_id"] is None
                assert queue["items"][2]["ticket_id"] == asked.ticket_id
                assert (await stranger.get("/api/queue")).status_code == 403
                found = (await stranger.get("/api/queue/l_0")).json()
                assert found["found"] and found["ticket"]["kind"] == "line"
                # A phone call's name alone gives its caller no right to the entry.
                assert (await stranger.delete("/api/queue/CA0")).json() == {"success": False}
                assert (await stranger.delete("/api/queue/l_0")).json() == {"success": True}
                assert (await client.delete("/api/queue/CA0")).json() == {"success": True}
                left = (await client.get("/api/queue")).json()["items"]
                assert [each["kind"] for each in left] == ["engine"]


async def test_one_that_runs_is_not_taken_out(served: list[Served]) -> None:
    async with site(settings(served[:1])) as here:
        async with one_waits(here) as (placed, _asked, waits):
            answer = await here.client.delete(f"/api/queue/{placed.ticket_id}")
            assert answer.json() == {"success": False}
            assert len(here.pool.running()) == 1 and not waits.done()


async def test_another_page_takes_no_one_out(served: list[Served]) -> None:
    async with site(settings(served[:1])) as here:
        async with one_waits(here) as (_placed, asked, waits):
            headers = {"origin": "https://evil.example"}
            answer = await here.client.delete(f"/api/queue/{asked.ticket_id}", headers=headers)
            assert answer.status_code == 403 and not waits.done()


async def test_a_call_that_was_taken_out_does_not_queue_again(served: list[Served]) -> None:
    """A call that was removed does not queue again.

    It would be at the end of the queue, to be removed once more.
    """
    async with site(settings(served[:1])) as here:
        async with one_waits(here):
            news: list[QueuePlace | AssignmentRefused | None] = []
            host = PooledOmni(here.pool, PoolOmniSettings())
            call = host.of_call("another session", 0, on_queue=news.append)
            placing = asyncio.create_task(call.place())
            await until(lambda: len(here.pool.places()) == 2)
            ticket = here.pool.places()[1].ticket_id
            assert (await here.client.delete(f"/api/queue/{ticket}")).json() == {"success": True}
            for _ in range(3):
                with pytest.raises(AssignmentRefused, match="an operator removed you"):
                    await asyncio.wait_for(placing, 1)
                assert isinstance(news[-1], AssignmentRefused) and len(here.pool.places()) == 1
                placing = asyncio.create_task(call.place())
            placing.cancel()


async def test_a_call_that_found_no_room_may_ask_again(served: list[Served]) -> None:
    async with site(settings(served[:1], scheduler={"max_waiting": 0})) as here:
        await ready(here.pool, 1)
        placed = await here.pool.acquire(want())
        news: list[QueuePlace | AssignmentRefused | None] = []
        call = PooledOmni(here.pool, PoolOmniSettings()).of_call("another", 0, on_queue=news.append)
        with pytest.raises(AssignmentRefused, match="the queue is full"):
            await call.place()
        assert [str(each) for each in news] == ["the queue is full (0 wait), try again later"]
        here.pool.release(placed, well=True)
        await call.place()
        assert news[-1] is None
        engine = call.open_engine()
        await asyncio.to_thread(engine.cleanup)
        call.over(well=True)


async def test_estimates_are_changed_while_someone_waits_and_they_are_told(served: list[Served]) -> None:
    received: list[QueuePlace] = []
    async with site(settings(served[:1])) as here:
        async with one_waits(here, on_place=received.append):
            answer = await here.client.put(
                "/api/config/eta", json={"eta_omni_duplex_s": 30, "ema_alpha": 0.5}
            )
            changed = answer.json()
            assert changed["config"]["eta_omni_duplex_s"] == 30
            # Omitted fields stay, and so do null ones.
            assert changed["config"]["eta_chat_s"] == 15
            assert changed["ema_alpha"] == changed["config"]["ema_alpha"] == 0.5
            [item] = (await here.json("/api/queue"))["items"]
            assert item["estimated_wait_s"] == pytest.approx(30, abs=1)
            # Places are reported by a task of the pool.
            await until(lambda: received[-1].wait_ms == pytest.approx(30_000, abs=1_000))
            assert await here.json("/api/config/eta") == changed


async def test_what_was_learnt_is_read_back_and_survives_a_change(served: list[Served]) -> None:
    async with site(settings(served[:1])) as here:
        await ready(here.pool, 1)
        before = await here.json("/api/config/eta")
        assert before["ema_omni_duplex_s"] is None and before["ema_omni_duplex_samples"] == 0
        here.pool.eta.ended_well(Task.OMNI_DUPLEX, 40)
        await here.client.put("/api/config/eta", json={"eta_chat_s": 20})
        after = await here.json("/api/config/eta")
        assert (after["ema_omni_duplex_s"], after["ema_omni_duplex_samples"]) == (40, 1)
        assert (after["ema_chat_s"], after["ema_min_samples"]) == (None, 3)


@pytest.mark.parametrize(
    "body",
    [
        '{"eta_chat_s": 0}',
        '{"eta_chat_s": -1}',
        '{"eta_chat_s": NaN}',
        '{"eta_chat_s": Infinity}',
        '{"eta_chat_s": 86401}',
        '{"eta_chat_s": "soon"}',
        '{"ema_alpha": 0}',
        '{"ema_alpha": 1.5}',
        '{"eta_telepathy_s": 5}',
        "[]",
    ],
)
async def test_an_estimate_out_of_its_range_changes_nothing(served: list[Served], body: str) -> None:
    async with site(settings(served[:1])) as here:
        before = await here.json("/api/config/eta")
        headers = {"content-type": "application/json"}
        answer = await here.client.put("/api/config/eta", content=body, headers=headers)
        assert answer.status_code == 422
        assert await here.json("/api/config/eta") == before


async def test_a_server_without_a_pool_says_so() -> None:
    async with asking(gateway(), headers=BEARER) as client:
        assert (await client.get("/workers")).json() == {"total": 0, "workers": []}
        queue = (await client.get("/api/queue")).json()
        assert queue == {"queue_length": 0, "max_queue_size": 20, "items": [], "running_tasks": []}
        assert (await client.get("/api/queue/x")).json()["found"] is False
        assert (await client.delete("/api/queue/x")).json() == {"success": False}
        status = (await client.get("/status")).json()
        assert status["total_workers"] == 0 and status["gateway_healthy"] is True
        assert (await client.get("/api/config/eta")).json()["ema_chat_samples"] == 0
        assert (await client.put("/api/config/eta", json={"eta_chat_s": 20})).status_code == 409
