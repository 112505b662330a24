"""A half-duplex call whose engines or client fail: the page is notified, and nothing is left over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.configs.deployment import Bot, Deployment, Hearing, Remembering
from parley.core.client_rules import ClientRules
from parley.core.errors import EngineError
from parley.models.omni import OmniHost
from parley.models.tts import TextToSpeech
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.engines.loading import Executors, Loaded
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.sessions import open_conversations
from parley.pipelines.sockets.realtime_socket import reason_of, run_socket_session
from parley.processors.dialogue.services import Documents, DocumentsSettings
from parley.protocols.client_protocol import ClientProtocol, written
from parley.protocols.half_duplex import HalfDuplex
from parley.recording.settings import RecordingSettings
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreTuning
from parley.transports.websocket.session import SocketCall
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.late_engine import LateEngine
from tests.fakes.scripted_llm import HANG, Script, ScriptedLanguageModel
from tests.fakes.stt import ScriptedStt
from tests.fakes.tts import ToneTts
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import as_transcript
from tests.unit.pipelines.test_chat_sockets import Client

ANSWER: Script = ("This is a rather long answer to a short question. ", "It has a second sentence too.")


class Caller(Client):
    """A page, in memory."""

    session: SocketCall
    call: "asyncio.Task[None]"
    events: list[Event]
    # Metrics of the process after the call, as they are read.
    metrics: str

    async def prepare(self, **config: Any) -> dict[str, Any]:
        self.say(type="prepare", config=config)
        return await self.until("prepared")

    async def ask(self) -> None:
        """Send a voice of 0.8 s, then silence until the answer is announced."""
        t = np.arange(1_600) / 16_000
        loud, quiet = 0.3 * np.sin(2 * np.pi * 200 * t), np.zeros(1_600)
        for count in range(80):
            if self.of("generating"):
                return
            data = (loud if 2 <= count < 10 else quiet).astype("<f4").tobytes()
            self.say(type="audio_chunk", audio_base64=written(data))
            await asyncio.sleep(0.1)
        raise AssertionError(self.received)


@asynccontextmanager
async def call(
    folder: Path,
    *scripts: Script,
    voice: TextToSpeech | None = None,
    protocol: ClientProtocol | None = None,
    late_ms: int = 0,
    earlier: str = "",
    omni: Sequence[OmniHost] = (),
    imitated: Callable[[str], Awaitable[np.ndarray]] | None = None,
    recording: RecordingSettings | None = None,
) -> AsyncIterator[Caller]:
    """Run a call of a page whose recogniser's last words come late; assert that nothing is left after it.

    ``earlier``: words of the caller in the session before the call; ``omni``: engines of a call in full
    duplex; ``imitated``: as in ``run_socket_session``.
    """
    deployment = Deployment(
        bot=Bot(greeting="", greeting_again=""),
        hearing=Hearing(echo=None, stop_words=None),
        recording=recording or RecordingSettings(folder=folder),
        remembering=Remembering(store=StoreTuning(url=f"sqlite:///{folder}/sessions.db")),
    )
    model = ScriptedLanguageModel(*(scripts or (ANSWER,)))
    answering = LlmRuntime(deployment, AnsweringPlan(Documents(DocumentsSettings()), None, False), model)
    heard = LateEngine(ScriptedStt(), as_transcript, late_ms)
    loaded = Loaded(
        EnergyVad(0.01), ScriptedTurn([0.95] * 9), heard, voice or ToneTts(), answering, omni=tuple(omni)
    )
    inline = InlineExecutor()
    before = asyncio.all_tasks()
    caller = Caller()
    async with (
        Engines(deployment, loaded, Executors(*[inline] * 4, omni=InlineExecutor)) as engines,
        open_conversations(deployment, answering) as conversations,
    ):
        async with conversations.open() as conversation:
            if earlier:
                await conversation.user_turn(earlier, transport="text")
            session = SocketCall(caller, protocol or HalfDuplex(longest_s=60), rate_hz=INPUT_RATE_HZ)
            caller.session = session
            session.open()

            async def hold() -> None:
                # Ends as in ``pipelines.dispatch.converse_by_socket``.
                failure: BaseException | None = None
                try:
                    await run_socket_session(
                        *(engines, conversation, session),
                        mode="duplex" if omni else "cascade",
                        rules=ClientRules(),
                        imitated=imitated,
                    )
                except Exception as error:
                    failure = error
                finally:
                    reason, message = reason_of(failure or conversation.loss)
                    session.over(reason, message)
                    await session.close(reason)

            caller.call = asyncio.create_task(hold(), name="call")
            try:
                yield caller
            finally:
                caller.leave()
                async with asyncio.timeout(10):
                    await caller.call
        caller.metrics = engines.metrics.render("")[0].decode()
        caller.events = await conversations.store.events(conversation.session_id, limit=1_000)
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not left, left


@pytest.mark.parametrize("announcement", ["", "This call is recorded."])
def test_a_page_reads_the_id_of_a_recording_or_hears_of_it_first(tmp_path: Path, announcement: str):
    recording = RecordingSettings(
        enabled=True, folder=tmp_path, min_free_gb=0, merged=False, announcement=announcement
    )

    async def scenario() -> tuple[dict[str, Any], list[Event]]:
        async with call(tmp_path, recording=recording) as caller:
            # A page that prepares late misses nothing of the phrase.
            await asyncio.sleep(5)
            assert not caller.of("generating")
            prepared = await caller.prepare()
            if announcement:
                said = await caller.until("turn_done")
                assert said["text"] == announcement and caller.of("chunk")
        return prepared, caller.events

    prepared, events = virtual_time.run(scenario())
    id_in_time = None if announcement else prepared["session_id"]
    assert prepared.get("recording_session_id") == id_in_time
    states = [event.payload["state"] for event in events if event.kind is Kind.RECORDING]
    assert states == [*(["announced"] if announcement else []), "started", "ended"]


def test_a_page_that_vanishes_in_the_middle_of_an_answer_leaves_nothing(tmp_path: Path):
    async def scenario() -> list[Event]:
        async with call(tmp_path) as caller:
            await caller.prepare()
            await caller.ask()
            await caller.until("chunk", 30)
        return caller.events

    events = virtual_time.run(scenario())
    [reply] = [event for event in events if event.kind is Kind.BOT_TURN]
    assert reply.payload["truncated"]
    assert events[-1].kind is Kind.LEFT


@pytest.mark.parametrize(
    ("end", "reason"), [("time", "timeout"), ("refusals", "unreadable_messages"), ("leave", None)]
)
def test_an_end_by_the_server_has_its_reason_in_the_session_and_the_metrics(
    tmp_path: Path, end: str, reason: str | None
):
    async def scenario() -> Caller:
        async with call(tmp_path) as caller:
            await caller.prepare()
            if end == "refusals":
                for _ in range(caller.session.settings.most_refusals):
                    caller.say(type="no such message")
            if end != "leave":
                # The page names no length: the call ends after the longest one.
                await asyncio.wait_for(caller.session.gone.wait(), 120)
                await asyncio.wait({caller.call})
        return caller

    caller = virtual_time.run(scenario())
    [left] = [event for event in caller.events if event.kind is Kind.LEFT]
    assert left.payload.get("reason") == reason
    counted = f'parley_call_ends_total{{reason="{reason}"}} 1'
    assert (counted in caller.metrics) == (reason is not None)


def test_an_answer_is_told_to_its_end_and_the_next_question_is_heard(tmp_path: Path):
    async def scenario() -> Caller:
        async with call(tmp_path) as caller:
            await caller.prepare()
            await caller.ask()
            await caller.until("turn_done")
            caller.received.clear()
            await caller.ask()
            await caller.until("turn_done")
        return caller

    caller = virtual_time.run(scenario())
    done = caller.of("turn_done")[0]
    assert (done["turn_index"], done["text"]) == (2, "".join(ANSWER))
    # 15 words of 100 ms each, and the silences of the voice: the length that the session records as played.
    played_ms = [event.payload["audio_ms"] for event in caller.events if event.kind is Kind.BOT_TURN][-1]
    assert 1_500 <= played_ms <= 1_600
    assert sum(chunk["duration_ms"] for chunk in caller.of("chunk")) == pytest.approx(played_ms, abs=25)
    [generating] = caller.of("generating")
    assert generating["speech_duration_ms"] == pytest.approx(800, abs=150)


@pytest.mark.parametrize(
    "script",
    [(EngineError("it broke", engine="scripted"),), (), (HANG,)],
    ids=["fails", "says nothing", "hangs"],
)
def test_a_model_without_an_answer_does_not_leave_the_page_deaf(tmp_path: Path, script: Script):
    async def scenario() -> None:
        async with call(tmp_path, script) as caller:
            await caller.prepare()
            await caller.ask()
            await caller.until("turn_done")

    virtual_time.run(scenario())


def test_a_voice_that_fails_does_not_leave_the_page_deaf(tmp_path: Path):
    async def scenario() -> None:
        async with call(tmp_path, voice=ToneTts(fail_after_pieces=0)) as caller:
            await caller.prepare()
            await caller.ask()
            await caller.until("turn_done")

    virtual_time.run(scenario())


def test_a_call_that_ends_for_silence_ends_for_its_client_without_an_error(tmp_path: Path):
    async def scenario() -> Caller:
        # Longer than both sides may be silent.
        async with call(tmp_path, protocol=HalfDuplex(longest_s=900)) as caller:
            await caller.prepare(session={"timeout_s": 900})
            while not caller.call.done():
                caller.say(type="audio_chunk", audio_base64=written(bytes(4 * 1_600)))
                await asyncio.sleep(0.1)
        return caller

    caller = virtual_time.run(scenario())
    assert caller.of("error") == []
    assert caller.closed == (1000, "stopped")
    assert caller.events[-1].kind is Kind.LEFT and caller.events[-1].payload["reason"] == "silence"


def test_a_conversation_is_over_when_its_time_is_whatever_is_being_said(tmp_path: Path):
    async def scenario() -> Caller:
        async with call(tmp_path, ("word " * 400,)) as caller:
            await caller.prepare(session={"timeout_s": 5})
            await caller.ask()
            await caller.call
        return caller

    caller = virtual_time.run(scenario())
    assert [message["type"] for message in caller.received[-3:]] == ["chunk", "turn_done", "timeout"]
    assert caller.received[-1]["elapsed_s"] == pytest.approx(5, abs=0.1)
    assert caller.closed == (1000, "timeout")
