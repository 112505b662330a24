import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pipecat.runner.types import RunnerArguments

from serving.gateway.app import create_app
from serving.gateway.settings import ServerSettings
from tests.peers.webrtc_caller import Caller
from transports.webrtc.signaling import Signaling


class Calls:
    """Conversations that last until they are told to end."""

    def __init__(self) -> None:
        self.arguments: list[RunnerArguments] = []
        self.end = asyncio.Event()
        self.ended = 0

    async def run(self, arguments: RunnerArguments) -> None:
        self.arguments.append(arguments)
        try:
            await self.end.wait()
        finally:
            self.ended += 1


@pytest.fixture
async def calls() -> Calls:
    return Calls()


def make(calls: Calls, **settings: Any) -> Any:
    bounds = ServerSettings(drain_s=0.1, **settings)
    return create_app(
        bounds,
        run_call=calls.run,
        describe=lambda: {"name": "test"},
        open_door=lambda on_call: Signaling(on_call, max_calls=bounds.max_calls),
    )


@pytest.fixture
async def client(calls: Calls) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(make(calls, max_calls=2)) as client:
        yield client


def serve(app: Any) -> Any:
    return _Served(app)


class _Served:
    def __init__(self, app: Any) -> None:
        self._lifespan = app.router.lifespan_context(app)
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parley.test")

    async def __aenter__(self) -> httpx.AsyncClient:
        await self._lifespan.__aenter__()
        return self._client

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()
        await self._lifespan.__aexit__(None, None, None)


async def test_the_page_is_served_at_the_root(client: httpx.AsyncClient):
    page = await client.get("/")
    assert page.status_code == 200
    assert "<title>Parley</title>" in page.text


async def test_everything_the_page_names_is_served_here(client: httpx.AsyncClient):
    waiting, seen = ["/"], set[str]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = await client.get(path)
        assert answer.status_code == 200, path
        named = re.findall(r'(?:src|href)="([^"]+)"|from "\.(/[^"]+)"', answer.text)
        for address in (link or f"/shared{module}" for link, module in named):
            assert address.startswith("/shared/"), f"{path} names {address}"
            waiting.append(address)
    assert {"/shared/talk.js", "/shared/call.js", "/shared/talk.css", "/shared/favicon.svg"} <= seen


@pytest.mark.parametrize("path", ["/", "/shared/talk.js", "/status", "/nowhere"])
async def test_every_answer_forbids_what_this_server_does_not_serve(client: httpx.AsyncClient, path: str):
    headers = (await client.get(path)).headers
    rules = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
    assert rules["default-src"] == rules["script-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path", ["/shared/../pages/index.html", "/shared/%2e%2e/%2e%2e/bot.py", "/pages/index.html"]
)
async def test_nothing_beside_the_page_is_served(client: httpx.AsyncClient, path: str):
    assert (await client.get(path)).status_code == 404


async def test_health_counts_calls(client: httpx.AsyncClient, calls: Calls):
    caller = Caller()
    await client.post("/api/offer", json=await caller.offer())
    assert (await client.get("/health")).json() == {"status": "ok", "calls": 1, "max_calls": 2}
    await caller.hang_up()


async def test_an_offer_is_answered_and_starts_a_conversation(client: httpx.AsyncClient, calls: Calls):
    caller = Caller()
    answer = await client.post("/api/offer", json={**await caller.offer(), "requestData": {"topic": "cards"}})
    assert answer.status_code == 200
    assert answer.json()["type"] == "answer"
    await asyncio.sleep(0)
    assert calls.arguments[0].body == {"topic": "cards"}
    await caller.hang_up()


