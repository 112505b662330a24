"""Callers of a full server wait in its queue, on every transport that has messages for it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from pipecat.evals.serializer import EvalConnectionFlags, eval_connect_message
from playwright.async_api import expect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.peers.minicpm_page import PREPARE, page
from tests.peers.operations_gateway import BEARER
from tests.peers.server import RunningServer, running_server
from tests.peers.test_browser import chromium, open_page, serving, visit
from tests.peers.webrtc_caller import Caller, until_state

__all__ = ["chromium"]
# The machine's own bound is on, and all callers of a test have one address.
ONE_LINE = (
    "server: {max_calls: 1, admission: auto, drain_s: 3, clients: {anonymous: {max_calls: 9}}}\n"
    "bot: {greeting: Hello there.}\n"
)
GREETED_S, PLACED_S = 20.0, 3.0
shared = pytest.mark.asyncio(loop_scope="module")
READY = {"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "1.0.0"}}
COUNT_TONES = """
  window.tones = 0;
  const make = AudioContext.prototype.createOscillator;
  AudioContext.prototype.createOscillator = function () {
    window.tones += 1;
    return make.call(this);
  };
"""


@asynccontextmanager
async def full_server(folder: Path) -> AsyncIterator[RunningServer]:
    config = folder / "one_line.yaml"
    config.write_text(ONE_LINE)
    async with running_server("--config", str(config)) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with full_server(tmp_path_factory.mktemp("one_line")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def server(one_line: RunningServer) -> RunningServer:
    """Server with one line, which is free."""
    await until_status(one_line, (0, 0))
    return one_line


Dial = Callable[[RunningServer], Awaitable[Caller]]


@pytest_asyncio.fixture(loop_scope="module")
async def dial() -> AsyncIterator[Dial]:
    """Place calls that end with the test, also when it fails: the next one finds the line free."""
    callers: list[Caller] = []

    async def placed(server: RunningServer) -> Caller:
        caller = Caller()
        callers.append(caller)
        async with httpx.AsyncClient(base_url=server.url) as http:
            answer = await http.post("/api/offer", json=await caller.offer())
        assert answer.status_code == 200, answer.text
        await caller.accept(answer.json())
        # A caller that closes before its own handshake has finished cannot notify the server.
        await until_state(caller.connection, "connected")
        return caller

    yield placed
    for caller in callers:
        await caller.hang_up()


async def greeted(caller: Caller) -> None:
    await caller.until(lambda: caller.of_type("bot-stopped-speaking"), within_s=GREETED_S)


def places(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the queue positions that a client received."""
    told = [each["data"] for each in messages if each.get("type") == "server-message"]
    return [data for data in told if data["kind"] == "queue"]


async def told(caller: Caller, position: int) -> dict[str, Any]:
    """Wait until a caller is notified of this position; return the message."""

    def is_there() -> bool:
        return bool(places(caller.messages)) and places(caller.messages)[-1]["position"] == position

    await caller.until(is_there, within_s=PLACED_S)
    return places(caller.messages)[-1]


def typed(number: str, text: str) -> dict[str, Any]:
    data = {"content": text, "options": {"run_immediately": True}}
    return {"label": "rtvi-ai", "type": "send-text", "id": number, "data": data}


