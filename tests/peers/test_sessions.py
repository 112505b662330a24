"""A session over text, voice and text again, through the public API alone."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.peers.operations_gateway import BEARER
from tests.peers.server import ROOT, running_server
from tests.peers.test_command import speech
from tests.peers.test_webrtc_call import turns_of
from tests.peers.webrtc_caller import Caller, greeted

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with (
        running_server() as server,
        httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client,
    ):
        yield client


async def new_session(client: httpx.AsyncClient) -> str:
    answer = await client.post("/api/sessions")
    assert answer.status_code == 201
    return answer.json()["id"]


async def say(
    client: httpx.AsyncClient, session: str, text: str, key: str | None = None
) -> list[tuple[str, Any]]:
    """Send a typed turn; return its server-sent events."""
    headers = {"Idempotency-Key": key} if key else {}
    answer = await client.post(f"/api/sessions/{session}/messages", json={"text": text}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def answer_of(events: list[tuple[str, Any]]) -> str:
    assert events[0][0] == "turn"
    assert events[-1][0] == "done"
    text = events[-1][1]["text"]
    assert "".join(data["text"] for name, data in events if name == "delta").strip() == text
    return text


async def timeline(client: httpx.AsyncClient, session: str, **query: Any) -> list[dict[str, Any]]:
    return (await client.get(f"/api/sessions/{session}/timeline", params=query)).json()["events"]


@asynccontextmanager
async def call(client: httpx.AsyncClient, session: str) -> AsyncIterator[Caller]:
    """Hold a call of a session, as a browser does."""
    started = (await client.post("/start", json={"transport": "webrtc", "body": {"session": session}})).json()
    async with greeted(client, f"/sessions/{started['sessionId']}/api/offer") as caller:
        yield caller


async def until_not_live(client: httpx.AsyncClient, session: str) -> None:
    async with asyncio.timeout(60):
        while (await client.get(f"/api/sessions/{session}")).json()["live"]:
            await asyncio.sleep(0.05)


async def test_text_then_voice_then_text_and_each_knows_what_was_said_before(client: httpx.AsyncClient):
    session = await new_session(client)
    assert "Ada" in answer_of(await say(client, session, "My name is Ada."))
    async with call(client, session) as caller:
        introduced = [m["data"] for m in caller.of_type("server-message") if m["data"]["kind"] == "session"]
        assert introduced == [{"kind": "session", "id": session}]
        typed = {"content": "What is my name?", "options": {"run_immediately": True}}
        caller.send({"label": "rtvi-ai", "type": "send-text", "id": "2", "data": typed})
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        assert "Ada" in turns_of(caller)[1]["bot_text"]
        caller.microphone.say(speech("What are your opening hours on Saturday?") + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 3)
        assert "ten until two" in turns_of(caller)[2]["bot_text"]
    await until_not_live(client, session)
    # The question can only be answered from the words of the call.
    assert "closed" in answer_of(await say(client, session, "And what about Sunday?"))
    turns = [e for e in await timeline(client, session) if e["kind"] in ("user_turn", "bot_turn")]
    assert [e["payload"]["transport"] for e in turns if e["kind"] == "user_turn"] == [
        "text", "webrtc", "webrtc", "text",
    ]  # fmt: skip
    kinds = [e["kind"] for e in await timeline(client, session)]
    assert kinds.index("joined") < kinds.index("left")


async def test_what_was_heard_in_a_call_is_in_the_timeline(client: httpx.AsyncClient):
    session = await new_session(client)
    async with call(client, session) as caller:
        caller.microphone.say(speech("What are your opening hours on Saturday?") + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 2)
    await until_not_live(client, session)
    events = await timeline(client, session, limit=500)
    reply = [e["payload"] for e in events if e["kind"] == "bot_turn"][-1]
    assert "ten until two" in reply["text"]
    assert (reply["truncated"], reply["unheard"], reply["source"]) == (False, "", "playout_clock")
    assert reply["last_word"] == len(reply["text"].split()) - 1
    [turn] = [e for e in events if e["kind"] == "user_turn"]
    words = [e for e in events if e["kind"] == "annotation" and e["source"] == "stt" and e["final"]]
    # The words were spoken before the turn ended, and were recognised later than they were spoken.
    assert words[-1]["event_us"] < words[-1]["arrival_us"] <= turn["arrival_us"]
    assert turn["payload"]["tokens"][0]["text"].split()[0] in turn["payload"]["text"]


async def test_a_call_replays_in_the_same_order(client: httpx.AsyncClient):
    session = await new_session(client)
    async with call(client, session) as caller:
        caller.microphone.say(speech("What are your opening hours on Saturday?") + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        typed = {"content": "What is my name?", "options": {"run_immediately": True}}
        caller.send({"label": "rtvi-ai", "type": "send-text", "id": "2", "data": typed})
        await caller.until(lambda: len(turns_of(caller)) >= 3)
    await until_not_live(client, session)
    events = await timeline(client, session, limit=500, kind="annotation")
    # The number of partials before them depends on the recogniser's processor time.
    finals = [event["source"] for event in events if event["final"] and event["source"] != "prosody"]
    assert list(dict.fromkeys(finals)) == ["stt", "text"]
    assert finals[-1] == "text"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley.session_store.replay", session, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(child.communicate(), 30)
    assert child.returncode == 0, out
    annotations = int(re.fullmatch(rb"call \w+: (\d+) annotations, the same order\n", out)[1])
    assert annotations == len(events)


async def test_the_same_key_asks_once(client: httpx.AsyncClient):
    session = await new_session(client)
    first = await say(client, session, "What are your opening hours on Saturday?", key="one")
    again = await say(client, session, "What are your opening hours on Saturday?", key="one")
    assert answer_of(first) == answer_of(again)
    assert first[-1][1]["seq"] == again[-1][1]["seq"]
    kinds = [e["kind"] for e in await timeline(client, session)]
    assert (kinds.count("user_turn"), kinds.count("bot_turn")) == (1, 1)


async def test_the_timeline_is_paged_in_order_of_time(client: httpx.AsyncClient):
    session = await new_session(client)
    for number in range(4):
        await say(client, session, f"Hello number {number}.")
    whole = await timeline(client, session)
    paged, after = [], None
    while True:
        query = {"limit": 3, **({"after": after} if after else {})}
        page = (await client.get(f"/api/sessions/{session}/timeline", params=query)).json()
        paged += page["events"]
        after = page["after"]
        if after is None:
            break
    assert paged == whole
    assert [e["event_us"] for e in whole] == sorted(e["event_us"] for e in whole)


async def test_the_prompt_is_what_the_model_would_be_given(client: httpx.AsyncClient):
    session = await new_session(client)
    await say(client, session, "My name is Ada.")
    view = (await client.get(f"/api/sessions/{session}/prompt")).json()
    assert [message["role"] for message in view["messages"]] == ["user", "assistant"]
    assert "name: Ada" in view["messages"][0]["content"]
    assert view["tokens"] > 0


async def test_an_exported_session_comes_back_whole(client: httpx.AsyncClient):
    session = await new_session(client)
    await say(client, session, "My name is Ada.")
    before = await timeline(client, session)
    lines = (await client.get(f"/api/sessions/{session}/export")).text
    assert (await client.delete(f"/api/sessions/{session}")).status_code == 200
    assert (await client.get(f"/api/sessions/{session}")).status_code == 404
    assert (await client.post("/api/sessions/import", content=lines)).status_code == 201
    assert await timeline(client, session) == before
    tampered = lines.replace("Ada", "Eve")
    await client.delete(f"/api/sessions/{session}")
    assert (await client.post("/api/sessions/import", content=tampered)).status_code == 400


async def test_followers_see_every_commit_live(client: httpx.AsyncClient):
    session = await new_session(client)
    seen: list[str] = []

    async def follow() -> None:
        async with client.stream("GET", f"/api/sessions/{session}/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: "))["kind"])
                    if seen[-1] == "bot_turn":
                        return

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await say(client, session, "Hello.")
    assert seen == ["user_turn", "bot_turn"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/sessions/nonsense", 404),
        ("GET", "/api/sessions/00000000-0000-4000-8000-000000000000", 404),
        ("GET", "/api/sessions/00000000-0000-4000-8000-000000000000/timeline", 404),
        ("GET", "/api/sessions/00000000-0000-4000-8000-000000000000/prompt", 404),
        ("GET", "/api/sessions/00000000-0000-4000-8000-000000000000/export", 404),
        ("GET", "/api/sessions/00000000-0000-4000-8000-000000000000/events", 404),
        ("DELETE", "/api/sessions/00000000-0000-4000-8000-000000000000", 404),
        ("GET", "/api/sessions?limit=0", 422),
    ],
)
async def test_what_does_not_exist_is_a_4xx(client: httpx.AsyncClient, method: str, path: str, status: int):
    assert (await client.request(method, path)).status_code == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"text": ""}',
        b'{"text": "  "}',
        b'{"text": 5}',
        b'{"say": "x"}',
        b'{"text": NaN}',
        b'{"text": "\\ud800"}',
        b"\xff\xfe",
        b'{"text": "' + b"x" * 9_000 + b'"}',
    ],
)
async def test_a_malformed_turn_changes_nothing(client: httpx.AsyncClient, body: bytes):
    session = await new_session(client)
    answer = await client.post(f"/api/sessions/{session}/messages", content=body)
    assert answer.status_code == 422
    assert "x" * 100 not in answer.text
    assert await timeline(client, session) == []


async def test_an_import_that_is_not_text_is_refused(client: httpx.AsyncClient):
    assert (await client.post("/api/sessions/import", content=b"\xff\xfe")).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7860"])
async def test_what_a_proxy_passes_on_is_not_the_operator(client: httpx.AsyncClient, host: str):
    # Headers as nginx' proxy_pass sends them by default, and a tunnel.
    headers = {"host": host, "authorization": ""}
    answer = await client.get("/api/sessions", headers=headers)
    assert answer.status_code == 403
    assert "PARLEY_ADMIN_TOKEN" in answer.text
    session = (await client.post("/api/sessions", headers=headers)).json()["id"]
    # Its id reads, and its cookie deletes: clients that come by the same proxy have neither.
    other = {**headers, "cookie": ""}
    assert (await client.delete(f"/api/sessions/{session}", headers=other)).status_code == 403
    assert (await client.delete(f"/api/sessions/{session}", headers=headers)).status_code == 200


async def test_a_turn_of_an_unknown_session_is_404(client: httpx.AsyncClient):
    path = "/api/sessions/00000000-0000-4000-8000-000000000000/messages"
    assert (await client.post(path, json={"text": "hello"})).status_code == 404


@pytest.mark.parametrize("session", ["00000000-0000-4000-8000-000000000000", "x", 5])
async def test_a_call_of_an_unknown_session_is_refused_before_it_begins(
    client: httpx.AsyncClient, session: Any
):
    answer = await client.post("/start", json={"body": {"session": session}})
    assert answer.status_code in (400, 404)


async def test_a_page_of_another_origin_may_not_use_sessions(client: httpx.AsyncClient):
    answer = await client.post("/api/sessions", headers={"origin": "https://elsewhere.example"})
    assert answer.status_code == 403


async def test_a_key_with_other_words_is_a_409_and_changes_nothing(client: httpx.AsyncClient):
    session = await new_session(client)
    await say(client, session, "What are your opening hours on Saturday?", key="one")
    before = await timeline(client, session)
    answer = await client.post(
        f"/api/sessions/{session}/messages",
        json={"text": "My name is Eve."},
        headers={"Idempotency-Key": "one"},
    )
    assert answer.status_code == 409
    assert "key" in answer.json()["error"]
    assert await timeline(client, session) == before
