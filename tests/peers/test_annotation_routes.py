"""Routes of outside specialists: who may report, what is refused, and what enters the call."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from parley.core.call_events import OutsideReportsReceived, OutsideStreamEnded
from parley.core.timeline import OutsideReport, Source
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.live_annotations import LiveAnnotations
from parley.serving.gateway.annotations_api import (
    BURST,
    MOST_REFUSED,
    NO_CALL,
    REPORTS_PER_S,
    SESSION_SOCKETS,
    TOO_FAST,
)
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.store import SessionStore
from tests.peers.operations_gateway import TOKEN
from tests.peers.session_gateway import Server, Turns, application, served

KEY, OTHER = "k" * 32, "o" * 32
POINTING = {"stream": "vision", "age_ms": 100, "payload": {"gesture": "pointing", "ref": "the fee"}}
BEAT = {"stream": "vision", "age_ms": 0}


@dataclass
class Gateway:
    """A gateway with one session, which is in a call while ``in_call`` runs.

    Attributes:
        reports: reports that the call received.
        ended: streams that have ended.
    """

    server: Server
    live: LiveAnnotations
    conversation: Conversation
    client: httpx.AsyncClient
    reports: list[OutsideReport] = field(default_factory=list)
    ended: list[Source] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/api/sessions/{self.conversation.session_id}/annotations"

    @asynccontextmanager
    async def in_call(self, *, are_read: bool = True) -> AsyncIterator[Call]:
        call = Call(self.conversation, "file", LiveCall(self.conversation.clock))
        call.events.subscribe(OutsideReportsReceived, lambda event: self.reports.extend(event.reports))
        call.events.subscribe(OutsideStreamEnded, lambda event: self.ended.append(event.stream))
        with self.live.opened(call, are_read=are_read):
            yield call

    async def post(self, *reports: dict[str, Any], token: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return await self.client.post(self.path, json={"annotations": reports}, headers=headers)

    def connect(self, *, token: str = "") -> connect:
        url = f"ws://127.0.0.1:{self.server.port}{self.path}/socket"
        return connect(url, subprotocols=[f"parley.token.{token}", "parley"] if token else None)


@asynccontextmanager
async def gateway(folder: Path, *, owner: str | None = None, **settings: Any) -> AsyncIterator[Gateway]:
    live = LiveAnnotations()
    async with (
        application(folder, Turns(), annotations=live, **settings) as (app, store),
        served(app) as server,
    ):
        conversations = Conversations(store, compactor=Compactor())
        session_id = await owned_session(store, server, owner)
        async with (
            conversations.open(session_id) as conversation,
            httpx.AsyncClient(base_url=server.url) as client,
        ):
            yield Gateway(server, live, conversation, client)
        await conversations.close()


async def owned_session(store: SessionStore, server: Server, key: str | None) -> str:
    """Create a session, of the application with this key."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
        return str((await client.post("/api/sessions")).json()["id"])


async def answer(socket: ClientConnection, *reports: dict[str, Any]) -> dict[str, Any]:
    await socket.send(json.dumps({"annotations": reports}))
    return await received(socket)


