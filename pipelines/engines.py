"""The engines of one process: chosen by the deployment, loaded once, shared by every call.

``plan`` finds everything that would stop a call (unknown names, wrong settings, missing keys, files,
packages) before the server says that it is ready. ``load`` reads weights in threads and starts the child
processes of recognisers that would hold the interpreter; nothing embedded is loaded per call. ``close`` ends
processes, threads and connections.
"""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from loguru import logger
from pipecat.processors.frame_processor import FrameProcessor
from pydantic import BaseModel

from configs.deployment import Deployment, Speaking
from core.errors import AgentError, ConfigError
from core.registry import Registry
from models.stt import STT, Transcript
from models.tts import TTS, TextToSpeech
from models.tts.fallback import FallbackTts
from models.turn import TURN, TurnCompleteness
from models.vad import VAD, VoiceActivityDetector
from pipelines.answering import Answering, AnsweringPlan, plan_answering
from pipelines.choices import engine_or_service, engine_settings
from processors.perception.engine_stt import EngineSttService, transcript_from_fields
from processors.perception.services import STT_SERVICES
from processors.service_rows import ServiceRow
from processors.speech.engine_tts import EngineTtsService
from processors.speech.services import TTS_SERVICES
from runtime.engine_pool import EnginePool
from runtime.engine_process import EngineProcess
from runtime.utterances import UtteranceEngine

# Pipecat's own default; cloud voices send it without resampling.
CLOUD_VOICE_RATE_HZ = 24_000
# Rates that a browser call carries as they are; another is resampled once, behind the voice.
OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
# Clauses of different calls that are synthesised at the same moment: one for each core of the smallest
# machine.
SPEECH_THREADS = 2


@dataclass(frozen=True)
class Plan:
    """What a deployment asks for, checked, nothing loaded.

    Attributes:
        vad: settings of the voice activity detector.
        turn: settings of the completeness model, or None when it is switched off.
        stt: settings of an embedded recogniser, or the row of a service.
        tts: settings of an embedded voice, or the row of a service.
        second_voice: settings of the embedded voice behind an embedded one, or None.
        answering: what answers.
    """

    vad: BaseModel
    turn: BaseModel | None
    stt: BaseModel | ServiceRow[Any]
    tts: BaseModel | ServiceRow[Any]
    second_voice: BaseModel | None
    answering: AnsweringPlan


@dataclass(frozen=True)
class Loaded:
    """Engines in memory.

    Attributes:
        vad: voice activity.
        turn: turn completeness, or None when it is switched off.
        stt: the embedded recogniser, started by whoever closes it, or the row of a service.
        tts: the embedded voice, or the row of a service.
        answering: what answers.
    """

    vad: VoiceActivityDetector
    turn: TurnCompleteness | None
    stt: UtteranceEngine[Transcript] | ServiceRow[Any]
    tts: TextToSpeech | ServiceRow[Any]
    answering: Answering


@dataclass(frozen=True)
class Executors:
    """The threads of a process, by what must not wait for what.

    Attributes:
        vad: voice activity, apart from slower models.
        turn: turn completeness.
        speech: synthesis.
    """

    vad: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="vad"))
    turn: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="turn"))
    speech: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(SPEECH_THREADS, thread_name_prefix="speech")
    )

    def shutdown(self) -> None:
        """Let running work finish by itself, start none."""
        for executor in (self.vad, self.turn, self.speech):
            executor.shutdown(wait=False, cancel_futures=True)


def plan(deployment: Deployment) -> Plan:
    """Resolve every choice of a deployment.

    Raises:
        ConfigError: an unknown name or field, a missing folder, key, file or package.
    """
    hearing = deployment.hearing
    knowledge = deployment.bot.knowledge
    given: dict[str, Any] = {"models_dir": deployment.models_dir}
    heard = {**given, "documents": knowledge} if knowledge.is_dir() else given
    speaking = deployment.speaking
    tts = engine_or_service(TTS, TTS_SERVICES, speaking.tts, given, where="speaking.tts")
    if speaking.fallback and isinstance(tts, ServiceRow):
        raise ConfigError(
            f"speaking.fallback: {speaking.tts.name!r} is a service; only an embedded voice has one behind it"
        )
    return Plan(
        vad=engine_settings(VAD, hearing.vad, {}, where="hearing.vad"),
        turn=engine_settings(TURN, hearing.turn, {}, where="hearing.turn") if hearing.turn else None,
        stt=engine_or_service(STT, STT_SERVICES, hearing.stt, heard, where="hearing.stt"),
        tts=tts,
        second_voice=(
            engine_settings(TTS, speaking.fallback, given, where="speaking.fallback")
            if speaking.fallback
            else None
        ),
        answering=plan_answering(deployment),
    )


