"""Turn-based sockets whose engines, store or client fail: notified, bounded, without leftovers."""

import asyncio
import base64
import json
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pytest

from parley.configs.deployment import Bot, Deployment, Remembering
from parley.core.client_rules import CLIENT_HEADING, ClientRules
from parley.core.errors import EngineError
from parley.core.grants import ClientIdentity, Grants
from parley.core.passage_notes import CitedPassage
from parley.core.tiers import TierEvent
from parley.models.stt import Transcript
from parley.models.tts import TextToSpeech
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.engines.loading import Executors, Loaded
from parley.pipelines.sockets.chat_sockets import ChatDialect, hold_chat
from parley.processors.dialogue.services import Documents, DocumentsSettings
from parley.processors.perception.engine_stt import EngineSttService
from parley.processors.service_rows import NOTHING_SHARED, RowSettings, ServiceRow, Shared
from parley.processors.speech.engine_tts import EngineTtsService
from parley.protocols.client_protocol import ProtocolError, written
from parley.serving.gateway.desk.settings import DeskSettings
from parley.serving.gateway.sockets.chat_exchange import ChatExchange
from parley.session_store.compaction import CompactionTuning, Compactor
from parley.session_store.conversation import ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.transports.websocket.messages import LARGE_BYTES, ChatSocketTuning, MessageSocket
from parley.transports.websocket.session import SocketPeer
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.scripted_llm import HANG, CitingLanguageModel, Script, ScriptedLanguageModel
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.fakes.tts import ToneTts
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import InPlaceEngine, as_transcript

ANSWER: Script = ("We open ", "at ten. ", "We close at two.")
HELLO = {"role": "user", "content": "When do you open?"}


class Client:
    """The client's side of a socket, in memory.

    Attributes:
        received: messages from the server.
        closed: code and reason, once it was closed.
        reads: while it is cleared, the client reads nothing.
    """

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.reads = asyncio.Event()
        self.reads.set()
        self._said: asyncio.Queue[str | None] = asyncio.Queue()
        self._news = asyncio.Condition()

    def say(self, **message: Any) -> None:
        self._said.put_nowait(json.dumps(message))

    def say_text(self, text: str) -> None:
        self._said.put_nowait(text)

    def leave(self) -> None:
        self._said.put_nowait(None)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.received if message["type"] == kind]

    async def until(self, kind: str, count: int = 1) -> dict[str, Any]:
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    async def until_answered(self, count: int) -> None:
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: len(self.of("done")) + len(self.of("error")) >= count)

    # Methods of ``transports.websocket.session.SocketPeer``.

    async def receive(self) -> str | None:
        return await self._said.get()

    async def send(self, text: str) -> bool:
        await self.reads.wait()
        self.received.append(json.loads(text))
        async with self._news:
            self._news.notify_all()
        return True

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)
        self.leave()


@dataclass
class World:
    """A process with its store, and the conversation of one client."""

    client: Client
    conversations: Conversations
    model: ScriptedLanguageModel
    held: "asyncio.Task[None]"
    hold: Callable[[SocketPeer, str | None], "asyncio.Task[None]"]
    engines: Engines

    def ends(self) -> dict[str, float]:
        """Return the counted ends by reason."""
        lines = self.engines.metrics.render("")[0].decode().splitlines()
        counted = [line.split('"') for line in lines if line.startswith("parley_call_ends_total{")]
        return {reason: float(number.removeprefix("}")) for _, reason, number in counted}

    async def reasons(self) -> list[str | None]:
        """Return the reason of each end in the sessions; None where the client ended it."""
        store = self.conversations.store
        kept = [each.id for each in await store.sessions(limit=9)]
        ends = [event for each in kept for event in await self.events(each, Kind.LEFT)]
        return [event.payload.get("reason") for event in ends]

    async def over(self) -> tuple[int, str]:
        async with asyncio.timeout(30):
            await asyncio.wait({self.held})
        assert self.client.closed is not None
        return self.client.closed

    async def events(self, session: str, *kinds: Kind) -> list[Event]:
        return await self.conversations.store.events(session, limit=1_000, kinds=kinds)


