"""``POST /api/chat``: who may send one, what a failure answers, and what happens when its client leaves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from parley.core.errors import CapacityError
from parley.protocols.client_protocol import STOPPING
from parley.serving.gateway.admin.apps import Apps
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.app import create_app
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.chat_exchange import ChatExchange
from parley.serving.gateway.sockets.chat_sockets import ChatRequestArguments
from parley.transports.webrtc.signaling import Signaling
from tests.peers.session_gateway import served

KEY = "k" * 32
REQUEST = {"messages": [{"role": "user", "content": "Hello."}]}
DONE = {
    "type": "done",
    "text": "Good morning.",
    "generated_tokens": 3,
    "input_tokens": 7,
    "session_id": "s",
    "recording_session_id": "s",
}
Converse = Callable[[ChatExchange], Awaitable[None]]


def application(converse: Converse, operations: Operations | None = None, **settings: Any) -> FastAPI:
    async def run_call(arguments: Any) -> None:
        assert isinstance(arguments, ChatRequestArguments)
        await converse(arguments.exchange)

    return create_app(
        ServerTuning(drain_s=0, **settings),
        run_call=run_call,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
        modes=("cascade",),
        operations=operations,
    )


@asynccontextmanager
async def gateway(converse: Converse, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application(converse, **given))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def answer(exchange: ChatExchange) -> None:
    assert json.loads(await exchange.receive() or "") == REQUEST
    exchange.begin()
    await exchange.send(json.dumps({"type": "prefill_done", "cached_tokens": 2, "input_tokens": 7}))
    await exchange.send(json.dumps(DONE))
    await exchange.close(1000, "")


def failing(code: str, close: int) -> Converse:
    async def fail(exchange: ChatExchange) -> None:
        await exchange.receive()
        refused = await exchange.send(json.dumps({"type": "error", "error": "not now", "code": code}))
        assert refused
        # A refused message is followed by none: the conversation ends.
        assert await exchange.receive() is None
        await exchange.close(close, "")

    return fail


async def test_the_answer_has_the_fields_of_that_servers_schema():
    async with gateway(answer) as client:
        found = (await client.post("/api/chat", json=REQUEST)).json()
    assert found.pop("duration_ms") >= 0 and found.pop("queue_wait_ms") >= 0
    assert found == {
        "text": "Good morning.",
        "audio_data": None,
        "audio_sample_rate": 24_000,
        "tokens_generated": 3,
        "token_stats": {"cached_tokens": 2, "input_tokens": 7, "generated_tokens": 3},
        "recording_session_id": "s",
        "success": True,
        "error": None,
        "estimated_queue_wait_s": 0.0,
        "session_id": "s",
    }


@pytest.mark.parametrize(
    ("code", "close", "status"),
    [
        ("invalid_payload", 1000, 422),
        ("unsupported", 1003, 422),
        ("too_large", 1003, 413),
        ("rate_limit_exceeded", 1003, 429),
        ("session_lost", 1011, 409),
        ("", 1013, 503),
        ("", 1012, 503),
        ("ended_by_operator", 1008, 403),
        ("", 1011, 500),
    ],
)
async def test_a_failure_is_a_status_with_its_reason(code: str, close: int, status: int):
    async with gateway(failing(code, close)) as client:
        failed = await client.post("/api/chat", json=REQUEST)
    assert failed.status_code == status
    assert (failed.json()["error"], failed.json()["detail"]) == ("not now", "not now")


async def test_a_conversation_that_says_nothing_is_a_failure():
    async def fall_silent(exchange: ChatExchange) -> None:
        await exchange.close(1011, "failed")

    async with gateway(fall_silent) as client:
        failed = await client.post("/api/chat", json=REQUEST)
    assert (failed.status_code, failed.json()["detail"]) == (500, "failed")


async def test_a_client_needs_its_key_before_its_body_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    async with gateway(answer) as client:
        refused = await client.post("/api/chat", content=b"{no json")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.json()["detail"] == refused.json()["error"]
        key = {"authorization": f"Bearer {KEY}"}
        token = (await client.post("/api/token", json={}, headers=key)).json()["token"]
        mine = {"authorization": f"Bearer {token}"}
        assert (await client.post("/api/chat", json=REQUEST, headers=mine)).status_code == 200
        # It is used up.
        assert (await client.post("/api/chat", json=REQUEST, headers=mine)).status_code == 401
        other = (await client.post("/api/token", json={"surfaces": ["omni"]}, headers=key)).json()["token"]
        foreign = {"authorization": f"Bearer {other}"}
        assert (await client.post("/api/chat", json=REQUEST, headers=foreign)).status_code == 403


async def test_the_surface_can_be_closed():
    async with gateway(answer, operations=Operations(apps=Apps({"turnbased": False}))) as client:
        refused = await client.post("/api/chat", json=REQUEST)
    assert refused.status_code == 403 and refused.json()["detail"]


async def test_a_full_server_refuses_a_request_and_says_when_to_come_again():
    begun, ends = asyncio.Event(), asyncio.Event()

    async def hold(exchange: ChatExchange) -> None:
        exchange.begin()
        begun.set()
        await ends.wait()
        await answer(exchange)

    async with gateway(hold, max_calls=1) as client:
        first = asyncio.create_task(client.post("/api/chat", json=REQUEST))
        await begun.wait()
        refused = await client.post("/api/chat", json=REQUEST)
        ends.set()
        assert (await first).status_code == 200
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0


async def test_a_client_that_leaves_ends_its_conversation():
    begun, left = asyncio.Event(), asyncio.Event()

    async def hold(exchange: ChatExchange) -> None:
        await exchange.receive()
        begun.set()
        assert await exchange.receive() is None
        # As an engine that ends its answer when the client is gone.
        assert not await exchange.send(json.dumps(DONE))
        left.set()

    async with served(application(hold)) as server, asyncio.timeout(10):
        body = json.dumps(REQUEST).encode()
        leaving = await server.send("POST", "/api/chat", body, "Content-Type: application/json")
        await begun.wait()
        leaving.transport.abort()
        await left.wait()
        # Its line is free again.
        async with httpx.AsyncClient(base_url=server.url) as client:
            while (await client.get("/health")).json()["calls"]:
                await asyncio.sleep(0.01)


async def test_a_server_that_stops_answers_a_request_in_progress():
    begun = asyncio.Event()

    async def hold(exchange: ChatExchange) -> None:
        begun.set()
        try:
            await exchange.receive()
            await exchange.receive()
        finally:
            # As every conversation by turns ends when it is cancelled.
            await exchange.close(*STOPPING)

    app = application(hold)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        asking = asyncio.create_task(client.post("/api/chat", json=REQUEST))
        await begun.wait()
        await app.state.drain()
        stopped = await asyncio.wait_for(asking, 10)
        late = await client.post("/api/chat", json=REQUEST)
    assert (stopped.status_code, late.status_code) == (503, 503)
    assert stopped.json()["detail"] == STOPPING[1]


async def test_a_conversation_that_cannot_begin_is_a_refusal():
    async def refuse(exchange: ChatExchange) -> None:
        raise CapacityError("the store is full", limit=1)

    async with gateway(refuse) as client:
        failed = await client.post("/api/chat", json=REQUEST)
    assert failed.status_code == 500 and failed.json()["detail"] == "no answer was made"
