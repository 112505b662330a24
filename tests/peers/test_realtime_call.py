"""A call with a realtime service: a file as the caller, the provider's protocol on loopback, real time."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from pipecat.frames.frames import LLMMessagesAppendFrame

from parley.configs.deployment import Bot, Choice, Deployment, Duplex, Remembering, Thinking
from parley.core.call_events import CallEnding, ReplyFinished
from parley.core.client_rules import ClientRules
from parley.core.grants import ANONYMOUS, ClientIdentity, Grants
from parley.core.media import float_to_pcm16
from parley.models.stt import Transcript
from parley.pipelines.call import Call, CallPeer, LiveCall
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.engines.loading import Executors, Loaded
from parley.pipelines.engines.plan import plan_realtime
from parley.pipelines.lifecycle import EXPIRED, LIMITED, OVER_LIMIT
from parley.pipelines.sessions import open_conversations
from parley.pipelines.voice.duplex import run_duplex
from parley.processors.dialogue.llm_timeouts import GuardTuning
from parley.processors.dialogue.services import Documents, DocumentsSettings
from parley.protocols.annotations import AnnotationBatch, placed
from parley.recording.settings import RecordingSettings
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreTuning
from parley.telemetry.turns import TurnRecord
from parley.transports.local.file import FileCall, FileTransport, file_call_params
from tests.fakes.executor import InlineExecutor
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.fakes.tts import ToneTts
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import InPlaceEngine, as_transcript
from tests.peers.openai_live_server import LiveServer
from tests.peers.openai_realtime_server import Answer, RealtimeServer
from tests.peers.test_command import command
from tests.sim.call import RATE_HZ, silence, voice

RECORDED = "This call is recorded."
# The voice of the test says ten words a second.
LONG_PHRASE = "This call is recorded so that we all can learn from it later on."
APOLOGY = "Sorry, something is wrong here."
QUESTION = Answer("How much is it?", (" It", " costs", " five", " euros", "."), audio_ms=1_200)


@dataclass
class Held:
    """Results of a call."""

    stereo: np.ndarray
    events: Sequence[Event]
    turns: Sequence[TurnRecord]
    session_id: str
    end: tuple[str, str] = ("stopped", "")

    def of(self, kind: Kind) -> list[Event]:
        return [event for event in self.events if event.kind is kind]

    def bot_ms(self) -> list[int]:
        """Return the 10 ms steps in which the bot is audible."""
        loud = np.abs(self.stereo[:, 1]).reshape(-1, RATE_HZ // 100).max(axis=1) > 0.01
        return [int(step) * 10 for step in np.flatnonzero(loud)]


def reason_of_end(held: Held) -> str | None:
    """Return the server's reason for the end of the call, from its last record."""
    assert held.events[-1].kind is Kind.LEFT
    return held.events[-1].payload.get("reason")