@asynccontextmanager
async def world(
    folder: Path,
    *scripts: Script,
    protocol: ChatDialect = "streaming",
    voice: TextToSpeech | ServiceRow[Any] | None = None,
    ears: ScriptedSttSettings | None = None,
    ears_are_service: bool = False,
    remembers: ConversationTuning | None = None,
    rules: ClientRules | None = None,
    facts: dict[str, str] | None = None,
    cites: Mapping[str, CitedPassage] = MappingProxyType({}),
    desk: DeskSettings | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    deployment = Deployment(
        bot=Bot(system_prompt="Be brief."),
        remembering=Remembering(store=StoreTuning(url=f"sqlite:///{folder}/sessions.db", busy_timeout_ms=0)),
        sockets=ChatSocketTuning(**settings),
        desk=desk,
    )
    model = CitingLanguageModel(*(scripts or (ANSWER,)), passages=cites)
    answering = LlmRuntime(deployment, AnsweringPlan(Documents(DocumentsSettings()), None, False), model)
    heard = InPlaceEngine[Transcript](ScriptedStt(ears or ScriptedSttSettings()), as_transcript)
    stt = PipecatEars(heard) if ears_are_service else heard
    loaded = Loaded(EnergyVad(0.01), ScriptedTurn(), stt, voice or ToneTts(), answering)
    inline = InlineExecutor()
    before = asyncio.all_tasks()
    store = await SessionStore.open(deployment.remembering.store)
    chosen = remembers or ConversationTuning(linger_ms=0)
    compactor = Compactor(chosen.compaction, budget_tokens=chosen.budget_tokens)
    conversations = Conversations(store, chosen, compactor=compactor)
    conversations.board.set_staffed(desk is not None)
    try:
        async with Engines(deployment, loaded, Executors(inline, inline, inline, inline)) as engines:

            def hold(client: SocketPeer, session: str | None) -> "asyncio.Task[None]":
                return asyncio.create_task(
                    hold_chat(
                        engines,
                        conversations,
                        client,
                        protocol=protocol,
                        session_id=session,
                        rules=rules,
                        facts=facts,
                    )
                )

            client = Client()
            yield World(client, conversations, model, hold(client, None), hold, engines)
    finally:
        await conversations.close()
        await store.close()
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not left, left


def voice_base64(duration_ms: int = 600) -> str:
    t = np.arange(16 * duration_ms) / 16_000
    return written((0.3 * np.sin(2 * np.pi * 200 * t)).astype("<f4").tobytes())


@pytest.mark.parametrize(("protocol", "kind"), [("chat", "prefill_done"), ("streaming", "queue_done")])
async def test_the_next_token_comes_with_the_first_message(
    tmp_path: Path, protocol: Literal["chat", "streaming"], kind: str
):
    async with world(tmp_path, protocol=protocol, facts={"next_token": "t"}) as run:
        run.client.say(type="prefill", messages=[HELLO])
        assert (await run.client.until(kind))["next_token"] == "t"
        run.client.leave()
        await run.over()


@pytest.mark.parametrize("protocol", ["chat", "streaming"])
async def test_the_last_message_of_an_answer_names_its_passages(
    tmp_path: Path, protocol: Literal["chat", "streaming"]
):
    hours = CitedPassage("the branch guide", "Opening hours", 1)
    async with world(tmp_path, protocol=protocol, cites={"We open": hours}) as run:
        run.client.say(type="prefill", messages=[HELLO])
        session = (await run.client.until("prefill_done"))["session_id"]
        if protocol == "streaming":
            run.client.say(type="generate")
        assert (await run.client.until("done"))["passages"] == [hours.as_json()]
        [reply] = await run.events(session, Kind.BOT_TURN)
        assert reply.payload["passages"] == [hours.as_json()]
        run.client.leave()
        await run.over()


async def test_a_client_that_leaves_ends_the_model_and_leaves_nothing(tmp_path: Path):
    async with world(tmp_path, ("We open ", HANG), protocol="chat") as run:
        run.client.say(messages=[HELLO])
        session = (await run.client.until("prefill_done"))["session_id"]
        await run.client.until("chunk")
        run.client.leave()
        await run.over()
        assert run.model.closed == 1
        [reply] = await run.events(session, Kind.BOT_TURN)
        assert (reply.payload["text"], reply.payload["truncated"]) == ("We open", True)


async def test_a_request_over_http_whose_client_leaves_ends_the_model(tmp_path: Path):
    async with world(tmp_path, ("We open ", HANG), protocol="request") as run:
        exchange = ChatExchange(json.dumps({"messages": [HELLO]}))
        held = run.hold(exchange, None)
        await run.model.hangs.wait()
        assert not held.done() and run.model.closed == 0
        exchange.leave()
        await asyncio.wait_for(held, 30)
        assert run.model.closed == 1
        sessions = [each.id for each in await run.conversations.store.sessions(limit=9)]
        [reply] = [event for each in sessions for event in await run.events(each, Kind.BOT_TURN)]
        assert (reply.payload["text"], reply.payload["truncated"]) == ("We open", True)
        run.client.leave()
        await run.over()


async def test_a_request_over_http_is_answered_at_once_and_a_failure_is_its_status(tmp_path: Path):
    failure = EngineError("out of memory", engine="language model")
    async with world(tmp_path, ANSWER, (failure,), protocol="request", voice=ToneTts()) as run:
        request = {"messages": [HELLO], "streaming": True, "tts": {"enabled": True}}
        exchange = ChatExchange(json.dumps(request))
        await asyncio.wait_for(run.hold(exchange, None), 30)
        answer = exchange.answer()
        assert answer is not None and answer["text"] == "We open at ten. We close at two."
        assert len(base64.b64decode(answer["audio_data"])) > 24_000
        failed = ChatExchange(json.dumps(request))
        await asyncio.wait_for(run.hold(failed, None), 30)
        assert failed.answer() is None
        status, reason = failed.failure()
        assert status == 500 and "the language model failed" in reason["detail"]
        run.client.leave()
        await run.over()


async def test_a_stop_that_comes_with_its_generate_is_not_lost_and_an_early_one_stops_nothing(tmp_path: Path):
    async with world(tmp_path) as run:
        run.client.say(type="stop")
        run.client.say(type="prefill", messages=[HELLO])
        await run.client.until("prefill_done")
        run.client.say(type="generate")
        run.client.say(type="stop")
        assert (await run.client.until("done"))["stopped"]
        run.client.say(type="prefill", messages=[HELLO])
        run.client.say(type="generate")
        done = await run.client.until("done", 2)
        assert "stopped" not in done
        run.client.say(type="close")
        assert await run.over() == (1000, "")


async def test_an_engine_that_fails_is_told_and_the_turn_can_be_asked_again(tmp_path: Path):
    broken = EngineError("it broke", engine="scripted")
    async with world(tmp_path, ("We ", broken), ANSWER) as run:
        run.client.say(type="prefill", messages=[HELLO])
        run.client.say(type="generate")
        assert (await run.client.until("error"))["error"]
        run.client.say(type="prefill", messages=[HELLO], history="whole")
        run.client.say(type="generate")
        done = await run.client.until("done")
        assert done["text"] == "We open at ten. We close at two."
        view = await run.conversations.view(done["session_id"])
        assert [message["content"] for message in view.messages] == [HELLO["content"], done["text"]]
        run.client.leave()
        await run.over()


async def test_a_model_that_says_nothing_more_is_given_up(tmp_path: Path):
    async with world(tmp_path, ("We ", HANG), protocol="chat", answer_s=0.3) as run:
        run.client.say(messages=[HELLO])
        assert "0.3 s" in (await run.client.until("error"))["error"]
        assert (await run.over())[0] == 1011
        assert run.model.closed == 1


async def test_a_voice_that_fails_leaves_the_words(tmp_path: Path):
    async with world(tmp_path, protocol="chat", voice=ToneTts(fail_after_pieces=2)) as run:
        run.client.say(messages=[HELLO], tts={"enabled": True})
        done = await run.client.until("done")
        assert done["text"] == "We open at ten. We close at two."
        assert "broke off" in done["voice_error"]
        await run.over()


async def test_all_of_the_voice_is_sent_and_belongs_to_the_words(tmp_path: Path):
    voice = ToneTts()
    async with world(tmp_path, protocol="chat", voice=voice) as run:
        run.client.say(messages=[HELLO], tts={"enabled": True}, streaming=False)
        done = await run.client.until("done")
        await run.over()
    # Eight words of 100 ms, at 24 kHz, to the last sample.
    samples = len(base64.b64decode(done["audio_data"])) // 4
    assert samples == pytest.approx(8 * 2_400, abs=100)
    assert " ".join(voice.clauses).split() == done["text"].split()


async def test_a_recording_becomes_the_words_of_its_turn(tmp_path: Path):
    async with world(tmp_path, protocol="chat") as run:
        items = [{"type": "audio", "data": voice_base64()}, {"type": "text", "text": "Did you hear?"}]
        run.client.say(messages=[{"role": "user", "content": items}])
        done = await run.client.until("done")
        await run.over()
        [turn] = await run.events(done["session_id"], Kind.USER_TURN)
    assert turn.payload["text"] == "one two three\nDid you hear?"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("not base64!", "not base64"),
        (written(b"abc"), "not a whole number"),
        (written(np.array([np.inf], "<f4").tobytes()), "non-finite"),
        (written(bytes(64_000)), "no speech was recognised"),
        (voice_base64(3_000), "of audio in total"),
    ],
)
async def test_a_recording_that_is_none_is_refused_by_name(tmp_path: Path, data: str, says: str):
    async with world(tmp_path, protocol="chat", most_audio_s=2) as run:
        run.client.say(messages=[{"role": "user", "content": [{"type": "audio", "data": data}]}])
        received = (await run.client.until("error"))["error"]
        assert received.startswith("messages[0]") and says in received
        assert (await run.over())[0] == 1003
        assert run.model.asked == []


