"""The engines of one process: chosen by the deployment, loaded once, shared by every call.

``plan`` finds everything that would stop a call (unknown names, wrong settings, missing keys, files,
packages) before the server says that it is ready. ``load`` reads weights in threads and starts the child
processes of recognisers that would hold the interpreter; nothing embedded is loaded per call. ``close`` ends
processes, threads and connections.
"""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

from pipecat.processors.frame_processor import FrameProcessor
from pydantic import BaseModel

from configs.deployment import Deployment
from core.registry import Registry
from models.stt import STT, Transcript
from models.tts import TTS, TextToSpeech
from models.turn import TURN, TurnCompleteness
from models.vad import VAD, VoiceActivityDetector
from pipelines.answering import Answering, AnsweringPlan, plan_answering
from pipelines.choices import engine_or_service, engine_settings
from processors.perception.engine_stt import EngineSttService, transcript_from_fields
from processors.perception.services import STT_SERVICES
from processors.service_rows import ServiceRow
from processors.speech.engine_tts import EngineTtsService
from processors.speech.services import TTS_SERVICES
from runtime.engine_process import EnginePool, EngineProcess, UtteranceEngine

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
        answering: what answers.
    """

    vad: BaseModel
    turn: BaseModel | None
    stt: BaseModel | ServiceRow[Any]
    tts: BaseModel | ServiceRow[Any]
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
    heard = {"documents": knowledge} if knowledge.is_dir() else {}
    models_dir = deployment.models_dir
    return Plan(
        vad=engine_settings(VAD, hearing.vad, {}, where="hearing.vad"),
        turn=engine_settings(TURN, hearing.turn, {}, where="hearing.turn") if hearing.turn else None,
        stt=engine_or_service(
            STT, STT_SERVICES, hearing.stt, heard, where="hearing.stt", models_dir=models_dir
        ),
        tts=engine_or_service(
            TTS, TTS_SERVICES, deployment.speaking.tts, {}, where="speaking.tts", models_dir=models_dir
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
        """Check the deployment and load its engines, side by side.

        Raises:
            ConfigError: see ``plan``.
            EngineError: an engine does not load.
        """
        planned = await asyncio.to_thread(plan, deployment)
        hearing = deployment.hearing
        stt = planned.stt
        pool = None
        if not isinstance(stt, ServiceRow):
            pool = _recogniser_pool(hearing.stt.name, stt, hearing.stt_processes)
        try:
            async with asyncio.TaskGroup() as tasks:
                if pool is not None:
                    tasks.create_task(pool.start(), name="load.stt")
                vad = tasks.create_task(_create(VAD, hearing.vad.name, planned.vad), name="load.vad")
                turn = tasks.create_task(
                    _create(TURN, hearing.turn.name if hearing.turn else "", planned.turn), name="load.turn"
                )
                tts = tasks.create_task(
                    _create(TTS, deployment.speaking.tts.name, planned.tts), name="load.tts"
                )
                answering = tasks.create_task(
                    Answering.load(deployment, planned.answering), name="load.answering"
                )
        except* Exception as errors:
            if pool is not None:
                await pool.close()
            # One cause is enough for the person who has to mend it.
            raise errors.exceptions[0] from errors
        ears: UtteranceEngine[Transcript] | ServiceRow[Any] = (
            pool if pool is not None else cast(ServiceRow[Any], stt)
        )
        return cls(deployment, Loaded(vad.result(), turn.result(), ears, tts.result(), answering.result()))

    async def build_stt(self) -> FrameProcessor:
        """The recogniser of one call."""
        stt = self._loaded.stt
        if isinstance(stt, ServiceRow):
            return await asyncio.to_thread(stt.build, self._loaded.answering.shared)
        return EngineSttService(stt, audio_passthrough=False)

    async def build_llm(self) -> list[FrameProcessor]:
        """What answers in one call, in pipeline order."""
        return await self._loaded.answering.build()

    async def build_tts(self) -> FrameProcessor:
        """The voice of one call."""
        tts = self._loaded.tts
        if isinstance(tts, ServiceRow):
            return await asyncio.to_thread(tts.build, self._loaded.answering.shared)
        return EngineTtsService(tts, executor=self.executors.speech)

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


async def _create(registry: Registry[Any], name: str, chosen: BaseModel | ServiceRow[Any] | None) -> Any:
    """An engine, loaded in a thread; a service's row and None stay what they are."""
    if chosen is None or isinstance(chosen, ServiceRow):
        return chosen
    return await asyncio.to_thread(registry.create, name, chosen)