async def received(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(60):
        found: dict[str, Any] = json.loads(await socket.recv())
        return found


async def until_closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    async with asyncio.timeout(60):
        await socket.wait_closed()
    return socket.close_code, socket.close_reason


async def test_a_report_enters_the_call_with_its_times_on_the_session_clock(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call():
        now_us = (await here.post()).json()["now_us"]
        known = {key: value for key, value in POINTING.items() if key != "age_ms"} | {"event_us": now_us}
        answered = await here.post(known, BEAT)
        after_us = here.conversation.clock.now_us()
    assert answered.status_code == 200
    said = answered.json()
    assert (said["accepted"], said["read_by_model"]) == (2, True)
    assert now_us <= said["now_us"] <= after_us
    seen, beat = here.reports
    assert seen.annotation is not None and beat.annotation is None
    assert (seen.stream, seen.annotation.event_us) == (Source.VISION, now_us)
    assert seen.annotation.payload.ref == "the fee"  # type: ignore[union-attr]
    assert now_us <= beat.passed_us <= after_us


async def test_an_empty_batch_asks_for_the_time_and_how_reports_are_used(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call(are_read=False):
        said = (await here.post()).json()
    assert (said["accepted"], said["read_by_model"]) == (0, False)
    assert here.reports == []


async def test_without_a_live_call_the_refusal_says_what_to_do(tmp_path: Path):
    async with gateway(tmp_path) as here:
        before = await here.post(POINTING)
        async with here.in_call():
            pass
        after = await here.post(POINTING)
        with pytest.raises(websockets.InvalidStatus) as refused:
            await here.connect()
        unknown = await here.client.post(
            f"/api/sessions/{'0' * 8}-0000-0000-0000-{'0' * 12}/annotations", json={"annotations": []}
        )
    assert before.status_code == after.status_code == 409 == refused.value.response.status_code
    assert before.json() == {"error": NO_CALL}
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ('{"annotations": [{"stream": "vision", "age_ms": 0, "confidence": NaN}]}', 422, "finite number"),
        ('{"annotations": [{"stream": "prosody", "age_ms": 0, "payload": {"joy": 1e999}}]}', 422, "finite"),
        ('{"annotations": [{"stream": "vision", "age_ms": 0, "payload": {"ref": "\\ud800"}}]}', 422, "ref"),
        ('{"annotations": [{"stream": "vision", "event_us": 4000000000000000}]}', 400, "send age_ms"),
        ('{"annotations": [{"stream": "vision", "event_us": 0}]}', 400, "before the call began"),
        ("[" * 100_000, 400, ""),
        ('{"annotations": [' + "1," * 90_000 + "1]}", 422, "at most 64"),
        (" " * 300_000, 413, ""),
    ],
)
async def test_a_bad_body_has_its_reason_and_changes_nothing(
    tmp_path: Path, body: str, status: int, said: str
):
    async with gateway(tmp_path) as here, here.in_call():
        refused = await here.client.post(
            here.path, content=body, headers={"content-type": "application/json"}
        )
        assert (refused.status_code, said in refused.text) == (status, True), refused.text
        assert here.reports == []
        assert (await here.post(POINTING)).status_code == 200


async def test_with_keys_only_the_owner_of_the_session_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY},{OTHER}")
    async with gateway(tmp_path, owner=KEY) as here, here.in_call():
        statuses = [(await here.post(POINTING, token=token)).status_code for token in ("", OTHER, KEY, TOKEN)]
        for token in ("", OTHER):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await here.connect(token=token)
            statuses.append(refused.value.response.status_code)
        async with here.connect(token=KEY) as socket:
            assert socket.subprotocol == "parley"
            await received(socket)
            assert (await answer(socket, POINTING))["accepted"] == 1
    assert statuses == [401, 403, 200, 200, 401, 403]
    assert len(here.reports) >= 3


async def test_a_socket_ends_with_the_grants_of_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    async with gateway(tmp_path, owner=KEY) as here, here.in_call():
        made = await here.client.post(
            "/api/token",
            json={"expires_s": 1, "sessions": [here.conversation.session_id]},
            headers={"authorization": f"Bearer {KEY}"},
        )
        async with here.connect(token=made.json()["token"]) as socket:
            await received(socket)
            assert (await answer(socket, POINTING))["accepted"] == 1
            await asyncio.sleep(1.1)
            await socket.send(json.dumps({"annotations": [POINTING]}))
            code, reason = await until_closed(socket)
        assert (code, "grants of this client have expired" in str(reason)) == (1008, True)
        await until(lambda: here.ended == [Source.VISION])
    assert len(here.reports) == 1