async def test_ears_that_fail_are_told(tmp_path: Path):
    async with world(tmp_path, protocol="chat", ears=ScriptedSttSettings(raise_after_ms=100)) as run:
        run.client.say(messages=[{"role": "user", "content": [{"type": "audio", "data": voice_base64()}]}])
        assert (await run.client.until("error"))["error"]
        assert (await run.over())[0] == 1011


async def test_a_client_that_takes_nothing_in_is_given_up(tmp_path: Path):
    async with world(tmp_path, protocol="chat", send_s=0.2) as run:
        run.client.reads.clear()
        run.client.say(messages=[HELLO])
        assert await run.over() == (1013, "what you were sent was not read")


async def test_a_client_that_sends_nothing_that_can_be_read_is_given_up(tmp_path: Path):
    async with world(tmp_path, most_refusals=3) as run:
        for _ in range(3):
            run.client.say_text("{no json")
        assert (await run.over())[0] == 1008
        assert len(run.client.of("error")) == 3


@pytest.mark.parametrize(
    ("protocol", "settings", "script", "messages", "reason"),
    [
        ("chat", {"open_s": 0.1}, ANSWER, [], "timeout"),
        ("streaming", {"open_s": 0.1}, ANSWER, [], "timeout"),
        ("streaming", {"most_refusals": 3}, ANSWER, ["{no json"] * 3, "unreadable_messages"),
        ("chat", {}, ANSWER, [{"messages": [{"role": "user", "content": " "}]}], "unreadable_messages"),
        ("chat", {}, (EngineError("it broke", engine="scripted"),), [{"messages": [HELLO]}], "error"),
        ("chat", {}, ANSWER, [{"messages": [HELLO]}], None),
        ("streaming", {}, ANSWER, [{"type": "close"}], None),
    ],
)
async def test_an_end_that_the_server_decides_has_its_reason_in_the_session_and_the_metrics(
    tmp_path: Path,
    protocol: Literal["chat", "streaming"],
    settings: dict[str, Any],
    script: Script,
    messages: list[Any],
    reason: str | None,
):
    async with world(tmp_path, script, protocol=protocol, **settings) as run:
        for message in messages:
            run.client.say_text(message if isinstance(message, str) else json.dumps(message))
        await run.over()
        assert await run.reasons() == [reason]
        assert run.ends() == ({} if reason is None else {reason: 1})


