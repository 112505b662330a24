"""The engines of one process: chosen by the deployment, loaded once, shared by every call.

``plan`` finds everything that would stop a call (unknown names, wrong settings, missing keys, files, packages) before
the server says that it is ready. ``load`` reads weights in threads and starts the child processes of recognisers that
would hold the interpreter; nothing embedded is loaded per call. ``close`` ends processes, threads and connections.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from runtime.engine_process import EnginePool, EngineProcess

# Pipecat's own default; cloud voices send it without resampling.
CLOUD_VOICE_RATE_HZ = 24_000
# Clauses of different calls that are synthesised at the same moment: one for each core of the smallest machine.
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
    """Engines in memory; the ears and the voice are None when a service is used instead."""

    vad: VoiceActivityDetector
    turn: TurnCompleteness | None
    ears: EnginePool[Transcript] | None
    voice: TextToSpeech | None
    answering: Answering


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
        vad_executor: threads for voice activity, apart from slower models so that it never waits for them.
        turn_executor: threads for turn completeness.
        output_rate_hz: rate of the bot's audio.
    """

    def __init__(self, deployment: Deployment, planned: Plan, loaded: Loaded) -> None:
        self.deployment = deployment
        self.vad = loaded.vad
        self.turn = loaded.turn
        self.vad_executor = ThreadPoolExecutor(1, thread_name_prefix="vad")
        self.turn_executor = ThreadPoolExecutor(1, thread_name_prefix="turn")
        self.output_rate_hz = loaded.voice.rate_hz if loaded.voice else CLOUD_VOICE_RATE_HZ
        self._speech_executor = ThreadPoolExecutor(SPEECH_THREADS, thread_name_prefix="speech")
        self._planned = planned
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
        ears = _ears(planned, hearing.stt.name, hearing.stt_processes)
        voice = planned.tts if isinstance(planned.tts, BaseModel) else None
        try:
            async with asyncio.TaskGroup() as tasks:
                if ears is not None:
                    tasks.create_task(ears.start(), name="load.ears")
                vad = tasks.create_task(_create(VAD, hearing.vad.name, planned.vad), name="load.vad")
                turn = tasks.create_task(
                    _create(TURN, hearing.turn.name if hearing.turn else "", planned.turn), name="load.turn"
                )
                speech = tasks.create_task(
                    _create(TTS, deployment.speaking.tts.name, voice), name="load.voice"
                )
                answering = tasks.create_task(
                    Answering.load(deployment, planned.answering), name="load.answering"
                )
        except* Exception as errors:
            if ears is not None:
                await ears.close()
            # One cause is enough for the person who has to mend it.
            raise errors.exceptions[0] from errors
        loaded = Loaded(vad.result(), turn.result(), ears, speech.result(), answering.result())
        return cls(deployment, planned, loaded)

    async def build_stt(self) -> FrameProcessor:
        """The recogniser of one call."""
        if self._loaded.ears is not None:
            return EngineSttService(self._loaded.ears)
        row = cast(ServiceRow[Any], self._planned.stt)
        return await asyncio.to_thread(row.build, self._loaded.answering.shared)

    async def build_llm(self) -> list[FrameProcessor]:
        """What answers in one call, in pipeline order."""
        return await self._loaded.answering.build()

    async def build_tts(self) -> FrameProcessor:
        """The voice of one call."""
        if self._loaded.voice is not None:
            return EngineTtsService(self._loaded.voice, executor=self._speech_executor)
        row = cast(ServiceRow[Any], self._planned.tts)
        return await asyncio.to_thread(row.build, self._loaded.answering.shared)

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
        if self._loaded.ears is not None:
            await self._loaded.ears.close()
        for executor in (self.vad_executor, self.turn_executor, self._speech_executor):
            executor.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> "Engines":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _ears(planned: Plan, name: str, processes: int) -> EnginePool[Transcript] | None:
    if not isinstance(planned.stt, BaseModel):
        return None
    target = STT.row(name).target
    children = [
        EngineProcess(target, planned.stt, decode=transcript_from_fields, name=name) for _ in range(processes)
    ]
    return EnginePool(children)


async def _create(registry: Registry[Any], name: str, settings: BaseModel | None) -> Any:
    """An engine, loaded in a thread; None without settings."""
    return None if settings is None else await asyncio.to_thread(registry.create, name, settings)
