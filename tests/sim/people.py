"""A whole call with the engines of the default deployment, on virtual time.

Voice activity, completeness, recogniser, stop words, documents and voice are those of
``configs/embedded.yaml``. They run on the loop, and their processor time does not count in the times of the
call.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import soundfile

from parley.configs.deployment import Deployment
from parley.configs.load import load_deployment
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.answers.scoring import Statements
from parley.models.keyword_spotting import COMMANDS
from parley.models.llm import LanguageModel
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from parley.models.stt import STT, Transcript
from parley.models.stt.voice import RATE_HZ
from parley.models.tts import TTS, TextToSpeech
from parley.models.turn import TURN, TurnCompleteness
from parley.models.vad import VAD, VoiceActivityDetector
from parley.pipelines.call import Call, CallPeer, LiveCall
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.engines.loading import Executors, Loaded
from parley.pipelines.engines.plan import Plan, plan
from parley.pipelines.sessions import open_conversations
from parley.pipelines.voice.cascade import run_conversation
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreTuning
from parley.telemetry.turns import TurnRecord
from parley.transports.local.file import FileCall, FileTransport, file_call_params
from tests import human_speech, virtual_time
from tests.fakes.executor import InlineExecutor
from tests.in_place_engine import InPlaceEngine, as_transcript
from tests.session_files import new_session_file

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Voices:
    """Engines of the default deployment; one of each serves all calls of the tests."""

    planned: Plan
    vad: VoiceActivityDetector
    turn: TurnCompleteness
    ears: InPlaceEngine[Transcript]
    commands: InPlaceEngine[Transcript]
    tts: TextToSpeech
    documents: LanguageModel


@dataclass(frozen=True)
class HeardCall:
    """Record of a call.

    Attributes:
        stereo: float, (samples, 2) at 16 kHz: caller left, bot right.
        turns: the records of every turn.
        events: events of the session.
    """

    stereo: np.ndarray
    turns: Sequence[TurnRecord]
    events: Sequence[Event]

    @property
    def caller_said(self) -> list[str]:
        """The caller's turns."""
        return [str(each.payload["text"]) for each in self.events if each.kind is Kind.USER_TURN]

    @property
    def bot_said(self) -> list[str]:
        """The bot's speech, as far as it was heard."""
        return [turn.bot_text for turn in self.turns if turn.bot_text]

    @property
    def facts(self) -> list[str]:
        """The bot's turns that state something of the documents."""
        return [text for text in self.bot_said if _states(text)]

    def bot_begins_ms(self) -> list[int]:
        """Return the times at which the bot begins to speak after a silence of at least 400 ms."""
        whole = len(self.stereo) // (RATE_HZ // 100) * (RATE_HZ // 100)
        loud = np.abs(self.stereo[:whole, 1]).reshape(-1, RATE_HZ // 100).max(axis=1) > 0.01
        begins: list[int] = []
        last_ms = -1_000
        for hop in np.flatnonzero(loud):
            at_ms = int(hop) * 10
            if at_ms - last_ms > 400:
                begins.append(at_ms)
            last_ms = at_ms
        return begins


@functools.cache
def statements() -> Statements:
    """Return the statements of the shipped documents."""
    folder = deployment().bot.knowledge
    return Statements(path.read_text() for path in sorted(folder.rglob("*.md")))


@functools.cache
def deployment() -> Deployment:
    """Return the deployment of ``make run``."""
    return load_deployment("embedded")


@functools.cache
def voices() -> Voices:
    """Load the default engines; skip the test when the recogniser's weights are missing."""
    human_speech.moonshine_tiny()
    return load(plan(deployment()))


def load(planned: Plan) -> Voices:
    """Load the engines of a plan whose recogniser, voice and answers are embedded."""
    hearing, speaking = planned.hearing, deployment().speaking
    assert planned.turn is not None and planned.commands is not None and hearing.turn and hearing.stop_words
    documents = DocumentLlm(
        DocumentLlmSettings.model_validate(planned.answering.documents), executor=InlineExecutor()
    )
    return Voices(
        planned,
        VAD.create(hearing.vad.name, planned.vad),
        TURN.create(hearing.turn.name, planned.turn),
        InPlaceEngine(STT.create(hearing.stt.name, planned.stt), as_transcript),
        InPlaceEngine(COMMANDS.create(hearing.stop_words.name, planned.commands), as_transcript),
        TTS.create(speaking.tts.name, planned.tts),
        documents,
    )


def hold(
    caller: Sequence[np.ndarray],
    tmp_path: Path,
    *,
    hearing: Mapping[str, Any] = NOTHING,
    engines: Voices | None = None,
) -> HeardCall:
    """Run a call with the caller's audio, float32 at 16 kHz in [-1, 1], and return what was recorded.

    The bot does not greet and does not prompt. ``hearing`` changes fields of the deployment's; ``engines``
    replace the default ones.
    """
    loaded = engines or voices()
    output = tmp_path / "call.wav"
    pcm = float_to_pcm16(np.clip(np.concatenate(caller), -1.0, 1.0))
    chosen = deployment()
    store = StoreTuning(url=new_session_file(tmp_path / "sessions.db"), busy_timeout_ms=0)
    chosen = chosen.model_copy(
        update={
            "bot": chosen.bot.model_copy(update={"greeting": "", "idle": None}),
            "hearing": loaded.planned.hearing.model_copy(update=dict(hearing)),
            "remembering": chosen.remembering.model_copy(update={"store": store}),
        }
    )

    async def scenario() -> tuple[Call, list[Event]]:
        answering = LlmRuntime(chosen, loaded.planned.answering, loaded.documents)
        inline = InlineExecutor()
        parts = Loaded(
            loaded.vad,
            loaded.turn,
            loaded.ears,
            loaded.tts,
            answering,
            commands=loaded.commands,
        )
        executors = Executors(inline, inline, inline, inline, omni=InlineExecutor)
        async with (
            Engines(chosen, parts, executors) as running,
            open_conversations(chosen, answering) as conversations,
            conversations.open() as conversation,
        ):
            live = LiveCall(conversation.clock)
            played = FileCall(pcm, rate_hz=RATE_HZ, output=output, patience_ms=0, on_packet=live.on_packet)
            over = FileTransport(played, file_call_params(RATE_HZ), live.events)
            call = Call(
                conversation, "file", live, peer=CallPeer(speaks_rtvi=False), finished=played.finished
            )
            await run_conversation(running, over, call)
            played.recording.close()
            return call, await conversations.store.events(conversation.session_id, limit=10_000)

    call, events = virtual_time.run(scenario())
    stereo, _ = soundfile.read(output, dtype="float32")
    return HeardCall(stereo, tuple(call.live.turns.finished), events)


def silence(duration_ms: int, level: float = 0.0005) -> np.ndarray:
    """Return the noise of a quiet line."""
    rng = np.random.default_rng(duration_ms)
    return (level * rng.standard_normal(RATE_HZ * duration_ms // 1000)).astype(np.float32)


def speech(pcm: bytes) -> np.ndarray:
    """Return 16-bit PCM as samples."""
    return pcm16_to_float(pcm)


def _states(text: str) -> bool:
    # A refusal lists topics in the words of the documents, and a clarifying question repeats the caller's
    # words.
    is_other = text.startswith(("I don't know", "Sorry, I don't know", "I heard:"))
    return not is_other and statements().occur_in(text)