async def test_a_client_that_reads_nothing_or_whose_server_stops_has_that_reason(tmp_path: Path):
    async with world(tmp_path, protocol="chat", send_s=0.2) as run:
        run.client.reads.clear()
        run.client.say(messages=[HELLO])
        await run.over()
        assert run.ends() == {"messages_not_read": 1}
        second = Client()
        held = run.hold(second, None)
        run.engines.shutdown.stopping.set()
        # The server closes its socket.
        second.leave()
        await held
        assert run.ends() == {"messages_not_read": 1, "server_shutdown": 1}
        assert set(await run.reasons()) == {"messages_not_read", "server_shutdown"}


async def test_more_messages_than_may_wait_are_refused(tmp_path: Path):
    async with world(tmp_path, ("We ", HANG), most_waiting=2) as run:
        run.client.say(type="prefill", messages=[HELLO])
        run.client.say(type="generate")
        await run.client.until("chunk")
        for _ in range(4):
            run.client.say(type="complete_turn")
        assert (await run.client.until("error", 2))["code"] == "too_fast"
        run.client.leave()
        await run.over()


@pytest.mark.parametrize("protocol", ["chat", "streaming"])
async def test_an_operator_sees_a_conversation_and_ends_it_in_the_middle_of_an_answer(
    tmp_path: Path, protocol: Literal["chat", "streaming"]
):
    async with world(tmp_path, ("We open ", HANG), protocol=protocol) as run:
        run.client.say(type="prefill", messages=[HELLO])
        session = (await run.client.until("prefill_done"))["session_id"]
        if protocol == "streaming":
            run.client.say(type="generate")
        await run.client.until("chunk")
        calls = run.engines.live_calls
        [listed] = calls.listed()
        assert (listed.session_id, listed.transport, listed.mode) == (session, "chat", "text")
        live = calls.find(listed.call_id)
        assert live is not None
        live.end()
        assert await run.over() == (1008, "ended_by_operator")
        assert run.client.received[-1]["code"] == "ended_by_operator"
        assert calls.listed() == []
        assert await run.reasons() == ["ended_by_operator"]
        assert run.ends() == {"ended_by_operator": 1}
        [reply] = await run.events(session, Kind.BOT_TURN)
        assert (reply.payload["text"], reply.payload["truncated"]) == ("We open", True)


