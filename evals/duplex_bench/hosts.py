"""Systems by name: the two-tier engine as in a deployment, engines of the registry, baselines.

``two_tier`` recognises, answers and speaks as the deployment ``embedded`` does. Its policies have that
deployment's settings, and it answers from the shipped documents in flite's voice. Its words come from
PocketSphinx in a process of its own, whose vocabulary contains the words of the same documents.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from parley.configs.deployment import Choice
from parley.configs.load import load_deployment
from parley.core.errors import ConfigError
from parley.evals.duplex_bench.baselines import HUM, SPEECH, baselines, spoken
from parley.evals.duplex_bench.runner import Side
from parley.evals.turns.audio import KNOWLEDGE
from parley.models.llm.documents import DocumentLlm
from parley.models.omni import OMNI, OmniHost
from parley.models.omni.two_tier.content import ContentMaker
from parley.models.omni.two_tier.engine import TwoTierHost, TwoTierTuning
from parley.models.stt import STT
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.models.tts.flite import FliteTts
from parley.models.turn import TURN
from parley.models.vad import VAD, VoiceActivityDetector
from parley.pipelines.engines.choices import engine_settings
from parley.pipelines.engines.plan import plan_omni
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.runtime.engine_process import EngineProcess, EngineProcessSettings

TWO_TIER = "two_tier"
BASELINES = ("always_talk", "always_silent", "timer_300", "timer", "timer_1000", "random_backchannel")
DEPLOYMENT, RECOGNISER = "embedded", "pocketsphinx"
# The clips share one machine here, unlike the calls of a deployment: late words are counted, not lost.
LONGEST_S = 15.0
# Voice synthesis and turn completeness of all clips that run in parallel.
THREADS = 4


@dataclass(frozen=True, slots=True)
class System:
    """A system under test.

    Attributes:
        name: of its row.
        host: of its engines.
        is_stepped: true when it has no clock and no thread, so that its units need not be waited for.
    """

    name: str
    host: OmniHost
    is_stepped: bool = False


def known() -> tuple[str, ...]:
    """Return the names of all systems."""
    return (*OMNI.names(), *BASELINES)


def open_host(
    name: str, settings: Mapping[str, Any] | None = None, *, vad: VoiceActivityDetector, seed: int = 1
) -> System:
    """Load a system by its name. Blocks.

    Args:
        name: of ``known``.
        settings: of its host.
        vad: shared weights.
        seed: of the random listener.

    Raises:
        ConfigError: an unknown name, or wrong settings.
        EngineError: it does not load.
    """
    if name == TWO_TIER:
        return System(name, _two_tier(settings or {}, vad))
    if name in OMNI:
        chosen = engine_settings(
            OMNI, Choice(name=name, settings=dict(settings or {})), {}, where="--settings"
        )
        return System(name, OMNI.create(name, chosen))
    if name not in BASELINES:
        raise ConfigError(f"unknown engine {name!r}", known=known())
    if settings:
        raise ConfigError(f"{name} has no settings")
    voice = FliteTts()
    made = baselines(spoken(voice, SPEECH), spoken(voice, HUM), vad, seed=seed)
    return System(name, made[name], is_stepped=True)


def _two_tier(settings: Mapping[str, Any], vad: VoiceActivityDetector) -> TwoTierHost:
    try:
        chosen = TwoTierTuning.model_validate(_deployed().model_dump() | dict(settings))
    except ValidationError as error:
        raise ConfigError(f"{TWO_TIER}: {error.error_count()} settings are wrong: {error}") from error
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix=TWO_TIER)
    maker = ContentMaker(DocumentLlm(), FliteTts(), executor=threads)
    return TwoTierHost(
        vad=vad, turn=TURN.create("smart_turn"), maker=maker, executor=threads, settings=chosen
    )


def _deployed() -> TwoTierTuning:
    """Return the small tier's policies as the deployment has them."""
    [(_, settings)] = plan_omni(load_deployment(DEPLOYMENT))
    if not isinstance(settings, TwoTierTuning):
        raise ConfigError(f"the deployment {DEPLOYMENT!r} has another engine than {TWO_TIER}")
    return settings


def detector() -> VoiceActivityDetector:
    """Load the shipped detector."""
    return VAD.create("silero")


@asynccontextmanager
async def recogniser(vad: VoiceActivityDetector) -> AsyncIterator[Side]:
    """Run the shipped recogniser in a process of its own until the end of the context.

    Raises:
        ConfigError: it is not installed.
        EngineError: it does not load.
    """
    process = EngineProcess(
        STT.row(RECOGNISER).target,
        PocketsphinxSettings(documents=KNOWLEDGE),
        decode=transcript_from_fields,
        limits=EngineProcessSettings(request_timeout_s=LONGEST_S),
        name=RECOGNISER,
    )
    await process.start()
    try:
        yield Side(process, vad)
    finally:
        await asyncio.shield(process.close())
