"""Loads what was planned: weights in threads, recognisers that hold the interpreter in child processes."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loguru import logger
from pydantic import BaseModel

from parley.configs.deployment import Deployment, Hearing
from parley.core.errors import AgentError, ConfigError
from parley.models.echo import ECHO, EchoCanceller
from parley.models.front_end import FrontEndSettings
from parley.models.omni import OMNI, OmniHost, Preparation
from parley.models.omni.two_tier.engine import TwoTierSettings, TwoTierTuning
from parley.models.stt import Transcript, recogniser_traits
from parley.models.stt.hosted.engine import HostedStt, WorkerStt, WorkerSttSettings
from parley.models.tts import TTS, TextToSpeech
from parley.models.tts.fallback import at_rate, chain_of
from parley.models.tts.hosted.engine import HostedTts
from parley.models.tts.phrase_cache import PhraseCache
from parley.models.turn import TurnCompleteness
from parley.models.vad import VoiceActivityDetector
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.engines.plan import Plan
from parley.pipelines.engines.service_fallbacks import (
    ServiceRecogniser,
    ServiceVoices,
    WorkerRecogniser,
    create_engine,
    load_service_voices,
)
from parley.processors.duplex.services import RealtimeRow
from parley.processors.front_end.vad import VOICE
from parley.processors.perception.second_opinion import SecondOpinion
from parley.processors.service_rows import ServiceRow, Shared
from parley.processors.turns.looks import LookEngine
from parley.runtime.engine_hosting.messages import EngineSpec
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import EngineProcess, EngineProcessSettings
from parley.runtime.engine_thread import EngineThread
from parley.runtime.observers import ObserverFactory
from parley.runtime.stream_threads import StreamThreads, StreamThreadSettings
from parley.runtime.utterances import UtteranceEngine
from parley.serving.pool.omni import PooledOmni, PoolOmniSettings
from parley.serving.pool.pool import Pool
from parley.serving.pool.streams import PoolSttSettings, PoolTtsSettings, pooled_stt, pooled_tts

# Clauses of different calls that are synthesised at the same moment: one for each core of the smallest
# machine.
SPEECH_THREADS = 2
# Settings of engines in workers of this deployment.
POOLED = (PoolOmniSettings, PoolSttSettings, PoolTtsSettings)
# A final result of a hosted recogniser may wait for the piece of audio before it.
FINAL_MARGIN_S = 1.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class Loaded:
    """Engines in memory.

    Attributes:
        vad: voice activity.
        turn: turn completeness, or None when it is switched off.
        stt: the embedded recogniser, started by its owner, that of a worker, the row of a service, or one of
            them with a fallback.
        tts: the embedded voice, the row of a service, or service voices with a fallback.
        answering: language model and tools.
        phrases: cache of the embedded voice's phrases, or None.
        echo: echo canceller, or None when no call uses one.
        commands: the command spotter, started by its owner, or None.
        looks: the embedded recogniser where it takes early looks at voices, or None.
        second_opinion: hears doubtful utterances again, with an engine that its owner starts, or None.
        omni: hosts of full-duplex engines, the preferred one first.
        realtime: the row of a full-duplex service in their place, or None.
        preparation: beginning of a conversation with an engine, with its reference voices.
        pool: the workers of the deployment, started; None where no engine of the plan is in them.
        hosted_voices: voices that are in workers, to be closed.
        front_end: settings for the process with voice activity and echo control.
        observers: create the observers of a call.
        specialists: names and settings of the specialists of the voice.
        chosen_voices: voices that a caller may choose, by name, at the rate of ``tts``.
    """

    vad: VoiceActivityDetector
    turn: TurnCompleteness | None
    stt: UtteranceEngine[Transcript] | WorkerRecogniser | ServiceRow[Any] | ServiceRecogniser
    tts: TextToSpeech | ServiceRow[Any] | ServiceVoices
    answering: LlmRuntime
    phrases: PhraseCache | None = None
    echo: EchoCanceller | None = None
    commands: UtteranceEngine[Transcript] | None = None
    looks: LookEngine | None = None
    second_opinion: SecondOpinion | None = None
    omni: tuple[OmniHost, ...] = ()
    realtime: RealtimeRow[Any] | None = None
    preparation: Preparation = Preparation()
    pool: Pool | None = None
    hosted_voices: tuple[HostedTts, ...] = ()
    front_end: FrontEndSettings | None = None
    observers: tuple[ObserverFactory, ...] = ()
    specialists: tuple[tuple[str, BaseModel], ...] = ()
    chosen_voices: Mapping[str, "ChosenVoice"] = field(default_factory=dict)

    @property
    def recogniser(self) -> UtteranceEngine[Transcript] | None:
        """The embedded recogniser; None where a service transcribes, with a fallback or without."""
        if isinstance(self.stt, WorkerRecogniser):
            return self.stt.hosted
        return None if isinstance(self.stt, ServiceRow | ServiceRecogniser) else self.stt

    @property
    def embedded_voice(self) -> TextToSpeech | None:
        """The embedded voice; None where a service speaks, with a fallback or without."""
        return None if isinstance(self.tts, ServiceRow | ServiceVoices) else self.tts


@dataclass(frozen=True)
class Executors:
    """Threads of a process, separated so that slow work does not delay fast work.

    Attributes:
        vad: voice activity, apart from slower models; None to run it on the loop.
        turn: turn completeness.
        speech: synthesis.
        echo: echo control, ahead of voice activity and apart from it.
        omni: makes the thread of a full-duplex engine, one for each call: its units are serial, and a hanging
            one blocks no other call.
    """

    vad: Executor | None = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="vad"))
    turn: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="turn"))
    speech: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(SPEECH_THREADS, thread_name_prefix="speech")
    )
    echo: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="echo"))
    omni: Callable[[], Executor] = lambda: EngineThread("omni")

    def shutdown(self) -> None:
        """Let running work finish by itself, and start no more."""
        for executor in (self.vad, self.turn, self.speech, self.echo):
            if executor is not None:
                executor.shutdown(wait=False, cancel_futures=True)


async def create_echo(hearing: Hearing, chosen: BaseModel | None) -> EchoCanceller | None:
    """Return the echo canceller, its native library loaded; None when no call uses one."""
    if hearing.echo is None or chosen is None:
        return None
    engine: EchoCanceller = await create_engine(ECHO, hearing.echo.name, chosen)
    # The first stream of a process loads the native library, which must not happen in a call.
    stream = await asyncio.to_thread(engine.open_stream)
    stream.close()
    return engine


async def load_omni(opened: AsyncExitStack, name: str, settings: BaseModel) -> OmniHost:
    """Return a full-duplex engine, which is closed with ``opened``."""
    loading = asyncio.ensure_future(create_engine(OMNI, name, settings))
    try:
        host: OmniHost = await asyncio.shield(loading)
    except asyncio.CancelledError:
        # Another engine failed. A thread cannot be stopped while it loads; its engine is closed afterwards.
        if not loading.cancelled():
            with suppress(AgentError):
                opened.push_async_callback(asyncio.to_thread, (await loading).close)
        raise
    opened.push_async_callback(asyncio.to_thread, host.close)
    return host


def host_of(
    chosen: tuple[str, BaseModel],
    workers: Pool | None,
    own: Callable[[TwoTierSettings], OmniHost],
    loaded: Iterator[OmniHost],
) -> OmniHost:
    """Return the engine that a row chooses: of a worker, the two-tier one of this process, or loaded here."""
    _, settings = chosen
    if isinstance(settings, PoolOmniSettings):
        assert workers is not None
        return PooledOmni(workers, settings)
    if isinstance(settings, TwoTierSettings):
        return own(settings)
    return next(loaded)


def check_rates(vad: VoiceActivityDetector, echo: EchoCanceller | None) -> None:
    """Refuse echo control and voice activity that work at different rates.

    Raises:
        ConfigError: they do.
    """
    if echo is not None and echo.rate_hz != vad.rate_hz:
        raise ConfigError(
            f"hearing.echo works at {echo.rate_hz} Hz, but hearing.vad after it at {vad.rate_hz} Hz"
        )


def looks_at_voices(hearing: Hearing, stt: BaseModel) -> bool:
    """Return whether early looks are enabled and the recogniser with these settings supports them."""
    wanted = hearing.barge_in is not None and hearing.barge_in.looks
    return wanted and recogniser_traits(stt).looks_at_voices


def pool_of(
    target: str,
    settings: BaseModel,
    *,
    decode: Callable[[Mapping[str, object]], Result],
    name: str,
    limits: EngineProcessSettings | None = None,
    processes: int = 1,
    spares: int = 0,
) -> EnginePool[Result]:
    """Return child processes of one engine, not started; see ``EngineProcess``."""
    children = [
        EngineProcess(target, settings, decode=decode, limits=limits, name=name)
        for _ in range(processes + spares)
    ]
    return EnginePool(children[:processes], spares=children[processes:])


async def create_hosted_recogniser(
    settings: PoolSttSettings | WorkerSttSettings, workers: Pool | None
) -> UtteranceEngine[Transcript]:
    """Return a recogniser in workers. It has no child process, but a thread for each call."""
    engine: HostedStt
    if isinstance(settings, PoolSttSettings):
        assert workers is not None
        engine = await asyncio.to_thread(pooled_stt, workers.streams, settings)
    else:
        engine = await asyncio.to_thread(WorkerStt, settings)
    limits = StreamThreadSettings(request_timeout_s=settings.request_timeout_s + FINAL_MARGIN_S)
    return StreamThreads(engine, name="worker", limits=limits)


async def _create_first_voice(deployment: Deployment, planned: Plan, workers: Pool | None) -> TextToSpeech:
    if isinstance(planned.tts, PoolTtsSettings):
        assert workers is not None
        return await asyncio.to_thread(pooled_tts, workers.streams, planned.tts)
    first: TextToSpeech = await create_engine(TTS, deployment.speaking.tts.name, planned.tts)
    return first


async def create_voice(
    deployment: Deployment, planned: Plan, workers: Pool | None
) -> tuple[TextToSpeech | ServiceRow[Any] | ServiceVoices, PhraseCache | None, tuple[HostedTts, ...]]:
    """Load the voice and those after it; one of them is enough to start with.

    Returns:
        The voice, the cache of its phrases, and the voices that are in workers.

    Raises:
        AgentError: no voice loads.
    """
    speaking = deployment.speaking
    if isinstance(planned.tts, ServiceRow):
        if not planned.fallback_voices:
            return planned.tts, None, ()
        voices = await load_service_voices(planned.tts, planned.fallback_voices, deployment.bot.language)
        return voices, None, tuple(voice for voice in voices.embedded if isinstance(voice, HostedTts))
    names = (speaking.tts.name, *(name for name, _ in planned.fallback_voices))
    loaded: list[TextToSpeech] = []
    for place, name in enumerate(names):
        try:
            if place:
                loaded.append(await create_engine(TTS, name, planned.fallback_voices[place - 1][1]))
            else:
                loaded.append(await _create_first_voice(deployment, planned, workers))
        except AgentError as error:
            following = names[place + 1 : place + 2]
            if not loaded and not following:
                raise
            instead = f"{following[0]} speaks instead" if not loaded else "it stands in for no other"
            logger.warning(f"the voice {name} does not load, {instead}: {error}")
    hosted = tuple(voice for voice in loaded if isinstance(voice, HostedTts))
    # Caches the first voice alone: a phrase that a fallback spoke for it is not kept.
    cache = PhraseCache(loaded[0], _phrases(deployment, planned.omni))
    return chain_of([cache, *loaded[1:]]), cache, hosted


@dataclass(frozen=True)
class ChosenVoice:
    """Voice that a caller may choose.

    Attributes:
        engine: speaks, and has the deployment's own voice speak what it cannot.
        phrases: cache of its phrases.
    """

    engine: TextToSpeech
    phrases: PhraseCache


async def create_chosen_voices(
    deployment: Deployment, planned: Plan, own: TextToSpeech
) -> dict[str, ChosenVoice]:
    """Load the voices that a caller may choose.

    Args:
        deployment: the deployment.
        planned: its plan.
        own: voice of the deployment, whose rate all have.

    Raises:
        AgentError: one does not load.
    """
    voices = {}
    for name, engine, settings in planned.chosen_voices:
        created: TextToSpeech = await create_engine(TTS, engine, settings)
        phrases = PhraseCache(at_rate(created, own.rate_hz), _phrases(deployment, planned.omni))
        voices[name] = ChosenVoice(chain_of([phrases, own]), phrases)
    return voices


async def prepare_voice(tts: TextToSpeech | ServiceRow[Any] | ServiceVoices, shared: Shared) -> None:
    """Load what all calls with a service voice share (``ServiceRow.prepare``), at the same time for each."""
    rows = tts.rows if isinstance(tts, ServiceVoices) else (tts,) if isinstance(tts, ServiceRow) else ()
    await asyncio.gather(*(row.prepare(shared) for row in rows))


def _phrases(deployment: Deployment, omni: Sequence[tuple[str, BaseModel]]) -> list[str]:
    """Return the bot's fixed phrases, in the order in which a call is likely to need them."""
    two_tier = [settings for _, settings in omni if isinstance(settings, TwoTierTuning)]
    hums = [token for each in two_tier if each.policy.backchannel for token in each.policy.backchannel.tokens]
    bot, guard = deployment.bot, deployment.thinking.guard
    masking = guard.waiting.masking
    return [
        bot.greeting,
        *((*masking.questions, *masking.statements) if masking else ()),
        guard.waiting.filler,
        bot.reprompt,
        bot.greeting_again,
        *((*bot.idle.prompts, bot.idle.goodbye) if bot.idle else ()),
        *(deployment.speaking.backchannel.tokens if deployment.speaking.backchannel else ()),
        *hums,
        *deployment.speaking.phrases,
        guard.waiting.trouble,
        guard.apology,
        deployment.remembering.gate.refusal,
        deployment.remembering.gate.over_limit,
    ]


def warm(phrases: PhraseCache) -> None:
    """Have the voice say the phrases that it keeps."""
    try:
        phrases.warm()
    except AgentError as error:
        # No caller waits for it: a phrase that is not cached is spoken when it is needed.
        logger.warning(f"the voice could not say its phrases beforehand: {error}")


def front_end_of(hearing: Hearing, planned: Plan) -> FrontEndSettings:
    """Return what a process of its own loads for voice activity and echo control."""
    echo = None
    if hearing.echo is not None and planned.echo is not None:
        echo = EngineSpec.of(hearing.echo.name, planned.echo)
    # A call may need softer voices; the usual ones are measured here.
    return FrontEndSettings(
        vad=EngineSpec.of(hearing.vad.name, planned.vad),
        least_db=VOICE.as_speech_input().least_db,
        echo=echo,
    )