async def test_the_page_opens_a_session_first(client: httpx.AsyncClient, calls: Calls):
    started = (await client.post("/start", json={"transport": "webrtc", "body": {"a": 1}})).json()
    caller = Caller()
    path = f"/sessions/{started['sessionId']}/api/offer"
    assert (await client.post(path, json=await caller.offer())).status_code == 200
    await asyncio.sleep(0)
    assert calls.arguments[0].body == {"a": 1}
    assert (await client.post("/sessions/unknown/api/offer", json=await caller.offer())).status_code == 404
    await caller.hang_up()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"not json", 400, "not JSON"),
        (b"[1, 2]", 400, "must be a JSON object"),
        (b"{}", 422, "sdp"),
        (b'{"sdp": 5, "type": "offer"}', 422, "sdp"),
        (b'{"sdp": "v=0", "type": "answer"}', 422, "type"),
        (b'{"sdp": "hello", "type": "offer"}', 400, "SDP"),
        (b'{"sdp": "v=0\\r\\n", "type": "offer"}', 400, "audio"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
    ],
)
async def test_a_malformed_offer_is_refused_with_the_reason(
    client: httpx.AsyncClient, calls: Calls, body: bytes, status: int, says: str
):
    answer = await client.post("/api/offer", content=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert (await client.get("/health")).json()["calls"] == 0
    assert calls.arguments == []


async def test_an_sdp_that_parses_and_cannot_be_negotiated_is_refused(
    client: httpx.AsyncClient, calls: Calls
):
    caller = Caller()
    offer = await caller.offer()
    broken = "\r\n".join(line for line in offer["sdp"].splitlines() if not line.startswith("a=fingerprint"))
    answer = await client.post("/api/offer", json={"sdp": broken + "\r\n", "type": "offer"})
    assert answer.status_code == 400
    assert calls.arguments == []
    await caller.hang_up()


async def test_an_oversized_body_is_refused_before_it_is_parsed(client: httpx.AsyncClient):
    answer = await client.post("/api/offer", content=b"x" * 300_000)
    assert answer.status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 10_000

    assert (await client.post("/api/offer", content=chunks())).status_code == 413


async def test_an_oversized_sdp_is_refused(client: httpx.AsyncClient):
    answer = await client.post("/api/offer", content=json.dumps({"sdp": "v" * 100_000, "type": "offer"}))
    assert answer.status_code == 422


async def test_one_call_too_many_gets_503(client: httpx.AsyncClient):
    callers = [Caller() for _ in range(3)]
    statuses = [
        (await client.post("/api/offer", json=await caller.offer())).status_code for caller in callers
    ]
    assert statuses == [200, 200, 503]
    for caller in callers:
        await caller.hang_up()


async def test_candidates_for_an_unknown_call_or_of_nonsense_are_refused(client: httpx.AsyncClient):
    unknown = {"pc_id": "nobody", "candidates": []}
    assert (await client.patch("/api/offer", json=unknown)).status_code == 400
    caller = Caller()
    pc_id = (await client.post("/api/offer", json=await caller.offer())).json()["pc_id"]
    nonsense = {"candidate": "candidate:nonsense", "sdp_mid": "0", "sdp_mline_index": 0}
    refused = await client.patch("/api/offer", json={"pc_id": pc_id, "candidates": [nonsense]})
    assert refused.status_code == 400
    end = {"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}
    assert (await client.patch("/api/offer", json={"pc_id": pc_id, "candidates": [end]})).status_code == 200
    await caller.hang_up()


async def test_a_page_of_another_origin_may_not_call(calls: Calls):
    caller = Caller()
    offer = await caller.offer()
    async with serve(make(calls, allowed_origins=("https://shop.example",))) as client:

        async def status(origin: str) -> int:
            return (await client.post("/api/offer", json=offer, headers={"origin": origin})).status_code

        assert await status("https://evil.example") == 403
        assert await status("https://shop.example") == 200
        assert await status("http://parley.test") == 200
    await caller.hang_up()


async def test_closing_the_server_ends_running_conversations(calls: Calls):
    caller = Caller()
    async with serve(make(calls)) as client:
        await client.post("/api/offer", json=await caller.offer())
        await asyncio.sleep(0)
    assert calls.ended == 1
    await caller.hang_up()


async def test_a_conversation_that_fails_ends_alone(calls: Calls):
    async def fail(_arguments: RunnerArguments) -> None:
        raise RuntimeError("broken conversation")

    bounds = ServerSettings(drain_s=0.1)
    app = create_app(
        bounds, run_call=fail, describe=dict, open_door=lambda on_call: Signaling(on_call, max_calls=4)
    )
    caller = Caller()
    async with serve(app) as client:
        assert (await client.post("/api/offer", json=await caller.offer())).status_code == 200
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=0.2)
        assert (await client.get("/health")).json()["calls"] == 0
    await caller.hang_up()