async def test_an_operator_ends_a_client_that_asks_nothing(tmp_path: Path):
    async with world(tmp_path) as run:
        await run.client.until("queue_done")
        [listed] = run.engines.live_calls.listed()
        live = run.engines.live_calls.find(listed.call_id)
        assert live is not None
        live.end()
        assert await run.over() == (1008, "ended_by_operator")


async def test_a_client_whose_grants_end_is_sent_away_while_it_asks_nothing(tmp_path: Path):
    grants = Grants(expires_s=time.time() + 0.3)
    rules = ClientRules(ClientIdentity(owner="shop:ada", grants=grants))
    async with world(tmp_path, rules=rules) as run:
        assert "grants of this client have expired" in (await run.client.until("error"))["error"]
        assert (await run.over())[0] == 1008
        assert run.ends() == {"grants_expired": 1} and await run.reasons() == ["grants_expired"]


async def test_a_session_that_is_deleted_ends_the_conversation_with_the_reason(tmp_path: Path):
    async with world(tmp_path) as run:
        session = (await run.client.until("queue_done"))["session_id"]
        await run.conversations.delete(session)
        # The same for a client that asks nothing.
        assert "was deleted" in (await run.client.until("error"))["error"]
        assert (await run.over())[0] == 1011
        assert run.ends() == {"session_lost": 1}


async def test_instructions_of_a_client_are_not_those_of_the_next_one_of_the_session(tmp_path: Path):
    pirate = {"role": "system", "content": "You are a pirate."}
    granted = ClientRules(ClientIdentity(grants=Grants(instructions=True)))
    async with world(tmp_path, rules=granted) as run:
        run.client.say(type="prefill", messages=[pirate, HELLO])
        run.client.say(type="generate")
        session = (await run.client.until("done"))["session_id"]
        run.client.leave()
        await run.over()
        second = Client()
        held = run.hold(second, session)
        second.say(type="prefill", messages=[HELLO])
        second.say(type="generate")
        await second.until("done")
        second.leave()
        await held
        received = f"Be brief.\n\n{CLIENT_HEADING}\n\nYou are a pirate."
        assert [asked[0].text for asked in run.model.asked] == [received, "Be brief."]


async def test_an_edit_of_what_is_kept_in_short_only_is_refused(tmp_path: Path):
    short = ConversationTuning(
        linger_ms=0,
        budget_tokens=200,
        compaction=CompactionTuning(keep_turns=1, summary_tokens=50),
    )
    long = "This is a long sentence about nothing in particular, said to fill the room that there is. " * 3
    async with world(tmp_path, (long,), remembers=short) as run:
        session = (await run.client.until("queue_done"))["session_id"]
        shown: list[dict[str, Any]] = []
        for count in range(4):
            shown.append({"role": "user", "content": f"{count}: {long}"})
            run.client.say(type="prefill", messages=shown, history="whole")
            run.client.say(type="generate")
            shown.append(
                {"role": "assistant", "content": (await run.client.until("done", count + 1))["text"]}
            )
        conversation = run.conversations.get(session)
        assert conversation is not None
        async with asyncio.timeout(5):
            await conversation.kept_short()
        assert conversation.view().until_seq
        shown[0] = {"role": "user", "content": "Something else altogether."}
        run.client.say(type="prefill", messages=[*shown, HELLO])
        assert "as a summary" in (await run.client.until("error"))["error"]
        run.client.leave()
        await run.over()


