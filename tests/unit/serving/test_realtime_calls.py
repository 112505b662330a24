"""Offers of OpenAI's realtime protocol over WebRTC: their forms, their credentials, and the end of a call."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, WebSocket
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus

from parley.protocols.client_protocol import SessionUpdate
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.serving.gateway.admin.apps import Apps
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.client_settings import ClientsSettings, GrantSettings
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.webrtc.held_calls import MOST_FOLLOWING, MOST_UNSENT_BYTES, HeldCall
from parley.serving.gateway.webrtc.realtime_calls import RealtimeCallArguments
from parley.transports.webrtc.event_channel import EventChannel
from parley.transports.webrtc.signaling import Signaling
from tests.peers.event_caller import PATH, SDP, EventCaller
from tests.peers.webrtc_caller import until_state
from tests.served_app import served_app

KEY, OTHER = "k" * 32, "o" * 32


class Gateway:
    """An application whose conversations last until their client leaves.

    Attributes:
        app: the application.
        begun: arguments of the conversations.
        read: texts that they have read.
    """

    def __init__(self, operations: Operations | None = None, **settings: Any) -> None:
        self.begun: list[RealtimeCallArguments] = []
        self.read: list[str] = []
        self._news = asyncio.Event()

        async def converse(arguments: Any) -> None:
            self.begun.append(arguments)
            while (text := await arguments.connection.events.receive()) is not None:
                self.read.append(text)
                self._news.set()

        self.app = create_app(
            ServerTuning(**{"drain_s": 0, "hang_up_s": 0.5, **settings}),
            run_call=converse,
            describe=dict,
            open_door=lambda on_call: Signaling(on_call, max_calls=2, hang_up_s=0.5),
            modes=("cascade", "duplex"),
            operations=operations,
        )

    @property
    def active(self) -> int:
        return int(self.app.state.calls.active)

    async def until_read(self, text: str) -> None:
        async with asyncio.timeout(5):
            while text not in self.read:
                self._news.clear()
                await self._news.wait()

    async def until_over(self) -> None:
        async with asyncio.timeout(5):
            while self.active:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.app.router.lifespan_context(gateway.app):
        transport = httpx.ASGITransport(gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY},{OTHER}")


@pytest.fixture
async def caller() -> AsyncIterator[EventCaller]:
    caller = EventCaller()
    yield caller
    await caller.hang_up()


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


async def secret(client: httpx.AsyncClient, key: str = KEY) -> str:
    answer = await client.post("/v1/realtime/client_secrets", headers=bearer(key))
    return str(answer.json()["value"])


async def test_an_offer_is_answered_as_openai_does(caller: EventCaller):
    gateway = Gateway()
    async with serving(gateway) as client:
        answer = await caller.call(client, query="model=parley-duplex")
        assert answer.status_code == 201
        assert answer.headers["content-type"] == "application/sdp"
        # The candidates are in it: there is no other way for them.
        assert answer.text.startswith("v=0") and "a=candidate:" in answer.text
        assert answer.headers["location"].startswith(f"{PATH}/rtc_")
        await until_state(caller.connection, "connected")
        [arguments] = gateway.begun
        assert (arguments.mode, arguments.first_event) == ("duplex", "")
        # A peer that closes before its own handshake is complete cannot notify the other.
        await until_state(arguments.connection.pc, "connected")
        ended = await client.post(f"{PATH}/{caller.call_id}/hangup")
        assert (ended.status_code, ended.content) == (200, b"")
        await gateway.until_over()
        await until_state(caller.connection, "closed", within_s=5)
        assert (await client.post(f"{PATH}/{caller.call_id}/hangup")).status_code == 404


async def test_a_form_has_the_settings_of_the_session_with_the_offer(caller: EventCaller):
    gateway = Gateway()
    async with serving(gateway) as client:
        session = {"type": "realtime", "model": "parley-cascade", "audio": {"output": {"voice": "marin"}}}
        assert (await caller.call_with(client, session)).status_code == 201
        await until_state(caller.connection, "connected")
        [arguments] = gateway.begun
        assert arguments.mode == "cascade"
        assert json.loads(arguments.first_event) == {"type": "session.update", "session": session}


async def test_a_form_of_a_browser_has_texts_without_a_type(caller: EventCaller):
    async with serving(Gateway()) as client:
        texts = {"sdp": (None, (await caller.offer())["sdp"]), "session": (None, '{"type": "transcription"}')}
        answer = await client.post(PATH, files=texts)
        assert answer.status_code == 201, answer.text


async def test_a_voice_of_the_deployment_is_left_to_the_call_that_knows_it(caller: EventCaller):
    gateway = Gateway()
    async with serving(gateway) as client:
        session = {"type": "realtime", "audio": {"output": {"voice": "anna"}}}
        assert (await caller.call_with(client, session)).status_code == 201
        await until_state(caller.connection, "connected")
        assert json.loads(gateway.begun[0].first_event)["session"] == session


async def test_a_transcription_by_its_address_answers_nothing(caller: EventCaller):
    gateway = Gateway()
    async with serving(gateway) as client:
        sdp = (await caller.offer())["sdp"]
        answer = await client.post(f"{PATH}?intent=transcription", content=sdp, headers=SDP)
        assert (await caller.take(answer)).status_code == 201, answer.text
        await until_state(caller.connection, "connected")
        [arguments] = gateway.begun
        actions = list(arguments.protocol.read(arguments.first_event, 0))
        assert SessionUpdate(answers=False) in actions


async def test_what_is_not_an_offer_is_refused_in_the_form_of_openai_and_costs_no_secret(
    keys: None, caller: EventCaller
):
    async with serving(Gateway()) as client:
        sdp, token = (await caller.offer())["sdp"], bearer(await secret(client))
        tools = json.dumps({"type": "realtime", "tools": [{"type": "web_search"}]})
        for body, param, why in (
            ({"content": sdp, "headers": {"content-type": "application/json"}}, None, "application/sdp"),
            ({"content": b"v=0\xff", "headers": SDP}, "body", "UTF-8"),
            ({"content": b"", "headers": SDP}, None, "sdp"),
            ({"content": "v" * 100_000, "headers": SDP}, None, "64000"),
            ({"content": sdp.replace("opus", "nosuch"), "headers": SDP}, None, "Opus"),
            ({"files": {"session": (None, "{}")}}, "sdp", "missing"),
            ({"files": {"sdp": (None, sdp), "session": (None, "[]")}}, None, "not a JSON object"),
            (
                {"files": {"sdp": (None, sdp), "session": (None, tools)}},
                "session.tools[0]",
                "tool",
            ),
            ({"files": [("sdp", (None, sdp))] * 20}, None, "fields"),
        ):
            headers = {**token, **body.pop("headers", {})}  # type: ignore[dict-item]
            refused = await client.post(PATH, **body, headers=headers)  # type: ignore[arg-type]
            error = refused.json()["error"]
            assert (refused.status_code, error["type"]) == (400, "invalid_request_error"), refused.text
            assert why in error["message"] and error["param"] == param, error
        assert (await client.post(PATH, content=sdp, headers={**token, **SDP})).status_code == 201


async def test_a_body_that_is_too_large_is_not_read(caller: EventCaller):
    async with serving(Gateway()) as client:
        refused = await client.post(PATH, content=b"v" * 300_000, headers=SDP)
        assert refused.status_code == 413 and "body over" in refused.json()["error"]


async def test_a_secret_begins_one_call_and_ends_its_own_and_no_other(keys: None, caller: EventCaller):
    gateway = Gateway()
    async with serving(gateway) as client:
        sdp = (await caller.offer())["sdp"]
        assert (await client.post(PATH, content=sdp, headers=SDP)).status_code == 401
        wrong = await client.post(PATH, content=sdp, headers={**SDP, **bearer("ek_wrong")})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_api_key")
        token = await secret(client)
        # Clients for pages take no credential of another form.
        assert token.startswith("ek_")
        answer = await caller.take(await client.post(PATH, content=sdp, headers={**SDP, **bearer(token)}))
        assert answer.status_code == 201
        used = await client.post(PATH, content=sdp, headers={**SDP, **bearer(token)})
        assert used.status_code == 401 and "has been used" in used.json()["error"]["message"]
        end = f"{PATH}/{caller.call_id}/hangup"
        for stranger in (await secret(client), await secret(client, OTHER), OTHER):
            assert (await client.post(end, headers=bearer(stranger))).status_code == 404
        assert (await client.post(end)).status_code == 401 and gateway.active == 1
        assert (await client.post(end, headers=bearer(token))).status_code == 200
        await gateway.until_over()


async def test_an_application_ends_the_calls_of_its_users(keys: None, caller: EventCaller):
    gateway = Gateway()
    async with serving(gateway) as client:
        headers = {**SDP, **bearer(await secret(client))}
        await caller.take(await client.post(PATH, content=(await caller.offer())["sdp"], headers=headers))
        assert (await client.post(f"{PATH}/{caller.call_id}/hangup", headers=bearer(KEY))).status_code == 200
        await gateway.until_over()


@pytest.mark.parametrize("granted", [True, False])
async def test_a_secret_has_the_instructions_and_tools_that_the_deployment_gives_users(
    keys: None, caller: EventCaller, granted: bool
):
    wanted = {"instructions": granted, "client_tools": granted, "client_mcp": granted}
    both = {"instructions": True, "client_tools": True, "client_mcp": True}
    gateway = Gateway(clients=ClientsSettings(key=GrantSettings(**both), user=GrantSettings(**wanted)))
    async with serving(gateway) as client:
        headers = {**SDP, **bearer(await secret(client))}
        await caller.take(await client.post(PATH, content=(await caller.offer())["sdp"], headers=headers))
        await until_state(caller.connection, "connected")
        grants = gateway.begun[0].identity.grants
        assert (grants.instructions, grants.client_tools, grants.client_mcp) == (granted,) * 3
        assert grants.surfaces == {"openai_realtime"}


async def test_a_token_for_another_surface_begins_no_call(keys: None, caller: EventCaller):
    async with serving(Gateway()) as client:
        token = await client.post("/api/token", json={"surfaces": ["browser"]}, headers=bearer(KEY))
        sdp = (await caller.offer())["sdp"]
        refused = await client.post(PATH, content=sdp, headers={**SDP, **bearer(token.json()["token"])})
        assert refused.status_code == 403 and "may not open" in refused.json()["error"]["message"]


async def test_a_closed_surface_begins_no_call(caller: EventCaller):
    async with serving(Gateway(Operations(apps=Apps({"openai_realtime": False})))) as client:
        assert (await caller.call(client)).status_code == 403


async def test_a_page_of_another_origin_calls_where_it_is_allowed_and_reads_the_id(caller: EventCaller):
    page = "https://shop.example"
    async with serving(Gateway(allowed_origins=(page,))) as client:
        asked = {"access-control-request-method": "POST", "origin": page}
        sent = {"access-control-request-headers": "authorization,content-type,x-openai-agents-sdk"}
        assert (await client.options(PATH, headers={**asked, **sent})).status_code == 200
        sdp = (await caller.offer())["sdp"]
        elsewhere = await client.post(PATH, content=sdp, headers={**SDP, "origin": "https://evil.example"})
        assert elsewhere.status_code == 403
        answer = await client.post(PATH, content=sdp, headers={**SDP, "origin": page})
        assert answer.status_code == 201
        assert "location" in answer.headers["access-control-expose-headers"]
        end = f"{answer.headers['location']}/hangup"
        assert (await client.post(end, headers={"origin": "https://evil.example"})).status_code == 403


async def test_a_full_server_refuses_at_once_and_keeps_nothing_of_the_offer(caller: EventCaller):
    gateway, more = Gateway(max_calls=1), EventCaller()
    async with serving(gateway) as client:
        assert (await caller.call(client)).status_code == 201
        refused = await more.call(client)
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert gateway.app.state.door.open_calls == 1
        await client.post(f"{PATH}/{caller.call_id}/hangup")
        await gateway.until_over()
        assert (await more.call(client)).status_code == 201
    await more.hang_up()


async def test_an_unknown_mode_or_session_begins_no_call(caller: EventCaller):
    gateway = Gateway()
    async with serving(gateway) as client:
        # There are no sessions here.
        assert (await caller.call(client, query="session=nosuchsession")).status_code == 400
        assert (await caller.call(client, query="pipeline=nosuch")).status_code == 400
        assert gateway.active == gateway.app.state.door.open_calls == 0


# Further connections to a call.


@asynccontextmanager
async def followed(gateway: Gateway, caller: EventCaller) -> AsyncIterator[str]:
    """Hold a call of a served application; yield the address of a further connection to it."""
    async with served_app(gateway.app, ServerTuning(stop_requests_s=0)) as here:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", timeout=10) as client:
            headers = bearer(await secret(client)) if os.environ.get("PARLEY_CALL_KEYS") else {}
            sdp = (await caller.offer())["sdp"]
            await caller.take(await client.post(PATH, content=sdp, headers={**SDP, **headers}))
            await until_state(caller.connection, "connected")
            yield f"ws://127.0.0.1:{here.port}/v1/realtime?call_id={caller.call_id}"
            await client.post(f"{PATH}/{caller.call_id}/hangup", headers=headers and bearer(KEY))


async def test_a_further_connection_sees_the_events_and_its_own_are_the_client_s(caller: EventCaller):
    gateway = Gateway()
    async with followed(gateway, caller) as address:
        events = gateway.begun[0].connection.events  # type: ignore[attr-defined]
        async with connect(address) as one, connect(address) as other:
            for socket in (one, other):
                assert json.loads(await socket.recv())["type"] == "session.created"
            await events.send('{"type": "response.created"}')
            assert await one.recv() == await other.recv() == '{"type": "response.created"}'
            await caller.until(lambda: caller.types() == ["response.created"])
            await one.send('{"type": "response.cancel"}')
            await gateway.until_read('{"type": "response.cancel"}')
            # It leaves, and the call goes on.
            await one.close()
            await events.send('{"type": "last"}')
            await caller.until(lambda: caller.types()[-1] == "last")
            assert await other.recv() == '{"type": "last"}'
            await caller.hang_up()
            with pytest.raises(ConnectionClosedOK):
                await other.recv()


async def test_a_further_connection_is_for_the_client_of_the_call(keys: None, caller: EventCaller):
    gateway = Gateway()
    async with followed(gateway, caller) as address:
        for headers, status in (({}, 401), (bearer(OTHER), 404), (bearer("w" * 32), 401)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(address, additional_headers=headers)
            assert refused.value.response.status_code == status
        elsewhere = {**bearer(KEY), "origin": "https://evil.example"}
        with pytest.raises(InvalidStatus) as refused:
            await connect(address, additional_headers=elsewhere)
        assert refused.value.response.status_code == 403
        async with AsyncExitStack() as stack:
            for _ in range(MOST_FOLLOWING):
                await stack.enter_async_context(connect(address, additional_headers=bearer(KEY)))
            with pytest.raises(InvalidStatus) as refused:
                await connect(address, additional_headers=bearer(KEY))
            assert refused.value.response.status_code == 429
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{address}0", additional_headers=bearer(KEY))
        assert refused.value.response.status_code == 404


async def test_a_further_connection_that_does_not_read_is_closed():
    connection, app = SmallWebRTCConnection(), FastAPI()
    # A client without a data channel: what it would have been sent is dropped.
    events = EventChannel(connection, open_s=0.001)
    held = HeldCall(connection, events, OpenAIRealtime("m", has_tracks=True), None)

    async def follow(websocket: WebSocket) -> None:
        await websocket.accept()
        await held.follow(websocket)

    app.get("/health")(lambda: {})
    app.add_api_websocket_route("/", follow)
    async with served_app(app, ServerTuning(stop_requests_s=0)) as here:
        async with connect(f"ws://127.0.0.1:{here.port}/") as socket:
            await socket.recv()
            # The loop does nothing else in between.
            for _ in range(MOST_UNSENT_BYTES // 100_000 + 10):
                await events.send("x" * 100_000)
            with pytest.raises(ConnectionClosed):
                while True:
                    await socket.recv()
            assert socket.close_code == 1013
    assert held.following == 0
    await connection.disconnect()


async def test_offers_of_an_address_are_counted_whatever_their_result(caller: EventCaller):
    async with serving(Gateway(sessions_per_minute=1)) as client:
        statuses = [(await client.post(PATH, content="v=0", headers=SDP)).status_code for _ in range(3)]
        assert statuses == [400, 400, 429]
        refused = await caller.call(client)
        assert refused.status_code == 429 and refused.headers["retry-after"]
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
