"""Offers of OpenAI's realtime protocol over WebRTC: their forms, their credentials, and the end of a call."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from parley.serving.gateway.admin.apps import Apps
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.app import create_app
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.webrtc.realtime_calls import RealtimeCallArguments
from parley.transports.webrtc.signaling import Signaling
from tests.peers.event_caller import PATH, SDP, EventCaller
from tests.peers.webrtc_caller import until_state

KEY, OTHER = "k" * 32, "o" * 32


class Gateway:
    """An application whose conversations last until their client leaves.

    Attributes:
        app: the application.
        begun: arguments of the conversations.
    """

    def __init__(self, operations: Operations | None = None, **settings: Any) -> None:
        self.begun: list[RealtimeCallArguments] = []

        async def converse(arguments: Any) -> None:
            self.begun.append(arguments)
            while await arguments.connection.events.receive() is not None:
                pass

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


async def test_what_is_not_an_offer_is_refused_in_the_form_of_openai_and_costs_no_secret(
    keys: None, caller: EventCaller
):
    async with serving(Gateway()) as client:
        sdp, token = (await caller.offer())["sdp"], bearer(await secret(client))
        tools = json.dumps({"type": "realtime", "tools": [{"type": "mcp"}]})
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