def test_a_store_that_is_away_is_told_in_time_and_the_conversation_goes_on(tmp_path: Path):
    async def scenario() -> None:
        async with world(tmp_path) as run:
            await run.client.until("queue_done")
            other = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            began_s = asyncio.get_running_loop().time()
            run.client.say(type="prefill", messages=[HELLO])
            assert "unavailable" in (await run.client.until("error"))["error"]
            assert asyncio.get_running_loop().time() - began_s == pytest.approx(5, abs=0.1)
            other.rollback()
            other.close()
            await asyncio.sleep(2)
            run.client.say(type="prefill", messages=[HELLO])
            run.client.say(type="generate")
            assert (await run.client.until("done"))["text"]
            run.client.leave()
            await run.over()

    virtual_time.run(scenario())


def test_a_client_that_says_nothing_is_not_waited_for(tmp_path: Path):
    async def scenario() -> tuple[list[str], tuple[int, str]]:
        async with world(tmp_path, idle_s=60) as run:
            closed = await asyncio.wait_for(asyncio.shield(_closed(run)), 90)
            return [message["type"] for message in run.client.received], closed

    async def _closed(run: World) -> tuple[int, str]:
        await asyncio.wait({run.held})
        assert run.client.closed is not None
        return run.client.closed

    assert virtual_time.run(scenario()) == (["queue_done", "timeout"], (1000, "timeout"))


