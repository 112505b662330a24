"""Callers ask for a human, on a real server: in writing, over a chat socket, and by voice over a WebSocket.

A desk of the tests takes over by the API. The model is a scripted one, whose requests show what it was asked.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import websockets

from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.operations_gateway import BEARER
from tests.peers.realtime_caller import RealtimeCaller, calling
from tests.peers.server import RunningServer, running_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK = "desk-of-the-tests"
OTHER = "another-desk-1"
WISH = "I want to talk to a human."
WAITING = "I am fetching a colleague. You are number 1."
JOINED = "A colleague is here."
GONE = "No colleague is free."
PATIENT = "wait_s: 300, grace_s: 300, reply_s: 10"
HASTY = "wait_s: 1, grace_s: 5"
ANSWER = Turn(["We open ", "at ten."])


@dataclass
class Desked:
    """A server with a desk and its model."""

    client: httpx.AsyncClient
    llm: OpenAiServer
    desk: str = DESK
    asked_before: int = field(default=0)

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    async def listed(self) -> dict[str, dict[str, Any]]:
        answer = await self.client.get("/api/desk", params={"desk": self.desk})
        assert answer.status_code == 200, answer.text
        return {each["id"]: each for each in answer.json()["sessions"]}

    async def until_tier(self, session: str, tier: str, *, within_s: float = 60) -> dict[str, Any]:
        async with asyncio.timeout(within_s):
            while (found := (await self.listed()).get(session, {})).get("tier") != tier:
                await asyncio.sleep(0.05)
        return found

    async def act(self, session: str, act: str, status: int = 204, **body: str) -> str:
        given = body if act == "whisper" else {"desk": self.desk, **body}
        answer = await self.client.post(f"/api/desk/sessions/{session}/{act}", json=given)
        assert answer.status_code == status, answer.text
        return answer.text

    async def new_session(self) -> str:
        return (await self.client.post("/api/sessions")).json()["id"]

    async def type(self, session: str, text: str) -> list[tuple[str, dict[str, Any]]]:
        answer = await self.client.post(f"/api/sessions/{session}/messages", json={"text": text})
        blocks = [block.split("\n") for block in answer.text.strip().split("\n\n")]
        return [
            (name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks
        ]

    async def said(self, session: str) -> list[tuple[str, str]]:
        """Return author and words of every turn."""
        query = {"limit": 1_000, "kind": ["user_turn", "bot_turn"]}
        page = (await self.client.get(f"/api/sessions/{session}/timeline", params=query)).json()
        return [
            (
                "caller" if each["kind"] == "user_turn" else each["payload"].get("by", "model"),
                each["payload"]["text"],
            )
            for each in page["events"]
        ]

    async def until_said(self, session: str, author: str, words: str, *, within_s: float = 60) -> None:
        async with asyncio.timeout(within_s):
            while not any(by == author and words in text for by, text in await self.said(session)):
                await asyncio.sleep(0.1)

    async def tiers(self, session: str) -> list[tuple[str, str]]:
        page = await self.client.get(f"/api/sessions/{session}/timeline", params={"kind": "tier"})
        return [(each["payload"]["tier"], each["payload"]["reason"]) for each in page.json()["events"]]


@asynccontextmanager
async def serving_desk(
    folder: Path, llm: OpenAiServer, desk: str, *arguments: str, more: str = "", log: Path | None = None
) -> AsyncIterator[tuple[Desked, RunningServer]]:
    """Run a server with a desk, whose sessions are in this folder; ``log`` as for ``running_server``."""
    (folder / "own.yaml").write_text(
        'bot: {greeting: "", greeting_again: ""}\n'
        "thinking: {llm: {name: openai_compatible, "
        f"settings: {{base_url: '{llm.url}/v1', model: m}}}}}}\n"
        f"remembering: {{store: {{url: 'sqlite:///{folder}/sessions.db'}}}}\n"
        f'desk: {{{desk}, phrases: {{joined: "{JOINED}", expired: "{GONE}"}}}}\n{more}'
    )
    async with (
        running_server("--config", str(folder / "own.yaml"), *arguments, log=log) as server,
        httpx.AsyncClient(base_url=server.url, headers=BEARER, timeout=60) as client,
    ):
        yield Desked(client, llm), server


async def deployed(folder: Path, desk: str) -> AsyncIterator[Desked]:
    async with OpenAiServer([ANSWER]) as llm, serving_desk(folder, llm, desk) as (at, _):
        yield at


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desked]:
    async for each in deployed(tmp_path_factory.mktemp("patient"), PATIENT):
        yield each


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desked]:
    async for each in deployed(tmp_path_factory.mktemp("hasty"), HASTY):
        yield each


async def test_a_caller_who_writes_gets_a_human_and_then_the_agent_with_the_note(patient: Desked):
    session = await patient.new_session()
    assert (await patient.type(session, "When do you open?"))[-1][1]["text"] == "We open at ten."
    asked = len(patient.llm.requests)
    answer = await patient.type(session, WISH)
    assert answer[-1][0] == "done" and answer[-1][1]["text"].startswith(WAITING)
    assert (await patient.until_tier(session, "waiting"))["place"] == 1
    await patient.act(session, "take")
    assert (await patient.until_tier(session, "human"))["mine"]
    # The words of a caller are held for the human.
    assert (await patient.type(session, "My card is gone."))[-1][0] == "held"
    await patient.act(session, "say", text="I have blocked your card.")
    await patient.until_said(session, "human", "I have blocked your card.")
    assert len(patient.llm.requests) == asked
    await patient.act(session, "return", note="Card 42 is blocked; offer a new one.")
    assert len(patient.llm.requests) == asked
    assert (await patient.type(session, "And now?"))[-1][1]["text"] == "We open at ten."
    request = json.dumps(patient.llm.requests[-1]["messages"])
    assert "Note of the colleague who spoke with the person: Card 42 is blocked; offer a new one." in request
    assert "[said by a human colleague] I have blocked your card." in request
    assert "My card is gone." in request
    assert await patient.tiers(session) == [
        ("waiting", "requested"), ("human", "taken"), ("back", "returned"), ("agent", "replied"),
    ]  # fmt: skip


@pytest.mark.parametrize("model", ["parley-cascade", pytest.param("parley-duplex", marks=pytest.mark.slow)])
async def test_a_voice_call_over_a_websocket_hears_the_human(patient: Desked, model: str):
    session = await patient.new_session()
    async with calling(patient.url, model=model, query={"session": session}) as caller:
        await caller.until("session.created")
        caller.say(WISH)
        await patient.until_tier(session, "waiting")
        await until_heard(caller, WAITING)
        await patient.act(session, "take")
        await until_heard(caller, JOINED)
        # Before the wish was understood to its end, its answer may have been begun ahead.
        asked = len(patient.llm.requests)
        await patient.act(session, "say", text="Good day, this is the branch office.")
        await until_heard(caller, "Good day, this is the branch office.")
        caller.say("Please block my card.")
        await patient.until_said(session, "caller", "card")
        assert len(patient.llm.requests) == asked
        await patient.until_said(session, "human", "Good day, this is the branch office.")
        await patient.act(session, "return", note="The card is blocked.")
        await patient.until_tier(session, "back")
        caller.say("When do you open?")
        await until_heard(caller, "We open at ten.")
        assert "The card is blocked." in json.dumps(patient.llm.requests[-1]["messages"])


async def until_heard(caller: RealtimeCaller, words: str) -> None:
    def heard() -> str:
        return " ".join(each.transcript for each in caller.of("response.output_audio_transcript.done"))

    async with asyncio.timeout(60):
        while words not in heard():
            await asyncio.sleep(0.1)


async def test_a_chat_socket_gets_the_words_of_the_human_as_its_answer(patient: Desked):
    session = await patient.new_session()
    assert (await chat(patient, session, WISH))["text"].startswith(WAITING)
    await patient.act(session, "take")
    asked = len(patient.llm.requests)
    answering = asyncio.create_task(chat(patient, session, "Hello?"))
    await patient.until_said(session, "caller", "Hello?")
    await patient.act(session, "say", text="Yes, I am here.")
    done = await answering
    assert done["text"] == "Yes, I am here." and done["held"] is True
    assert len(patient.llm.requests) == asked


async def chat(at: Desked, session: str, text: str) -> dict[str, Any]:
    url = at.url.replace("http", "ws") + f"/ws/chat?session={session}"
    async with websockets.connect(url, additional_headers=BEARER) as socket:
        message = {
            "messages": [{"role": "user", "content": text}],
            "streaming": True,
            "use_tts_template": False,
        }
        await socket.send(json.dumps(message))
        async for raw in socket:
            answer: dict[str, Any] = json.loads(raw)
            if answer["type"] in ("done", "error"):
                return answer
    raise AssertionError("the socket closed without an answer")


async def test_a_waiting_caller_may_go_on_with_the_agent(patient: Desked):
    session = await patient.new_session()
    await patient.type(session, WISH)
    await patient.until_tier(session, "waiting")
    asked = len(patient.llm.requests)
    assert (await patient.type(session, "How late is it?"))[-1][1]["text"].startswith(WAITING)
    assert len(patient.llm.requests) == asked
    answer = (await patient.type(session, "No, never mind."))[-1][1]["text"]
    assert answer.startswith("All right, I will not fetch a colleague.")
    assert (await patient.type(session, "When do you open?"))[-1][1]["text"] == "We open at ten."
    assert [tier for tier, _ in await patient.tiers(session)] == ["waiting", "agent"]


async def test_when_no_human_comes_the_agent_goes_on(hasty: Desked):
    session = await hasty.new_session()
    await hasty.type(session, WISH)
    await hasty.until_said(session, "deployment", GONE)
    assert (await hasty.type(session, "When do you open?"))[-1][1]["text"] == "We open at ten."
    assert ("back", "expired") in await hasty.tiers(session)


async def test_a_desk_that_leaves_gives_the_session_back(hasty: Desked):
    session = await hasty.new_session()
    await hasty.act(session, "take")
    await hasty.until_said(session, "deployment", "My colleague has left")
    assert await hasty.tiers(session) == [("human", "taken"), ("back", "desk_lost")]
    assert "take it over first" in await hasty.act(session, "say", status=409, text="Hello?")


async def test_one_desk_writes_to_a_session_at_a_time(patient: Desked):
    session = await patient.new_session()
    await patient.act(session, "take")
    other = Desked(patient.client, patient.llm, OTHER)
    assert "another desk" in await other.act(session, "take", status=409)
    assert "another desk" in await other.act(session, "say", status=409, text="Hello")
    assert "another desk" in await other.act(session, "return", status=409, note="")
    assert not (await other.listed())[session]["mine"]
    await patient.act(session, "return")


async def test_a_whisper_reaches_the_next_request_only_and_no_record(patient: Desked):
    session = await patient.new_session()
    await patient.act(session, "take")
    await patient.act(session, "whisper", text="Mention the new app.")
    await patient.act(session, "return")
    await patient.type(session, "What is new?")
    assert "Mention the new app." in json.dumps(patient.llm.requests[-1]["messages"])
    await patient.type(session, "And what else?")
    assert "Mention the new app." not in json.dumps(patient.llm.requests[-1]["messages"])
    export = await patient.client.get(f"/api/sessions/{session}/export")
    assert "new app" not in export.text


async def test_the_desk_is_for_the_operator(patient: Desked):
    session = await patient.new_session()
    async with httpx.AsyncClient(base_url=patient.url) as caller:
        assert (await caller.get("/api/desk", params={"desk": DESK})).status_code == 403
        taken = await caller.post(f"/api/desk/sessions/{session}/take", json={"desk": DESK})
        assert taken.status_code == 403