async def hold(
    server: RealtimeServer | LiveServer,
    caller: Sequence[np.ndarray],
    tmp_path: Path,
    *,
    greeting: str = "",
    tail_ms: int = 1_000,
    session_id: str | None = None,
    duplex: dict[str, Any] | None = None,
    limit_s: int = 12,
    typed: str = "",
    patience_ms: int | None = None,
    grants: Grants | None = None,
    concurrently: Callable[[Engines, Call], Coroutine[Any, Any, None]] | None = None,
    model: ScriptedLanguageModel | None = None,
    announcement: str = "",
    talks_over: bool = False,
) -> Held:
    output = tmp_path / "call.wav"
    choice = Choice(name="openai_realtime", settings={"base_url": server.url, "silence_ms": 300})
    if isinstance(server, LiveServer):
        choice = Choice(name="openai_live", settings={"base_url": server.url})
    deployment = Deployment(
        bot=Bot(greeting=greeting, greeting_again="", system_prompt="Be brief."),
        thinking=Thinking(guard=GuardTuning(apology=APOLOGY)),
        remembering=Remembering(store=StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db")),
        duplex=Duplex(engine=choice, tick_log=None, **(duplex or {})),
        recording=RecordingSettings(
            enabled=bool(announcement), folder=tmp_path / "data", min_free_gb=0, announcement=announcement
        ),
    )
    answering = LlmRuntime(
        deployment,
        AnsweringPlan(Documents(DocumentsSettings()), None, False),
        model or ScriptedLanguageModel(),
    )
    ears = InPlaceEngine[Transcript](ScriptedStt(ScriptedSttSettings()), as_transcript)
    loaded = Loaded(
        EnergyVad(0.01), ScriptedTurn(), ears, ToneTts(), answering, realtime=plan_realtime(deployment)
    )
    inline, ends = InlineExecutor(), list[CallEnding]()
    async with (
        Engines(deployment, loaded, Executors(inline, inline, inline, inline)) as engines,
        open_conversations(deployment, answering) as conversations,
    ):
        async with conversations.open(session_id) as conversation:
            live = LiveCall(conversation.clock, rate_hz=RATE_HZ)
            live.events.subscribe(CallEnding, ends.append)
            played = FileCall(
                float_to_pcm16(np.concatenate(caller)),
                rate_hz=RATE_HZ,
                output=output,
                patience_ms=patience_ms or (5_000 if greeting else 200),
                talks_over=talks_over,
                tail_ms=tail_ms,
                limit_s=limit_s,
                on_packet=live.on_packet,
            )
            transport = FileTransport(played, file_call_params(RATE_HZ), live.events)
            call = Call(
                conversation,
                "file",
                live,
                peer=CallPeer(speaks_rtvi=bool(typed)),
                finished=played.finished,
                rules=ClientRules(ClientIdentity(owner="shop:ann", grants=grants) if grants else ANONYMOUS),
            )
            if typed:
                types(transport, call, typed, behind_greeting=bool(greeting))
            async with asyncio.TaskGroup() as tasks:
                if concurrently is not None:
                    tasks.create_task(concurrently(engines, call))
                await run_duplex(engines, transport, call)
            played.recording.close()
        events = await conversations.store.events(conversation.session_id, limit=10_000)
    stereo, _ = soundfile.read(output, dtype="float32")
    whole = len(stereo) - len(stereo) % (RATE_HZ // 100)
    held = Held(stereo[:whole], events, tuple(call.live.turns.finished), conversation.session_id)
    return replace(held, end=(ends[-1].reason, ends[-1].message)) if ends else held


def types(transport: FileTransport, call: Call, text: str, *, behind_greeting: bool) -> None:
    """Type a text as RTVI's ``send-text`` does: at once, or when the greeting has been heard."""
    heard = asyncio.Event()

    def on_finished(event: ReplyFinished) -> None:
        if event.heard.is_known:
            heard.set()

    call.events.subscribe(ReplyFinished, on_finished)

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: object, _client: object) -> None:
        if behind_greeting:
            await heard.wait()
        await call.live.input.queue(LLMMessagesAppendFrame([{"role": "user", "content": text}], run_llm=True))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key of the test")


@pytest.mark.alone
async def test_a_question_is_heard_answered_and_written_down(tmp_path: Path):
    async with RealtimeServer([QUESTION]) as server:
        held = await hold(server, [silence(300), voice(800), silence(600)], tmp_path)
    assert server.headers["Authorization"] == "Bearer a key of the test"
    assert server.model == "gpt-realtime-2.1"
    heard = server.session["audio"]["input"]
    assert heard["format"] == {"type": "audio/pcm", "rate": 24_000}
    assert heard["transcription"]["model"] == "gpt-realtime-whisper"
    assert heard["turn_detection"]["silence_duration_ms"] == 300
    assert server.session["instructions"] == "Be brief."
    # The caller's audio comes at 24 kHz, in real time.
    (first_s, first), (last_s, _) = server.arrivals[0], server.arrivals[-1]
    assert (server.samples - first) / (last_s - first_s) == pytest.approx(24_000, rel=0.05)
    # All of it once; a loop that stalls leaves a silence in the recording, as a caller hears it.
    assert len(held.bot_ms()) * 10 == pytest.approx(1_200, abs=60)
    [said], [answered] = held.of(Kind.USER_TURN), held.of(Kind.BOT_TURN)
    assert said.payload["text"] == "How much is it?"
    assert answered.payload["text"] == "It costs five euros."
    assert not answered.payload["truncated"]
    assert abs(answered.payload["audio_ms"] - 1_200) <= 20
    # The turn ends when it has been heard, not when the call ends.
    assert answered.arrival_us - answered.event_us == pytest.approx(1_200_000, abs=150_000)
    # The turn's time is the start of the voice, though its words came a second later.
    assert said.event_us < answered.event_us
    assert answered.event_us - said.event_us == pytest.approx(1_300_000, abs=400_000)
    assert said.arrival_us - said.event_us > 500_000
    [turn] = held.turns
    assert (turn.user_text, turn.bot_text) == ("How much is it?", "It costs five euros.")


@pytest.mark.paired
async def test_words_that_come_after_the_answer_are_before_it_in_the_session(tmp_path: Path):
    late = Answer("How much is it?", QUESTION.text, audio_ms=1_200, transcript_late_ms=900)
    async with RealtimeServer([late]) as server:
        held = await hold(server, [silence(300), voice(800), silence(600)], tmp_path)
    [said], [answered] = held.of(Kind.USER_TURN), held.of(Kind.BOT_TURN)
    assert said.payload["text"] == "How much is it?"
    assert said.event_us < answered.event_us


@pytest.mark.paired
async def test_the_service_greets_with_the_words_of_the_deployment(tmp_path: Path):
    async with RealtimeServer([QUESTION]) as server:
        held = await hold(server, [voice(600), silence(600)], tmp_path, greeting="Good day.")
    [asked] = server.sent("conversation.item.create")
    assert "Greet them with these words: Good day." in str(asked["item"]["content"])
    assert len(server.sent("response.create")) == 1
    assert [turn.payload["text"] for turn in held.of(Kind.BOT_TURN)] == [
        "Hello there.",
        "It costs five euros.",
    ]


@pytest.mark.paired
@pytest.mark.parametrize("greeting", ["", "Good day."])
async def test_a_caller_hears_of_the_recording_before_the_service_hears_them(tmp_path: Path, greeting: str):
    async with RealtimeServer([QUESTION]) as server:
        # The caller speaks over the phrase: the service hears only what they say after it.
        caller = [voice(600), silence(4_000), voice(600), silence(600)]
        held = await hold(
            server, caller, tmp_path, greeting=greeting, announcement=LONG_PHRASE, talks_over=True, limit_s=20
        )
    announced = LONG_PHRASE, *(["Hello there."] if greeting else [])
    assert [turn.payload["text"] for turn in held.of(Kind.BOT_TURN)] == [*announced, "It costs five euros."]
    assert [turn.payload["text"] for turn in held.of(Kind.USER_TURN)] == ["How much is it?"]
    assert recording_states(held) == ["announced", "started", "ended"]
    [asked] = server.sent("conversation.item.create") or [""]
    assert ("Greet them with these words: Good day." in str(asked)) is bool(greeting)


def recording_states(held: Held) -> list[str]:
    return [event.payload["state"] for event in held.of(Kind.RECORDING)]


@pytest.mark.alone
@pytest.mark.parametrize("pieces_ms", [0, 90], ids=["sent at once", "sent as it is said"])
async def test_a_voice_over_the_bot_cuts_it_off_where_it_was_heard(tmp_path: Path, pieces_ms: int):
    words = tuple(f" word{number}" for number in range(20))
    long = Answer("Tell me all.", words, audio_ms=8_000, pieces_ms=pieces_ms)
    async with RealtimeServer([long, QUESTION]) as server:
        caller = [silence(300), voice(600), silence(2_500), voice(600), silence(600)]
        held = await hold(server, caller, tmp_path)
    first, second = held.of(Kind.BOT_TURN)
    assert first.payload["truncated"]
    # About 2.2 s of eight were heard: a quarter of the words; the rest is kept as unheard.
    [cut_ms] = server.truncated_ms
    assert first.payload["audio_ms"] == pytest.approx(cut_ms, abs=250)
    assert first.payload["audio_ms"] == pytest.approx(2_200, abs=400)
    said = first.payload["text"].split()
    assert 3 <= len(said) <= 8
    known = [*said, *first.payload["unheard"].split()]
    assert known == [word.strip() for word in words[: len(known)]]
    assert len(known) == 20 if pieces_ms == 0 else len(known) < 12
    assert second.payload["text"] == "It costs five euros."
    assert len(held.of(Kind.USER_TURN)) == 2
    # Silence between the cut and the next answer: the rest of the eight seconds is not played.
    assert len(held.bot_ms()) * 10 == pytest.approx(first.payload["audio_ms"] + 1_200, abs=300)


async def test_what_was_said_before_is_known_when_the_call_goes_on(tmp_path: Path):
    async with RealtimeServer([QUESTION]) as server:
        held = await hold(server, [silence(200), voice(600), silence(600)], tmp_path)
    async with RealtimeServer([QUESTION]) as server:
        await hold(server, [silence(200), voice(600), silence(600)], tmp_path, session_id=held.session_id)
    # No greeting is requested: a context would be answered, so it is in the instructions.
    assert not server.sent("response.create")
    assert "user: How much is it?\nassistant: It costs five euros." in server.session["instructions"]


@pytest.mark.parametrize("code", [1000, 1011])
async def test_a_socket_that_closes_is_said_and_ends_the_call(tmp_path: Path, code: int):
    async with RealtimeServer([QUESTION], close_on_voice=0, close_code=code) as server:
        held = await hold(server, [silence(300), voice(600), silence(8_000)], tmp_path)
    # The apology is heard, is not part of the conversation, and ends the call long before the caller would.
    assert held.bot_ms()
    assert len(held.stereo) / RATE_HZ < 6
    assert not held.of(Kind.BOT_TURN)
    assert reason_of_end(held) == "service_failed"


async def test_a_key_that_is_refused_is_said_and_ends_the_call(tmp_path: Path):
    async with RealtimeServer([QUESTION], status=401) as server:
        held = await hold(server, [silence(8_000)], tmp_path)
    assert held.bot_ms()
    assert len(held.stereo) / RATE_HZ < 6
    assert reason_of_end(held) == "service_failed"


async def test_a_failed_response_is_said_and_ends_the_call(tmp_path: Path):
    failed = Answer("How much is it?", failed=True)
    async with RealtimeServer([failed]) as server:
        held = await hold(server, [silence(300), voice(600), silence(8_000)], tmp_path)
    assert held.bot_ms()
    assert len(held.stereo) / RATE_HZ < 6
    [said] = held.of(Kind.USER_TURN)
    assert said.payload["text"] == "How much is it?"


@pytest.mark.alone
async def test_an_answer_that_never_comes_is_apologised_for_and_the_second_one_ends_the_call(
    tmp_path: Path,
):
    nothing = Answer("Are you there?", silent=True)
    async with RealtimeServer([nothing]) as server:
        caller = [silence(300), voice(500), silence(2_500), voice(500), silence(8_000)]
        held = await hold(server, caller, tmp_path, duplex={"answer_ms": 1_000}, tail_ms=4_000)
    assert len(held.stereo) / RATE_HZ < 9
    steps = np.diff(held.bot_ms())
    assert sum(steps > 400) == 1
    assert held.events[-1].kind is Kind.LEFT


@pytest.mark.alone
async def test_spoken_turns_are_counted_and_the_first_too_many_ends_the_call(tmp_path: Path):
    async with RealtimeServer([QUESTION, QUESTION, QUESTION, QUESTION]) as server:
        turn = [voice(600), silence(2_500)]
        held = await hold(server, [silence(300), *turn * 4], tmp_path, grants=Grants(turns_per_minute=4))
    assert held.end == (LIMITED, OVER_LIMIT)
    # The caller is notified: the bot is heard after the answer to the first turn, and the last turns are not
    # recorded.
    assert len(held.of(Kind.USER_TURN)) <= 2
    assert len(held.stereo) < 9_000 * RATE_HZ // 1_000


async def test_a_call_ends_with_the_grants_of_its_client(tmp_path: Path):
    async with RealtimeServer([QUESTION]) as server:
        grants = Grants(expires_s=time.time() + 1.5)
        held = await hold(server, [silence(8_000)], tmp_path, grants=grants)
    assert held.end == EXPIRED
    assert len(held.stereo) < 7_000 * RATE_HZ // 1_000


@pytest.mark.parametrize("greeting", ["", "Good day."])
async def test_typed_words_are_answered_and_written_down(tmp_path: Path, greeting: str):
    async with RealtimeServer([QUESTION]) as server:
        held = await hold(server, [silence(1_500)], tmp_path, greeting=greeting, typed="How much is it?")
    [item] = [each for each in server.sent("conversation.item.create") if "How much is it?" in str(each)]
    # The item holds the caller's words, not instructions of the application.
    assert item["item"]["role"] == "user"
    assert len(server.sent("response.create")) == (2 if greeting else 1)
    [said] = held.of(Kind.USER_TURN)
    assert said.payload["text"] == "How much is it?"
    assert [turn.payload["text"] for turn in held.of(Kind.BOT_TURN)] == ["Hello there."] * (
        2 if greeting else 1
    )


async def test_typed_words_that_a_service_cannot_take_are_refused_and_no_one_waits_for_an_answer(
    tmp_path: Path,
):
    async with LiveServer() as server:
        held = await hold(
            server, [silence(2_500)], tmp_path, typed="How much is it?", duplex={"answer_ms": 1_000}
        )
    assert "How much is it?" not in str(server.events)
    assert not held.of(Kind.USER_TURN)
    # No apology when no answer is due.
    assert not held.bot_ms()


async def test_the_command_holds_a_call_with_a_service(tmp_path: Path):
    soundfile.write(tmp_path / "q.wav", np.concatenate([silence(200), voice(600), silence(500)]), RATE_HZ)
    async with RealtimeServer([QUESTION]) as server:
        (tmp_path / "own.yaml").write_text(
            "bot: {greeting: Good day.}\n"
            "duplex:\n  engine:\n    name: openai_realtime\n"
            f"    settings: {{base_url: '{server.url}', silence_ms: 300}}\n"
        )
        status, _, error = await command(
            "--mode", "duplex", "--transport", "file", "--config", str(tmp_path / "own.yaml"),
            "--input", str(tmp_path / "q.wav"), "--output", str(tmp_path / "call.wav"),
        )  # fmt: skip
    assert status == 0, error
    document = json.loads((tmp_path / "call.json").read_text())
    assert document["engines"]["omni"] == "openai_realtime"
    assert [(turn["user_text"], turn["bot_text"]) for turn in document["turns"]] == [
        ("", "Hello there."),
        ("How much is it?", "It costs five euros."),
    ]


@pytest.mark.alone
@pytest.mark.parametrize("greeting", ["", "Good day."])
async def test_a_service_with_one_stream_is_heard_and_written_down(tmp_path: Path, greeting: str):
    said = (" It", " costs", " five", " euros.")
    async with LiveServer(heard=("How much", " is it?"), says=said) as server:
        caller = [silence(1_000), voice(800), silence(600)]
        # This server notes the request for a greeting and stays silent: the caller does not wait for it.
        held = await hold(server, caller, tmp_path, tail_ms=2_000, patience_ms=200, greeting=greeting)
    assert server.session["instructions"] == "Be brief."
    asked = [event["content"] for event in server.events if event["type"] == "session.commentary.append"]
    assert len(asked) == (1 if greeting else 0)
    [turn], [answered] = held.of(Kind.USER_TURN), held.of(Kind.BOT_TURN)
    assert turn.payload["text"] == "How much is it?"
    assert turn.event_us < answered.event_us
    assert answered.payload["text"] == "It costs five euros."
    assert not answered.payload["truncated"]
    assert len(held.bot_ms()) * 10 == pytest.approx(1_200, abs=60)
    # The silence that ended the utterance is a part of it; the silence around it is not.
    assert answered.payload["audio_ms"] == pytest.approx(1_200 + 800, abs=100)


@pytest.mark.alone
async def test_a_gesture_is_in_the_session_with_the_words_and_its_program_knows_that_no_model_reads_it(
    tmp_path: Path,
):
    are_read: list[bool] = []

    async def point(engines: Engines, call: Call) -> None:
        while (entry := engines.annotations.find(call.conversation.session_id)) is None:
            await asyncio.sleep(0.01)
        are_read.append(entry.are_read)
        pointing = {"stream": "vision", "age_ms": 0, "duration_ms": 500, "payload": {"ref": "the fee"}}
        batch = AnnotationBatch.model_validate({"annotations": [pointing]})
        while not entry.ended.is_set():
            entry.take(placed(batch, now_us=entry.now_us(), began_us=entry.began_us))
            await asyncio.sleep(0.1)

    async with RealtimeServer([QUESTION]) as server:
        held = await hold(server, [silence(300), voice(800), silence(600)], tmp_path, concurrently=point)
    assert are_read == [False]
    [said] = held.of(Kind.USER_TURN)
    assert said.payload["text"] == "How much is it?"
    assert said.payload["tokens"][0]["visual"]["ref"] == "the fee"