@pytest.mark.parametrize("size", [LARGE_BYTES // 2, LARGE_BYTES * 2])
async def test_a_large_message_is_read_alongside_the_loop(size: int):
    threads: list[int] = []

    def read(text: str) -> str:
        threads.append(threading.get_ident())
        if len(text) < 3:
            raise ProtocolError("too short", code="invalid_payload")
        return text

    client = Client()
    socket = MessageSocket(client, read, is_stop=lambda _text: False, settings=ChatSocketTuning())
    socket.open()
    client.say_text("x" * size)
    assert await socket.next(5) == "x" * size
    assert (threads[0] == threading.get_ident()) == (size < LARGE_BYTES)
    await socket.close()
    assert client.closed == (1000, "")


@pytest.mark.parametrize("text", ["half of a pair: \ud83d", "nothing: \u0000", "🙂 whole"])
async def test_odd_characters_are_answered_or_refused_and_fail_nothing(tmp_path: Path, text: str):
    async with world(tmp_path, ("You said: ", text)) as run:
        run.client.say(type="prefill", messages=[{"role": "user", "content": text}])
        run.client.say(type="generate")
        run.client.say(type="prefill", messages=[HELLO])
        run.client.say(type="generate")
        await run.client.until_answered(2)
        assert "the conversation failed" not in str(run.client.received)
        run.client.say(type="close")
        assert await run.over() == (1000, "")


class PipecatVoice(ServiceRow[RowSettings]):
    """Row of a Pipecat service that is made of an embedded voice."""

    name = "tone"
    settings_type = RowSettings

    def __init__(self, voice: TextToSpeech) -> None:
        super().__init__(RowSettings())
        self._voice = voice

    def build(self, shared: Shared = NOTHING_SHARED) -> EngineTtsService:
        return EngineTtsService(self._voice, executor=InlineExecutor())


class PipecatEars(ServiceRow[RowSettings]):
    """Row of a Pipecat service that is made of an embedded recogniser."""

    name = "scripted"
    settings_type = RowSettings

    def __init__(self, ears: InPlaceEngine[Transcript]) -> None:
        super().__init__(RowSettings())
        self._ears = ears

    def build(self, shared: Shared = NOTHING_SHARED) -> EngineSttService:
        return EngineSttService(self._ears)


async def test_ears_that_are_a_service_understand_a_recording(tmp_path: Path):
    async with world(tmp_path, protocol="chat", ears_are_service=True) as run:
        run.client.say(messages=[{"role": "user", "content": [{"type": "audio", "data": voice_base64()}]}])
        done = await run.client.until("done")
        await run.over()
        [turn] = await run.events(done["session_id"], Kind.USER_TURN)
    assert turn.payload["text"] == "one two three"


async def test_ears_that_are_a_service_and_hear_no_words_are_not_waited_for(tmp_path: Path):
    async with world(tmp_path, protocol="chat", ears_are_service=True, hear_s=0.3) as run:
        quiet = written(bytes(64_000))
        run.client.say(messages=[{"role": "user", "content": [{"type": "audio", "data": quiet}]}])
        assert "no speech was recognised" in (await run.client.until("error"))["error"]
        assert (await run.over())[0] == 1003


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_voice_that_is_a_service_speaks_all_of_the_answer(tmp_path: Path, streaming: bool):
    async with world(tmp_path, protocol="chat", voice=PipecatVoice(ToneTts())) as run:
        run.client.say(messages=[HELLO], tts={"enabled": True}, streaming=streaming)
        done = await run.client.until("done")
        assert "voice_error" not in done
        await run.over()
    received = [
        message.get("audio_data", "") for message in (run.client.of("chunk") if streaming else [done])
    ]
    samples = sum(len(base64.b64decode(audio)) // 4 for audio in received)
    assert samples == pytest.approx(8 * 2_400, abs=100)


async def test_a_voice_that_is_a_service_and_fails_leaves_the_words(tmp_path: Path):
    voice = PipecatVoice(ToneTts(fail_after_pieces=0))
    async with world(tmp_path, protocol="chat", voice=voice) as run:
        run.client.say(messages=[HELLO], tts={"enabled": True})
        done = await run.client.until("done")
        assert done["text"] == "We open at ten. We close at two."
        assert "failed" in done["voice_error"]
        await run.over()


async def test_a_client_that_leaves_a_service_that_speaks_leaves_nothing(tmp_path: Path):
    async with world(tmp_path, ("We open. ", HANG), protocol="chat", voice=PipecatVoice(ToneTts())) as run:
        run.client.say(messages=[HELLO], tts={"enabled": True})
        await run.client.until("chunk", 2)
        run.client.leave()
        await run.over()
        assert run.model.closed == 1


async def test_an_answer_has_all_words_of_the_human_that_wait_and_none_of_an_earlier_one(tmp_path: Path):
    async with world(tmp_path, desk=DeskSettings(reply_s=20)) as run:
        client = run.client
        session = (await client.until("queue_done"))["session_id"]
        conversation = run.conversations.get(session)
        assert conversation is not None

        async def answered(count: int) -> str:
            return str((await client.until("done", count))["text"])

        async def ask(text: str, count: int) -> None:
            client.say(type="prefill", messages=[{"role": "user", "content": text}])
            await client.until("prefill_done", count)
            client.say(type="generate")

        assert conversation.change_tier(TierEvent.TAKEN)
        conversation.say("A colleague is here.", by_human=False)
        for text in ("Good morning.", "One moment.", "I have found it."):
            conversation.say(text, by_human=True)
        await ask("Hello?", 1)
        assert await answered(1) == "A colleague is here. Good morning. One moment. I have found it."
        # None wait: the next words of the human are the answer, and they come at once.
        await ask("And now?", 2)
        async with asyncio.timeout(10):
            while conversation.events[-1].payload.get("text") != "And now?":
                await asyncio.sleep(0.01)
        conversation.say("Your card is on its way.", by_human=True)
        assert await answered(2) == "Your card is on its way."
        # Words after it that were never fetched go with their human.
        conversation.say("Goodbye.", by_human=True)
        assert conversation.change_tier(TierEvent.RETURNED)
        assert conversation.change_tier(TierEvent.TAKEN)
        conversation.say("I am another colleague.", by_human=True)
        await ask("Who are you?", 3)
        assert await answered(3) == "I am another colleague."
        conversation.say("Goodbye again.", by_human=True)
        assert conversation.change_tier(TierEvent.RETURNED)
        await ask("When do you open?", 4)
        assert await answered(4) == "We open at ten. We close at two."
        assert conversation.change_tier(TierEvent.REQUESTED)
        await ask("Hello?", 5)
        assert "Goodbye" not in await answered(5)
        client.leave()
        await run.over()