async def status(server: RunningServer) -> tuple[int, int]:
    """Return the number of calls, and of callers in the queue."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        found = (await http.get("/status")).json()
    return found["calls"], found["waiting"]


async def until_status(server: RunningServer, expected: tuple[int, int], *, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while await status(server) != expected:
            await asyncio.sleep(0.05)


# First: what is estimated here is what a server says that has held no call yet.
@shared
async def test_a_half_duplex_client_waits_in_the_words_of_its_protocol(server: RunningServer, dial: Dial):
    first = await dial(server)
    async with page(server.url, "/ws/half_duplex/a") as client:
        place = await client.until("queued")
        assert (place["position"], place["queue_length"]) == (1, 1) and place["ticket_id"]
        assert (await client.until("queue_update"))["estimated_wait_s"] < place["estimated_wait_s"]
        # As its pages do, before it has a line.
        await client.send(**PREPARE)
        await first.hang_up()
        await client.until("prepared")
        assert [kind for kind in client.kinds if kind != "queue_update"] == [
            "queued",
            "queue_done",
            "prepared",
        ]
        assert await status(server) == (1, 0)


@shared
async def test_a_second_browser_waits_is_told_its_place_and_is_greeted_when_the_first_leaves(
    server: RunningServer, dial: Dial
):
    first = await dial(server)
    await greeted(first)
    assert places(first.messages) == []
    second = await dial(server)
    third = await dial(server)
    place = await told(second, 1)
    assert place["wait_s"] > 0 and place["ticket_id"]
    assert (await told(third, 2))["wait_s"] > place["wait_s"]
    assert await status(server) == (1, 2)
    assert second.of_type("bot-ready") == []
    # There is no conversation yet that it could be said in.
    second.send(typed("2", "What are your opening hours on Saturday?"))

    await first.hang_up()
    await told(second, 0)
    await told(third, 1)
    await greeted(second)
    assert len(second.of_type("bot-ready")) == 1
    assert await status(server) == (1, 1)
    second.send(typed("3", "How do I report a lost card?"))
    await second.until(lambda: len(second.of_type("bot-stopped-speaking")) == 2, within_s=GREETED_S)
    assert [each["data"]["text"] for each in second.of_type("user-input")] == ["How do I report a lost card?"]
    await second.hang_up()
    await third.hang_up()
    await until_status(server, (0, 0))


@shared
async def test_a_browser_in_the_queue_that_leaves_or_vanishes_is_removed(server: RunningServer, dial: Dial):
    await dial(server)
    second, third = await dial(server), await dial(server)
    await told(third, 2)
    await second.hang_up()
    await told(third, 1)
    third.vanish()
    # vanish_ms, as in a call.
    await until_status(server, (1, 0))


@shared
async def test_a_stopping_server_refuses_callers_in_the_queue_with_the_reason(tmp_path: Path, dial: Dial):
    async with full_server(tmp_path) as server:
        first, second = await dial(server), await dial(server)
        await told(second, 1)
        async with connect(server.url.replace("http", "ws") + "/ws/half_duplex/a") as client:
            assert json.loads(await client.recv())["type"] == "queued"
            server.process.terminate()

            async def is_closed() -> None:
                async with asyncio.timeout(3):
                    while True:
                        await client.recv()

            place, closed = await asyncio.gather(told(second, 0), is_closed(), return_exceptions=True)
        assert not isinstance(place, BaseException), place
        assert "the server is stopping" in place["refused"]
        assert isinstance(closed, ConnectionClosed), closed
        assert closed.rcvd is not None and closed.rcvd.code == 1012
        await first.hang_up()
        await second.hang_up()


@shared
async def test_a_browser_that_the_operator_removes_from_the_queue_is_refused_with_the_reason(
    server: RunningServer, dial: Dial
):
    async with httpx.AsyncClient(base_url=server.url) as http:
        await dial(server)
        second, third = await dial(server), await dial(server)
        ticket = (await told(second, 1))["ticket_id"]
        await told(third, 2)
        items = (await http.get("/api/queue", headers=BEARER)).json()["items"]
        assert [(each["kind"], each["transport"], each["position"]) for each in items] == [
            ("line", "webrtc", 1),
            ("line", "webrtc", 2),
        ]
        assert items[0]["ticket_id"] == ticket
        removed = await http.delete(f"/api/queue/{ticket}", headers=BEARER)
        assert removed.json() == {"success": True}
        assert (await told(second, 0))["refused"] == "an operator removed you from the queue"
        await told(third, 1)
        await until_status(server, (1, 1))


async def read(socket: ClientConnection, kind: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Read messages until one of a kind, and return that."""
    async with asyncio.timeout(GREETED_S):
        while True:
            text = await socket.recv()
            message = json.loads(text) if isinstance(text, str) else {"type": "audio"}
            messages.append(message)
            if message["type"] == kind:
                return message


@shared
async def test_a_second_evaluation_socket_waits_and_is_served_when_the_first_is_closed(server: RunningServer):
    hello = eval_connect_message(EvalConnectionFlags())
    url = server.url.replace("http", "ws") + "/ws"
    heard: list[dict[str, Any]] = []
    async with connect(url) as first:
        await first.send(hello)
        await first.send(json.dumps(READY))
        await read(first, "bot-ready", [])
        async with connect(url) as second:
            await second.send(hello)
            place = await read(second, "server-message", heard)
            assert (place["data"]["kind"], place["data"]["position"]) == ("queue", 1)
            # Said while it waits, and answered when it has its line.
            await second.send(json.dumps(READY))
            async with connect(url) as third:
                await third.send(hello)
                assert (await read(third, "server-message", []))["data"]["position"] == 2
            await until_status(server, (1, 1), within_s=2)
            await first.close()
            await read(second, "bot-ready", heard)
            assert places(heard)[-1]["position"] == 0
            assert await status(server) == (1, 0)


@shared
@pytest.mark.parametrize(
    ("path", "prefix", "begin", "prepared"),
    [
        ("/ws/duplex/adx_1", "", {"type": "prepare"}, "prepared"),
        (
            "/v1/realtime?mode=audio",
            "session.",
            {"type": "session.update", "session": {"instructions": "Be kind."}},
            "created",
        ),
    ],
)
async def test_a_full_duplex_client_waits_for_a_line_and_then_for_an_engine_in_one_queue(
    server: RunningServer, dial: Dial, path: str, prefix: str, begin: dict[str, Any], prepared: str
):
    first = await dial(server)
    async with page(server.url, path) as client:
        place = await client.until(f"{prefix}queued")
        assert place["position"] == 1 and place["estimated_wait_s"] > 0
        await first.hang_up()
        await client.until(f"{prefix}queue_done")
        await client.send(**begin)
        await client.until(f"{prefix}{prepared}")
        kinds = [kind for kind in client.kinds if kind != f"{prefix}queue_update"]
        assert kinds == [f"{prefix}{kind}" for kind in ("queued", "queue_done", prepared)]


@pytest.mark.browser
@pytest.mark.paired
async def test_the_page_shows_the_place_in_the_queue_for_a_line(chromium: str, tmp_path: Path):
    flags = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
    with serving(tmp_path, "llm: {name: documents}", calls=1, of_one_address=2) as served:
        async with visit(chromium, served.address, *flags) as first:
            await first.part("talk").click()
            await first.state("listening", "speaking")
            await first.context.add_init_script(COUNT_TONES)
            second = await open_page(first.context, served.address)
            await second.part("talk").click()
            notice = second.part("notice")
            await expect(notice).to_contain_text("You are number 1 in the queue, about")
            await second.state("connecting", within_s=1)
            await first.part("talk").click()
            await first.state("ready")
            await second.state("listening", "speaking")
            await expect(notice).not_to_contain_text("queue", timeout=3_000)
            assert await second.page.evaluate("window.tones") == 2, "the two of the chime"
            await second.part("talk").click()
            await second.state("ready")
