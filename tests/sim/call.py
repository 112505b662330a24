"""A whole call on virtual time: the real pipeline, a scripted caller, engines that cost nothing."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import soundfile
from pipecat.transports.base_transport import TransportParams

from configs.deployment import Bot, Deployment, Remembering
from core.media import float_to_pcm16
from models.stt import Transcript
from pipelines.answering import Answering, AnsweringPlan
from pipelines.call import Call
from pipelines.cascade import run_conversation
from pipelines.engines import Engines, Executors, Loaded
from pipelines.sessions import open_conversations
from processors.dialogue.services import Documents, DocumentsSettings
from runtime.in_place_engine import InPlaceEngine
from session_store.conversation import Conversations
from session_store.events import Event
from session_store.settings import StoreSettings
from telemetry.turns import TurnLog, TurnRecord
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.scripted_llm import Script, ScriptedLanguageModel
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.fakes.tts import ToneTts
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad
from transports.local.file import FileCall, FileTransport

RATE_HZ = 16_000


def silence(duration_ms: int) -> np.ndarray:
    return np.zeros(RATE_HZ * duration_ms // 1000, np.float32)


def voice(duration_ms: int) -> np.ndarray:
    """Something loud that the fake ears take for speech."""
    t = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return (0.3 * np.sin(2 * np.pi * 200 * t)).astype(np.float32)


@dataclass(frozen=True)
class Beside:
    """What somebody beside a simulated call can reach."""

    call: Call
    conversations: Conversations
    model: ScriptedLanguageModel


@dataclass
class SimulatedCall:
    """What a scripted call left behind.

    Attributes:
        stereo: float, (samples, 2) at 16 kHz: caller left, bot right.
        turns: the records of every turn.
        events: what the session holds.
        model: the language model with what it was asked.
    """

    stereo: np.ndarray
    turns: Sequence[TurnRecord]
    events: Sequence[Event]
    model: ScriptedLanguageModel
    completeness: ScriptedTurn = field(default_factory=ScriptedTurn)

    def bot_spans_ms(self, *, gap_ms: int = 400) -> list[tuple[int, int]]:
        """Start and end of each stretch of bot speech; pauses up to ``gap_ms`` belong to it."""
        loud = np.abs(self.stereo[:, 1]).reshape(-1, RATE_HZ // 100).max(axis=1) > 0.01
        spans: list[tuple[int, int]] = []
        for hop in np.flatnonzero(loud):
            at_ms = int(hop) * 10
            if spans and at_ms - spans[-1][1] <= gap_ms:
                spans[-1] = (spans[-1][0], at_ms + 10)
            else:
                spans.append((at_ms, at_ms + 10))
        return spans


def simulate(
    caller: Sequence[np.ndarray],
    tmp_path: Path,
    *,
    scripts: Sequence[Script] = (("The answer is yes. ", "That is all."),),
    greeting: str = "",
    completeness: Sequence[float] = (0.95,),
    tail_ms: int = 3_000,
    frame_ms: int = 20,
    bot: Mapping[str, Any] = MappingProxyType({}),
    beside: Callable[[Beside], Coroutine[Any, Any, None]] | None = None,
) -> SimulatedCall:
    """Hold a call with the caller's audio on virtual time and read what was recorded.

    ``beside`` runs while the call does: somebody who disturbs it, or says what is perceived of it.
    """
    model = ScriptedLanguageModel(*scripts)
    turn = ScriptedTurn(completeness)
    output = tmp_path / "call.wav"

    async def scenario() -> tuple[TurnLog, list[Event]]:
        # No waiting for a locked file inside of SQLite: it would be real time.
        store = StoreSettings(url=f"sqlite:///{tmp_path}/sessions.db", busy_timeout_ms=0)
        deployment = Deployment(bot=Bot(greeting=greeting, **bot), remembering=Remembering(store=store))
        answering = Answering(deployment, AnsweringPlan(Documents(DocumentsSettings()), None, False), model)
        ears = InPlaceEngine[Transcript](
            ScriptedStt(ScriptedSttSettings(words=("what", "is", "it"))), _accept_transcript
        )
        loaded = Loaded(EnergyVad(), turn, ears, ToneTts(), answering)
        inline = InlineExecutor()
        async with (
            Engines(deployment, loaded, Executors(inline, inline, inline)) as engines,
            open_conversations(deployment, answering) as conversations,
        ):
            async with conversations.open() as conversation:
                call = Call(conversation, "file")
                other = asyncio.create_task(beside(Beside(call, conversations, model))) if beside else None
                turns = await hold(engines, call)
                if other is not None:
                    await other
            return turns, await conversations.store.events(conversation.session_id, limit=10_000)

    async def hold(engines: Engines, call: Call) -> TurnLog:
        pcm = float_to_pcm16(np.concatenate(caller))
        played = FileCall(
            pcm,
            rate_hz=RATE_HZ,
            output=output,
            patience_ms=0,
            tail_ms=tail_ms,
            frame_ms=frame_ms,
            on_packet=call.on_packet,
        )
        params = TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=RATE_HZ,
            audio_out_sample_rate=RATE_HZ,
            audio_out_end_silence_secs=0,
        )
        transport = FileTransport(played, params)
        await run_conversation(engines, transport, call, rtvi=False, finished=played.finished)
        played.recording.close()
        return call.turns

    turns, events = virtual_time.run(scenario())
    stereo, _ = soundfile.read(output, dtype="float32")
    whole = len(stereo) - len(stereo) % (RATE_HZ // 100)
    return SimulatedCall(stereo[:whole], tuple(turns.finished), events, model, turn)


def _accept_transcript(result: object) -> Transcript:
    assert isinstance(result, Transcript)
    return result