async def test_a_page_of_another_origin_reports_nothing(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call():
        foreign = {"origin": "https://elsewhere.example"}
        posted = await here.client.post(here.path, json={"annotations": [POINTING]}, headers=foreign)
        with pytest.raises(websockets.InvalidStatus) as refused:
            url = f"ws://127.0.0.1:{here.server.port}{here.path}/socket"
            await connect(url, additional_headers=foreign)
    assert posted.status_code == refused.value.response.status_code == 403
    assert here.reports == []


async def test_a_socket_answers_each_message_and_its_streams_end_with_it(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call():
        async with here.connect() as one, here.connect() as two:
            opened = await received(one)
            assert opened["read_by_model"] and opened["now_us"] <= here.conversation.clock.now_us()
            await received(two)
            assert (await answer(one, POINTING, {"stream": "diar", "age_ms": 0}))["accepted"] == 2
            assert (await answer(two, BEAT))["accepted"] == 1
            await one.send("no JSON")
            assert "Invalid JSON" in (await received(one))["error"]
            await one.send(b"\0")
            assert (await received(one))["error"].startswith("send text")
            await one.send(json.dumps({"annotations": [], "note": "x" * 200_000}))
            assert "send smaller batches" in (await received(one))["error"]
            assert (await answer(one, {"stream": "vision", "event_us": 0}))["error"].startswith(
                "annotations.0"
            )
            await one.close()
            await until(lambda: here.ended == [Source.DIAR])
            # Vision goes on: the other program still reports it.
            assert (await answer(two, POINTING))["accepted"] == 1
            await two.close()
            await until(lambda: here.ended == [Source.DIAR, Source.VISION])


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_socket_ends_with_its_call(tmp_path: Path):
    async with gateway(tmp_path) as here:
        async with here.in_call():
            socket = await here.connect()
            await received(socket)
        assert await until_closed(socket) == (1000, "the call has ended")


async def test_a_call_that_takes_the_session_over_gets_the_reports(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call() as second:
        first = Call(here.conversation, "file", LiveCall(here.conversation.clock))
        with here.live.opened(first, are_read=False):
            with here.live.opened(second, are_read=True):
                assert (await here.post(POINTING)).json()["read_by_model"]
            # The earlier call is not live again when the later one has ended.
            assert (await here.post(POINTING)).status_code == 409


async def test_a_session_has_a_few_sockets(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call():
        sockets = [await here.connect() for _ in range(SESSION_SOCKETS)]
        with pytest.raises(websockets.InvalidStatus) as refused:
            await here.connect()
        assert refused.value.response.status_code == 429
        for each in sockets:
            await each.close()
        async with here.connect() as socket:
            await received(socket)


async def test_a_thousand_posts_are_bounded_and_say_the_limit(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call():
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        answers = [await here.post(*[BEAT] * 10) for _ in range(100)]
        took_s = loop.time() - began_s
        accepted = sum(each.status_code == 200 for each in answers) * 10
        refused = [each for each in answers if each.status_code != 200]
        assert {each.status_code for each in refused} == {429}
        assert refused[0].json()["error"] == TOO_FAST and refused[0].headers["retry-after"] == "1"
        # A batch may overdraw.
        assert len(here.reports) == accepted <= BURST + took_s * REPORTS_PER_S + 10


async def test_a_socket_that_floods_is_answered_with_the_limit_and_then_closed(tmp_path: Path):
    async with gateway(tmp_path) as here, here.in_call():
        answers: list[dict[str, Any]] = []
        async with here.connect() as socket:

            async def read() -> None:
                async for text in socket:
                    answers.append(json.loads(text))

            reading = asyncio.create_task(read())
            sent = 0
            with suppress(websockets.ConnectionClosed):
                # Some 1,000 a second.
                while sent < 10_000:
                    await socket.send(json.dumps({"annotations": [BEAT]}))
                    sent += 1
                    await asyncio.sleep(0.001)
            await asyncio.gather(reading, return_exceptions=True)
            assert (socket.close_code, socket.close_reason) == (1008, TOO_FAST[:100])
        errors = [each for each in answers if "error" in each]
        assert MOST_REFUSED <= len(errors) <= MOST_REFUSED + 10
        assert errors[0]["error"] == TOO_FAST and 0 < errors[0]["retry_s"] <= 1
        assert sum("accepted" in each for each in answers) < 5 * BURST
        await until(lambda: here.ended == [Source.VISION])
        # The call goes on, and reports of a slower program are accepted again.
        await asyncio.sleep(0.1)
        assert (await here.post(POINTING)).status_code == 200