class Engines:
    """What all calls of a process share. Made by ``load``; an async context manager that closes it.

    Attributes:
        deployment: what was asked for.
        vad: voice activity.
        turn: turn completeness, or None when switched off.
        executors: threads for both and for synthesis.
        output_rate_hz: rate of the bot's audio.
    """

    def __init__(self, deployment: Deployment, loaded: Loaded, executors: Executors | None = None) -> None:
        self.deployment = deployment
        self.vad = loaded.vad
        self.turn = loaded.turn
        self.executors = executors or Executors()
        voice_rate_hz = CLOUD_VOICE_RATE_HZ if isinstance(loaded.tts, ServiceRow) else loaded.tts.rate_hz
        self.output_rate_hz = voice_rate_hz if voice_rate_hz in OPUS_RATES_HZ else CLOUD_VOICE_RATE_HZ
        self._loaded = loaded

    @classmethod
    async def load(cls, deployment: Deployment) -> "Engines":
        """Check the deployment and load its engines, side by side. When one fails, the others are closed.

        Raises:
            ConfigError: see ``plan``.
            EngineError: an engine does not load.
        """
        planned = await asyncio.to_thread(plan, deployment)
        hearing = deployment.hearing
        stt = planned.stt
        ears: UtteranceEngine[Transcript] | ServiceRow[Any]
        async with AsyncExitStack() as opened:

            async def load_answering() -> Answering:
                loaded = await Answering.load(deployment, planned.answering)
                opened.push_async_callback(loaded.close)
                return loaded

            try:
                async with asyncio.TaskGroup() as tasks:
                    if isinstance(stt, ServiceRow):
                        ears = stt
                    else:
                        ears = pool = _recogniser_pool(hearing.stt.name, stt, hearing.stt_processes)
                        opened.push_async_callback(pool.close)
                        tasks.create_task(pool.start(), name="load.stt")
                    vad = tasks.create_task(_create(VAD, hearing.vad.name, planned.vad), name="load.vad")
                    turn = tasks.create_task(
                        _create(TURN, hearing.turn.name if hearing.turn else "", planned.turn),
                        name="load.turn",
                    )
                    tts = tasks.create_task(_create_voice(deployment.speaking, planned), name="load.tts")
                    answering = tasks.create_task(load_answering(), name="load.answering")
            except ExceptionGroup as errors:
                # One cause is enough for the person who has to mend it.
                raise errors.exceptions[0] from errors
            loaded = Loaded(vad.result(), turn.result(), ears, tts.result(), answering.result())
            engines = cls(deployment, loaded)
            # Theirs to close from here on.
            opened.pop_all()
            return engines

    @property
    def answering(self) -> Answering:
        """What answers."""
        return self._loaded.answering

    async def build_stt(self, *, audio_passthrough: bool = True) -> FrameProcessor:
        """The recogniser of one call.

        Args:
            audio_passthrough: whether somebody behind an embedded recogniser hears the audio too.
        """
        stt = self._loaded.stt
        if isinstance(stt, ServiceRow):
            return await asyncio.to_thread(stt.build, self._loaded.answering.shared)
        return EngineSttService(stt, self.deployment.hearing.recognition, audio_passthrough=audio_passthrough)

    async def build_llm(self) -> list[FrameProcessor]:
        """What answers in one call, in pipeline order."""
        return await self._loaded.answering.build()

    async def build_tts(self) -> FrameProcessor:
        """The voice of one call."""
        tts = self._loaded.tts
        if isinstance(tts, ServiceRow):
            return await asyncio.to_thread(tts.build, self._loaded.answering.shared)
        return EngineTtsService(
            tts, executor=self.executors.speech, options=self.deployment.speaking.delivery
        )

    def describe(self) -> dict[str, object]:
        """Names of what is in use."""
        chosen = self.deployment
        return {
            "deployment": chosen.name,
            "stt": chosen.hearing.stt.name,
            "turn": chosen.hearing.turn.name if chosen.hearing.turn else None,
            "llm": chosen.thinking.llm.name,
            "fallback": chosen.thinking.fallback.name if chosen.thinking.fallback else None,
            "tts": chosen.speaking.tts.name,
        }

    async def close(self) -> None:
        """End everything that ``load`` and the calls opened."""
        await self._loaded.answering.close()
        if isinstance(self._loaded.stt, EnginePool):
            await self._loaded.stt.close()
        self.executors.shutdown()

    async def __aenter__(self) -> "Engines":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _recogniser_pool(name: str, settings: BaseModel, processes: int) -> EnginePool[Transcript]:
    target = STT.row(name).target
    children = [
        EngineProcess(target, settings, decode=transcript_from_fields, name=name) for _ in range(processes)
    ]
    return EnginePool(children)


async def _create_voice(speaking: Speaking, planned: Plan) -> Any:
    """The voice, with the second one behind it; one of the two is enough to start with."""
    second_name = speaking.fallback.name if speaking.fallback else ""
    try:
        first = await _create(TTS, speaking.tts.name, planned.tts)
    except AgentError as error:
        if planned.second_voice is None:
            raise
        logger.warning(f"the voice {speaking.tts.name} does not load, {second_name} speaks instead: {error}")
        return await _create(TTS, second_name, planned.second_voice)
    if planned.second_voice is None:
        return first
    try:
        second = await _create(TTS, second_name, planned.second_voice)
    except AgentError as error:
        logger.warning(f"no voice stands behind {speaking.tts.name}: {second_name} does not load: {error}")
        return first
    return FallbackTts(first, second)


async def _create(registry: Registry[Any], name: str, chosen: BaseModel | ServiceRow[Any] | None) -> Any:
    """An engine, loaded in a thread; a service's row and None stay what they are."""
    if chosen is None or isinstance(chosen, ServiceRow):
        return chosen
    return await asyncio.to_thread(registry.create, name, chosen)
