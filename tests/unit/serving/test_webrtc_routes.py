"""Offers of clients with credentials: calls that one token begins, and requests that a key permits."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import uvloop
from fastapi import FastAPI
from pipecat.runner.types import RunnerArguments
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.core.grants import ClientIdentity
from parley.serving.gateway.app import add_error_answers
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.client_keys import ClientKeys
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.webrtc.routes import WebRtcRoutes
from parley.transports.webrtc.signaling import Signaling
from tests.peers.session_gateway import client_of
from tests.peers.webrtc_caller import Caller
from tests.served_app import served_app

KEY = "k" * 32


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Gateway:
    """The routes, with calls that last until they are ended.

    Attributes:
        clock: clock of the tokens.
        calls: calls that were begun.
        door: door of their connections.
    """

    def __init__(self, *, door_calls: int = 4, **settings: Any) -> None:
        bounds = ServerTuning(**{"drain_s": 0, "hang_up_s": 0.2, **settings})
        self.clock = Clock()
        self._keys = ClientKeys(bounds, wall_s=self.clock)
        self._end = asyncio.Event()
        self.calls = CallTasks(self._converse, max_calls=4, drain_s=0, hang_up_s=0.2)
        self.door = Signaling(self._on_call, max_calls=door_calls, hang_up_s=0.2)
        self.app = FastAPI()
        add_error_answers(self.app)
        routes = WebRtcRoutes(
            bounds,
            door=self.door,
            calls=self.calls,
            check_body=self._check,
            usage=UsageLimits(bounds),
            access=Access(bounds, keys=self._keys),
        )
        self.app.include_router(routes.router())

    async def _check(self, _body: Mapping[str, object], _identity: ClientIdentity) -> None: ...

    async def _converse(self, _arguments: RunnerArguments) -> None:
        await self._end.wait()

    async def _on_call(self, connection: SmallWebRTCConnection, _body: dict[str, object]) -> None:
        self.calls.start(
            RunnerArguments(), call_id=connection.pc_id, hang_up=lambda: self.door.hang_up(connection)
        )

    async def end(self, pc_id: str) -> None:
        """End a call, as its conversation does."""
        call = self.calls.get(pc_id)
        self._end.set()
        if call is not None:
            await asyncio.wait_for(call, 5)
        self._end.clear()

    def token(self, **wanted: Any) -> dict[str, str]:
        application = self._keys.application_of(KEY)
        assert application is not None
        return bearer(self._keys.mint(application, **wanted))


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    gateway = Gateway(sessions_per_minute=3)
    yield gateway
    await gateway.calls.close(gateway.door.close)


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(gateway.app) as client:
        yield client


@pytest.fixture
async def offer() -> AsyncIterator[dict[str, Any]]:
    caller = Caller()
    yield await caller.offer()
    await caller.hang_up()


async def test_a_started_session_begins_one_call_and_another_needs_a_token_of_its_own(
    gateway: Gateway, client: httpx.AsyncClient, offer: dict[str, Any]
):
    token = gateway.token(user="ann")
    started = (await client.post("/start", json={}, headers=token)).json()
    path = f"/sessions/{started['sessionId']}/api/offer"
    begun = await client.post(path, json=offer)
    assert begun.status_code == 200
    await gateway.end(begun.json()["pc_id"])
    for headers in ({}, token):
        assert (await client.post(path, json=offer, headers=headers)).status_code == 401
    again = await client.post(path, json=offer, headers=bearer(started["next_token"]))
    assert again.status_code == 200 and again.json()["next_token"]


async def test_a_started_session_begins_no_call_when_its_grants_have_ended(
    gateway: Gateway, client: httpx.AsyncClient, offer: dict[str, Any]
):
    started = (await client.post("/start", json={}, headers=gateway.token(for_s=30))).json()
    gateway.clock.now_s += 31
    refused = await client.post(f"/sessions/{started['sessionId']}/api/offer", json=offer)
    assert refused.status_code == 401 and "have expired" in refused.text


async def test_an_offer_without_a_session_brings_the_next_token(
    gateway: Gateway, client: httpx.AsyncClient, offer: dict[str, Any]
):
    answer = (await client.post("/api/offer", json=offer, headers=gateway.token())).json()
    assert set(answer) >= {"sdp", "type", "pc_id", "next_token"}
    assert (await client.post("/start", json={}, headers=bearer(answer["next_token"]))).status_code == 200
    # The key is still valid.
    assert "next_token" not in (await client.post("/api/offer", json=offer, headers=bearer(KEY))).json()


async def test_of_requests_that_come_together_with_one_token_one_begins(
    gateway: Gateway, client: httpx.AsyncClient, offer: dict[str, Any]
):
    token = gateway.token()
    requests = [client.post("/api/offer", json=offer, headers=token) for _ in range(3)]
    requests += [client.post("/start", json={}, headers=token) for _ in range(2)]
    answers = await asyncio.gather(*requests)
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401, 401]
    for answer in answers:
        assert answer.status_code == 200 or "has been used" in answer.json()["error"]
    begun = [answer.json().get("pc_id") for answer in answers if answer.status_code == 200]
    assert gateway.door.open_calls == sum(pc_id is not None for pc_id in begun)


async def test_offers_of_one_started_session_that_come_together_begin_one_call(
    gateway: Gateway, client: httpx.AsyncClient, offer: dict[str, Any]
):
    started = (await client.post("/start", json={}, headers=gateway.token())).json()
    path = f"/sessions/{started['sessionId']}/api/offer"
    answers = await asyncio.gather(*(client.post(path, json=offer) for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    assert gateway.door.open_calls == 1


async def test_a_body_that_is_not_accepted_has_its_own_refusal_and_costs_no_token(
    gateway: Gateway, client: httpx.AsyncClient, offer: dict[str, Any]
):
    token = gateway.token()
    for body, status, why in (
        (b"{", 400, "not JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'{"type": "offer"}', 422, "sdp: Field required"),
        (json.dumps({**offer, "sdp": "v" * 100_000}).encode(), 422, "sdp: String should have at most"),
        (json.dumps({**offer, "pc_id": 5}).encode(), 422, "pc_id: Input should be a valid string"),
    ):
        refused = await client.post("/api/offer", content=body, headers=token)
        assert refused.status_code == status and why in refused.json()["error"]
    assert (await client.post("/api/offer", json=offer, headers=token)).status_code == 200


async def test_a_back_end_with_a_key_is_not_held_to_the_rate_of_an_address(
    gateway: Gateway, client: httpx.AsyncClient
):
    for _ in range(12):
        assert (await client.post("/start", json={}, headers=bearer(KEY))).status_code == 200
    # A call of a valid credential takes nothing from its address, and a wrong key counts as a stranger's.
    wrong = [(await client.post("/start", json={}, headers=bearer("w" * 32))).status_code for _ in range(7)]
    assert wrong == [401] * 6 + [429]
    assert (await client.post("/start", json={}, headers=bearer(KEY))).status_code == 200


async def test_an_offer_that_is_refused_is_no_session_of_its_client(
    offer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    # The signalling has a line less than the calls, as when the last one is taken in between.
    gateway = Gateway(door_calls=1, sessions_per_minute=4)
    try:
        async with client_of(gateway.app) as client:
            begun = await client.post("/api/offer", json=offer)
            assert begun.status_code == 200
            for _ in range(4):
                assert (await client.post("/api/offer", json=offer)).status_code == 503
            await gateway.end(begun.json()["pc_id"])
            again = await client.post("/api/offer", json=offer)
            assert again.status_code == 200, again.text
    finally:
        await gateway.calls.close(gateway.door.close)


class Handled:
    """ASGI middleware that sets an event when a request of a path has been handled."""

    def __init__(self, app: ASGIApp, *, path: str, handled: asyncio.Event) -> None:
        self._app = app
        self._path = path
        self._handled = handled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            if scope["type"] == "http" and scope["path"] == self._path:
                self._handled.set()


def give_up(port: int, path: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a request and close its connection. Blocks: the server, in this thread, is as busy as one that
    loads, and finds the request and the end of the connection together.
    """
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items())])
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(f"{head}\r\n\r\n".encode() + body)


@pytest.mark.parametrize("path", ["/start", "/api/offer"])
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_gave_its_request_up_keeps_its_token(
    loop_factory: Any, path: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)

    async def given_up() -> tuple[int, int, int]:
        gateway, caller, handled = Gateway(), Caller(), asyncio.Event()
        gateway.app.get("/health")(lambda: {})
        gateway.app.add_middleware(Handled, path=path, handled=handled)
        token, body = gateway.token(user="ann"), json.dumps(await caller.offer()).encode()
        try:
            async with served_app(gateway.app, ServerTuning(stop_requests_s=0)) as here:
                give_up(here.port, path, body, token)
                async with asyncio.timeout(10):
                    await handled.wait()
                begun = gateway.calls.active
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", timeout=10) as client:
                    later = await client.post(path, content=body, headers=token)
                    # It is used up by a request that is answered.
                    again = await client.post(path, content=body, headers=token)
        finally:
            await gateway.calls.close(gateway.door.close)
            await caller.hang_up()
        return begun, later.status_code, again.status_code

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(given_up()) == (0, 200, 401)
