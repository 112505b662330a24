"""Loading of everything that was planned at the same time; when one engine fails, the others are closed.

``load_planned`` has three parts: the workers of the deployment are opened, the engines are loaded in tasks,
and what the engines need of each other is completed.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from parley.configs.deployment import Deployment
from parley.core.errors import ConfigError
from parley.core.failover import CircuitBreaker
from parley.models.echo import EchoCanceller
from parley.models.keyword_spotting import COMMANDS
from parley.models.omni import OmniHost
from parley.models.omni.two_tier.engine import TwoTierHost, TwoTierSettings
from parley.models.stt import STT, Transcript, recogniser_traits
from parley.models.stt.hosted.engine import WorkerSttSettings
from parley.models.tts import TextToSpeech
from parley.models.tts.hosted.engine import HostedTts
from parley.models.tts.phrase_cache import PhraseCache
from parley.models.turn import TURN, TurnCompleteness
from parley.models.vad import VAD, VoiceActivityDetector
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.engines.loading import (
    POOLED,
    SPEECH_THREADS,
    Executors,
    Loaded,
    check_rates,
    create_chosen_voices,
    create_echo,
    create_hosted_recogniser,
    create_voice,
    front_end_of,
    host_of,
    load_omni,
    looks_at_voices,
    pool_of,
    prepare_voice,
)
from parley.pipelines.engines.plan import Plan
from parley.pipelines.engines.service_fallbacks import (
    ServiceRecogniser,
    ServiceVoices,
    WorkerRecogniser,
    create_engine,
    new_breaker,
)
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.processors.perception.second_opinion import SecondOpinion
from parley.processors.service_rows import ServiceRow
from parley.runtime.engine_pool import EnginePool
from parley.runtime.observers import OBSERVERS
from parley.runtime.utterances import UtteranceEngine
from parley.serving.pool.omni import PoolOmniSettings
from parley.serving.pool.pool import Pool
from parley.serving.pool.streams import PoolSttSettings

Recogniser = UtteranceEngine[Transcript] | WorkerRecogniser | ServiceRow[Any] | ServiceRecogniser
Voice = TextToSpeech | ServiceRow[Any] | ServiceVoices


@dataclass(frozen=True)
class _Opening:
    """Plan of a process, and what is open so far.

    Attributes:
        deployment: the deployment, with the recogniser in use.
        planned: its plan.
        opened: closes what was opened when loading fails.
        workers: workers of the deployment; None where no engine is in them.
        tasks: tasks in which engines load.
    """

    deployment: Deployment
    planned: Plan
    opened: AsyncExitStack
    workers: Pool | None
    tasks: asyncio.TaskGroup


@dataclass(frozen=True)
class _Ears:
    """Recognisers that load.

    Attributes:
        recogniser: returns the recogniser, once the tasks are done.
        looks: the embedded recogniser where it takes early looks at voices.
    """

    recogniser: Callable[[], Recogniser]
    looks: EnginePool[Transcript] | None = None


@dataclass(frozen=True)
class _Loading:
    """Engines that load, or have loaded once the tasks are done. See ``Loaded``."""

    ears: _Ears
    commands: EnginePool[Transcript] | None
    second_opinion: EnginePool[Transcript] | None
    vad: asyncio.Task[VoiceActivityDetector]
    turn: asyncio.Task[TurnCompleteness | None]
    echo: asyncio.Task[EchoCanceller | None]
    voice: asyncio.Task[tuple[Voice, PhraseCache | None, tuple[HostedTts, ...]]]
    answering: asyncio.Task[LlmRuntime]
    omni: list[asyncio.Task[OmniHost]]


async def load_planned(
    deployment: Deployment, planned: Plan, opened: AsyncExitStack
) -> tuple[Loaded, Executors]:
    """Load the engines of a plan; ``opened`` closes them when loading fails.

    Raises:
        AgentError: the first of what failed.
    """
    workers = await _open_workers(deployment, planned, opened)
    try:
        async with asyncio.TaskGroup() as tasks:
            loading = _start(_Opening(deployment, planned, opened, workers, tasks))
    except ExceptionGroup as errors:
        # One cause is enough for the user who has to correct it.
        raise errors.exceptions[0] from errors
    return await _complete(deployment, planned, opened, workers, loading)


async def _open_workers(deployment: Deployment, planned: Plan, opened: AsyncExitStack) -> Pool | None:
    """Open the workers of the deployment where an engine is in them."""
    engines = (planned.stt, planned.tts, *(settings for _, settings in planned.omni))
    if not planned.answering.in_workers and not any(isinstance(each, POOLED) for each in engines):
        return None
    # A full-duplex call may begin while its workers load: a call that needs one waits.
    return await opened.enter_async_context(
        Pool(
            deployment.workers,
            traces=deployment.telemetry.traces,
            store=deployment.remembering.store,
        )
    )


def _start(opening: _Opening) -> _Loading:
    """Start to load every engine."""
    planned, tasks, hearing = opening.planned, opening.tasks, opening.planned.hearing
    return _Loading(
        ears=_start_ears(opening),
        commands=_start_commands(opening),
        second_opinion=_start_second_opinion(opening),
        vad=tasks.create_task(create_engine(VAD, hearing.vad.name, planned.vad), name="load.vad"),
        turn=tasks.create_task(
            create_engine(TURN, hearing.turn.name if hearing.turn else "", planned.turn), name="load.turn"
        ),
        echo=tasks.create_task(create_echo(hearing, planned.echo), name="load.echo"),
        voice=tasks.create_task(create_voice(opening.deployment, planned, opening.workers), name="load.tts"),
        answering=tasks.create_task(_load_answering(opening), name="load.answering"),
        omni=[
            tasks.create_task(load_omni(opening.opened, name, settings), name=f"load.{name}")
            for name, settings in planned.omni
            if not isinstance(settings, TwoTierSettings | PoolOmniSettings)
        ],
    )


def _start_ears(opening: _Opening) -> _Ears:
    """Start the recogniser: of a service or of workers, with a fallback or without, or embedded."""
    stt, hearing = opening.planned.stt, opening.planned.hearing
    if isinstance(stt, ServiceRow):
        if opening.planned.stt_fallback is None:
            return _Ears(lambda: stt)
        name, settings = opening.planned.stt_fallback
        embedded = _start_pool(opening, STT.row(name).target, settings, name, processes=hearing.stt_processes)
        fallback = ServiceRecogniser(stt, new_breaker(), embedded, name)
        return _Ears(lambda: fallback)
    if isinstance(stt, PoolSttSettings | WorkerSttSettings):
        hosted = opening.tasks.create_task(create_hosted_recogniser(stt, opening.workers), name="load.stt")
        if opening.planned.stt_fallback is None:
            return _Ears(hosted.result)
        name, settings = opening.planned.stt_fallback
        following = _start_pool(
            opening, STT.row(name).target, settings, name, processes=hearing.stt_processes
        )
        breaker = new_breaker()
        return _Ears(
            lambda: _recogniser_in_workers(hosted.result(), hearing.stt.name, breaker, following, name)
        )
    pool = _start_pool(
        *(opening, STT.row(hearing.stt.name).target, stt, hearing.stt.name),
        processes=hearing.stt_processes,
        spares=int(hearing.spare_processes),
    )
    return _Ears(lambda: pool, pool if looks_at_voices(hearing, stt) else None)


def _recogniser_in_workers(
    hosted: UtteranceEngine[Transcript],
    name: str,
    breaker: CircuitBreaker,
    embedded: EnginePool[Transcript],
    fallback: str,
) -> WorkerRecogniser:
    """Return a recogniser in workers with the embedded one after it.

    Raises:
        ConfigError: they take audio of different rates.
    """
    if hosted.rate_hz != embedded.rate_hz:
        raise ConfigError(
            f"hearing.fallback: {fallback!r} takes audio at {embedded.rate_hz} Hz, the recogniser in the "
            f"workers at {hosted.rate_hz} Hz"
        )
    return WorkerRecogniser(hosted, name, breaker, embedded, fallback)


def _start_commands(opening: _Opening) -> EnginePool[Transcript] | None:
    """Start the spotter of stop words; None where the deployment has none."""
    chosen, settings = opening.planned.hearing.stop_words, opening.planned.commands
    if chosen is None or settings is None:
        return None
    target = COMMANDS.row(chosen.name).target
    return _start_pool(opening, target, settings, chosen.name, task="load.commands")


def _start_second_opinion(opening: _Opening) -> EnginePool[Transcript] | None:
    """Start the recogniser that hears doubtful utterances again; None where the deployment has none."""
    chosen, settings = opening.planned.hearing.second_opinion, opening.planned.second_opinion
    if chosen is None or settings is None:
        return None
    return _start_pool(
        opening, STT.row(chosen.name).target, settings, chosen.name, task="load.second_opinion"
    )


def _start_pool(
    opening: _Opening,
    target: str,
    settings: Any,
    name: str,
    *,
    processes: int = 1,
    spares: int = 0,
    task: str = "load.stt",
) -> EnginePool[Transcript]:
    """Return child processes of a recogniser, which start in a task; see ``pool_of``."""
    pool = pool_of(
        target, settings, decode=transcript_from_fields, name=name, processes=processes, spares=spares
    )
    opening.opened.push_async_callback(pool.close)
    opening.tasks.create_task(pool.start(), name=task)
    return pool


async def _load_answering(opening: _Opening) -> LlmRuntime:
    streams = None if opening.workers is None else opening.workers.streams
    loaded = await LlmRuntime.load(opening.deployment, opening.planned.answering, streams)
    opening.opened.push_async_callback(loaded.close)
    return loaded


async def _complete(
    deployment: Deployment, planned: Plan, opened: AsyncExitStack, workers: Pool | None, loading: _Loading
) -> tuple[Loaded, Executors]:
    """Complete what the engines need of each other, once all have loaded."""
    vad, turn, echo = loading.vad.result(), loading.turn.result(), loading.echo.result()
    answering = loading.answering.result()
    tts, phrases, hosted_voices = loading.voice.result()
    for each in hosted_voices:
        opened.callback(each.close)
    check_rates(vad, echo)
    await prepare_voice(tts, answering.shared)
    own = None if isinstance(tts, ServiceRow | ServiceVoices) else tts
    chosen = {} if own is None else await create_chosen_voices(deployment, planned, own)
    executors = Executors(speech=_speech_threads(hosted_voices))
    # A two-tier engine uses the process's own voice activity and turn completeness.
    two_tier = partial(TwoTierHost, vad=vad, turn=turn, executor=executors.turn)
    hosts = iter([task.result() for task in loading.omni])
    loaded = Loaded(
        *(vad, turn, loading.ears.recogniser(), tts, answering, phrases, echo, loading.commands),
        looks=loading.ears.looks,
        second_opinion=_second_opinion_of(planned, loading.second_opinion),
        front_end=front_end_of(planned.hearing, planned),
        omni=tuple(host_of(each, workers, two_tier, hosts) for each in planned.omni),
        realtime=planned.realtime,
        preparation=planned.preparation,
        pool=workers,
        hosted_voices=hosted_voices,
        observers=tuple(
            partial(OBSERVERS.factory(name), settings=settings) for name, settings in planned.observers
        ),
        specialists=planned.specialists,
        chosen_voices=chosen,
    )
    return loaded, executors


def _second_opinion_of(planned: Plan, engine: EnginePool[Transcript] | None) -> SecondOpinion | None:
    """Return the second opinion on doubtful utterances; None where the deployment has none."""
    doubt = planned.hearing.ask_back
    if engine is None or doubt is None:
        return None
    return SecondOpinion(engine, doubt, sure_from=recogniser_traits(planned.second_opinion).sure_from)


def _speech_threads(hosted_voices: tuple[HostedTts, ...]) -> ThreadPoolExecutor:
    """Return the threads for synthesis."""
    # A clause that a worker speaks takes a thread here, and no processor time.
    clauses = max([SPEECH_THREADS, *(each.limits.clauses for each in hosted_voices)])
    return ThreadPoolExecutor(clauses, thread_name_prefix="speech")
