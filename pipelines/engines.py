"""The engines of one process: chosen by the deployment, loaded once, shared by every call.

``plan`` finds everything that would stop a call (unknown names, wrong settings, missing keys, files,
packages) before the server says that it is ready. ``load`` reads weights in threads and starts the child
processes of recognisers that would hold the interpreter; nothing embedded is loaded per call. ``close`` ends
processes, threads and connections.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from loguru import logger
from pipecat.processors.frame_processor import FrameProcessor
from pydantic import BaseModel

from audio.resample import Resampler
from audio.wav import decode_wav
from configs.deployment import Choice, Deployment, Hearing
from configs.load import parse_settings
from core.errors import AgentError, ConfigError, MediaError, ModelFileError
from core.media import float_to_pcm16, pcm16_to_float
from core.registry import Registry
from core.tuning import tuned
from models.commands import COMMANDS
from models.echo import ECHO, EchoCanceller
from models.front_end import FrontEnd, FrontEndSettings
from models.omni import OMNI, OmniHost, Preparation
from models.omni.two_tier.engine import TwoTierHost, TwoTierSettings, TwoTierTuning
from models.stt import STT, RecogniserTraits, Transcript, recogniser_traits
from models.stt.hosted.engine import HostedStt, WorkerStt, WorkerSttSettings
from models.tts import TTS, SpeechPiece, TextToSpeech
from models.tts.fallback import FallbackTts
from models.tts.hosted.engine import HostedTts
from models.tts.phrase_cache import PhraseCache
from models.turn import TURN, TurnCompleteness
from models.vad import VAD, VoiceActivityDetector
from pipelines.answering import Answering, AnsweringPlan, plan_answering
from pipelines.choices import engine_or_service, engine_settings, service_row
from pipelines.modes import DUPLEX
from processors.duplex.services import REALTIME_SERVICES, RealtimeRow
from processors.front_end.hosted import HostedFrontEnd, LocalFrontEnd
from processors.front_end.vad import VOICE
from processors.perception.engine_stt import EngineSttService, transcript_from_fields
from processors.perception.services import STT_SERVICES
from processors.service_rows import ServiceRow
from processors.speech.engine_tts import EngineTtsService
from processors.speech.services import TTS_SERVICES
from processors.turns.looks import LookEngine, VoiceLooks
from processors.turns.stop_words import StopWords
from runtime.engine_hosting.messages import EngineSpec
from runtime.engine_pool import EnginePool
from runtime.engine_process import EngineProcess, EngineProcessSettings
from runtime.engine_thread import EngineThread
from runtime.event_stream import CallEvents
from runtime.shutdown import Shutdown
from runtime.stream_threads import StreamThreads, StreamThreadSettings
from runtime.utterances import UtteranceEngine
from sequencer.calibration import LearntLatencies
from serving.gateway.admission import Hearing as EarsReport
from serving.pool.omni import PooledOmni, PoolOmniSettings
from serving.pool.pool import Pool
from serving.pool.streams import PoolSttSettings, PoolTtsSettings, pooled_stt, pooled_tts
from turn_taking.asking_back import AskBackSettings
from turn_taking.endpointing import EndpointTuning

INPUT_RATE_HZ = 16_000
# In place of an engine's name: one of this deployment's workers.
POOL = "pool"
# Pipecat's own default; cloud voices send it without resampling.
CLOUD_VOICE_RATE_HZ = 24_000
# Rates that a browser call carries as they are; another is resampled once, behind the voice.
OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
# What an engine in a worker of this deployment is described by.
POOLED = (PoolOmniSettings, PoolSttSettings, PoolTtsSettings)
Result = TypeVar("Result")
Pooled = TypeVar("Pooled", PoolOmniSettings, PoolSttSettings, PoolTtsSettings)
# Clauses of different calls that are synthesised at the same moment: one for each core of the smallest
# machine.
SPEECH_THREADS = 2
# A final result of a hosted recogniser may wait for the piece of audio in front of it.
FINAL_MARGIN_S = 1.0
# What the recogniser hears at the start of a server: as long as a short question, of common words.
MEASURED_PHRASE = "hello, i would like to know when you are open"
MEASURE_S = 1.0
# A recogniser that has decoders has one for each call, and no fewer than this: an evaluation without a server
# holds some calls too. One is built when it is needed.
LEAST_DECODERS = 64
# A caller's piece takes milliseconds. It goes behind the loop that paces audio, and in front of recognisers.
FRONT_END_LIMITS = EngineProcessSettings(nice=1, request_timeout_s=2.0, late_timeout_s=2.0, hung_ms=500)


@dataclass(frozen=True)
class Plan:
    """What a deployment asks for, checked, nothing loaded.

    Attributes:
        hearing: of the deployment, with the recogniser that listens: its fallback where files are missing.
        vad: settings of the voice activity detector.
        echo: settings of the echo canceller, or None when no call uses one.
        turn: settings of the completeness model, or None when it is switched off.
        stt: settings of an embedded recogniser, or the row of a service.
        commands: settings of the command spotter, or None when nobody listens for stop words.
        tts: settings of an embedded voice, or the row of a service.
        fallback_voices: names and settings of the embedded voices after an embedded one, in order.
        answering: what answers.
        omni: full-duplex engines, the one that talks first: name and settings; empty when none is wanted.
        realtime: the row of a full-duplex service in their place, or None.
        preparation: how a conversation with an engine begins, with its reference voices.
    """

    hearing: Hearing
    vad: BaseModel
    echo: BaseModel | None
    turn: BaseModel | None
    stt: BaseModel | ServiceRow[Any]
    commands: BaseModel | None
    tts: BaseModel | ServiceRow[Any]
    fallback_voices: tuple[tuple[str, BaseModel], ...]
    answering: AnsweringPlan
    omni: tuple[tuple[str, BaseModel], ...] = ()
    realtime: RealtimeRow[Any] | None = None
    preparation: Preparation = Preparation()


@dataclass(frozen=True)
class Loaded:
    """Engines in memory.

    Attributes:
        vad: voice activity.
        turn: turn completeness, or None when it is switched off.
        stt: the embedded recogniser, started by whoever closes it, or the row of a service.
        tts: the embedded voice, or the row of a service.
        answering: what answers.
        phrases: what the embedded voice keeps of itself, or None.
        echo: echo canceller, or None when no call uses one.
        commands: the command spotter, started by whoever closes it, or None.
        looks: the embedded recogniser where it looks at voices, or None.
        omni: hosts of full-duplex engines, the one that talks first.
        realtime: the row of a full-duplex service in their place, or None.
        preparation: how a conversation with an engine begins, with its reference voices.
        pool: the workers of the deployment, started; None where no engine of the plan is in them.
        hosted_voices: those of the voice that are in workers, to be closed.
        front_end: what a process of their own loads for voice activity and echo control.
    """

    vad: VoiceActivityDetector
    turn: TurnCompleteness | None
    stt: UtteranceEngine[Transcript] | ServiceRow[Any]
    tts: TextToSpeech | ServiceRow[Any]
    answering: Answering
    phrases: PhraseCache | None = None
    echo: EchoCanceller | None = None
    commands: UtteranceEngine[Transcript] | None = None
    looks: LookEngine | None = None
    omni: tuple[OmniHost, ...] = ()
    realtime: RealtimeRow[Any] | None = None
    preparation: Preparation = Preparation()
    pool: Pool | None = None
    hosted_voices: tuple[HostedTts, ...] = ()
    front_end: FrontEndSettings | None = None


@dataclass(frozen=True)
class Executors:
    """The threads of a process, by what must not wait for what.

    Attributes:
        vad: voice activity, apart from slower models; None: on the loop.
        turn: turn completeness.
        speech: synthesis.
        echo: echo control, in front of voice activity and apart from it.
        omni: makes the thread of a full-duplex engine, one for each call: its units are serial, and one that
            hangs holds nobody else's.
    """

    vad: Executor | None = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="vad"))
    turn: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="turn"))
    speech: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(SPEECH_THREADS, thread_name_prefix="speech")
    )
    echo: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="echo"))
    omni: Callable[[], Executor] = lambda: EngineThread("omni")

    def shutdown(self) -> None:
        """Let running work finish by itself, start none."""
        for executor in (self.vad, self.turn, self.speech, self.echo):
            if executor is not None:
                executor.shutdown(wait=False, cancel_futures=True)


def plan(deployment: Deployment, *, duplex: bool = False) -> Plan:
    """Resolve every choice of a deployment.

    Args:
        deployment: what was asked for.
        duplex: whether full-duplex calls are wanted.

    Raises:
        ConfigError: an unknown name or field, a missing folder, key, file or package.
    """
    knowledge = deployment.bot.knowledge
    given: dict[str, Any] = {"models_dir": deployment.models_dir}
    heard = {**given, "max_decoders": max(LEAST_DECODERS, deployment.server.max_calls)}
    if knowledge.is_dir():
        heard["documents"] = knowledge
    speaking = deployment.speaking
    tts: BaseModel | ServiceRow[Any]
    if speaking.tts.name == POOL:
        tts = _plan_pool(deployment, speaking.tts, PoolTtsSettings, where="speaking.tts")
    else:
        tts = engine_or_service(TTS, TTS_SERVICES, speaking.tts, given, where="speaking.tts", others=(POOL,))
    hearing, stt = _plan_recogniser(deployment, heard)
    deployment = deployment.model_copy(update={"hearing": hearing})
    decoders = getattr(stt, "max_decoders", None)
    if decoders is not None and decoders * hearing.stt_processes < deployment.server.max_calls:
        raise ConfigError(
            f"hearing.stt: max_decoders {decoders} in {hearing.stt_processes} process(es) is less than "
            f"server.max_calls {deployment.server.max_calls}: a caller who was let in would not be heard; "
            "leave it out for as many as there are calls"
        )
    if speaking.fallback and isinstance(tts, ServiceRow):
        raise ConfigError(
            f"speaking.fallback: {speaking.tts.name!r} is a service; only an embedded voice has one after it"
        )
    return Plan(
        hearing=hearing,
        vad=engine_settings(VAD, hearing.vad, {}, where="hearing.vad"),
        echo=_plan_echo(hearing, recogniser_traits(stt)),
        turn=engine_settings(TURN, hearing.turn, {}, where="hearing.turn") if hearing.turn else None,
        stt=stt,
        commands=(
            engine_settings(COMMANDS, hearing.stop_words, {}, where="hearing.stop_words")
            if hearing.stop_words and hearing.barge_in
            else None
        ),
        tts=tts,
        fallback_voices=tuple(
            (choice.name, engine_settings(TTS, choice, given, where=f"speaking.fallback.{place}"))
            for place, choice in enumerate(speaking.fallback)
        ),
        answering=plan_answering(deployment),
        # First: it knows the names of both kinds.
        realtime=plan_realtime(deployment) if duplex else None,
        omni=plan_omni(deployment) if duplex else (),
        preparation=plan_preparation(deployment) if duplex else Preparation(),
    )


def plan_realtime(deployment: Deployment) -> RealtimeRow[Any] | None:
    """The full-duplex service that a deployment names, checked; None when it names an engine.

    Raises:
        ConfigError: an unknown name or field, a wrong value, a missing key or package; a service with a
            fallback, or as one.
    """
    duplex = deployment.duplex
    for place, choice in enumerate(duplex.fallback):
        if choice.name in REALTIME_SERVICES:
            raise ConfigError(
                f"duplex.fallback.{place}: {choice.name!r} is a realtime service; only an engine stands "
                "behind an engine in this version"
            )
    if duplex.engine.name not in REALTIME_SERVICES:
        if duplex.engine.name not in OMNI and duplex.engine.name != POOL:
            known = tuple(sorted((*OMNI.names(), POOL, *REALTIME_SERVICES.names())))
            raise ConfigError(f"duplex.engine: unknown engine {duplex.engine.name!r}", known=known)
        return None
    if duplex.fallback:
        raise ConfigError(
            f"duplex.fallback: {duplex.engine.name!r} is a realtime service; only an engine has another "
            "behind it in this version"
        )
    row = service_row(REALTIME_SERVICES, duplex.engine, where="duplex.engine")
    assert isinstance(row, RealtimeRow)
    return row


def plan_omni(deployment: Deployment) -> tuple[tuple[str, BaseModel], ...]:
    """The full-duplex engines that a deployment names: name and checked settings; none beside a service.

    Raises:
        ConfigError: an unknown name or field, a wrong value.
    """
    duplex = deployment.duplex
    if duplex.engine.name in REALTIME_SERVICES:
        return ()
    wheres = ("duplex.engine", *(f"duplex.fallback.{place}" for place in range(len(duplex.fallback))))
    return tuple(
        (choice.name, _plan_omni(deployment, choice, where=where))
        for choice, where in zip((duplex.engine, *duplex.fallback), wheres, strict=True)
    )


def _plan_omni(deployment: Deployment, choice: Choice, *, where: str) -> BaseModel:
    if choice.name != POOL:
        settings = engine_settings(OMNI, choice, {}, where=where)
        if isinstance(settings, TwoTierSettings):
            policy = {"policy": deployment.duplex_policy()}
            return tuned(TwoTierTuning, settings).model_copy(update=policy)
        return settings
    return _plan_pool(deployment, choice, PoolOmniSettings, where=where)


def _plan_pool(deployment: Deployment, choice: Choice, model: type[Pooled], *, where: str) -> Pooled:
    """Engines in workers of this deployment.

    Raises:
        ConfigError: there are no workers, or none of a name; a wrong value.
    """
    if not deployment.workers.workers:
        raise ConfigError(
            f"{where}: {POOL!r} means workers of this deployment, and workers.workers names none"
        )
    settings = parse_settings(model, choice.settings, where=f"{where} ({POOL})")
    known = tuple(spec.name for spec in deployment.workers.workers)
    for name in getattr(settings, "workers", ()):
        if name not in known:
            raise ConfigError(f"{where}: no worker is named {name!r}", known=known)
    return settings


def plan_preparation(deployment: Deployment) -> Preparation:
    """How a conversation with a full-duplex engine begins, without its history.

    Raises:
        ConfigError: a reference voice cannot be read, or is no audio.
    """
    duplex = deployment.duplex
    return Preparation(
        deployment.bot.system_prompt,
        llm_ref_audio=_reference_voice("duplex.llm_voice", duplex.llm_voice),
        tts_ref_audio=_reference_voice("duplex.tts_voice", duplex.tts_voice),
    )


def _reference_voice(where: str, path: Path | None) -> np.ndarray | None:
    if path is None:
        return None
    try:
        return pcm16_to_float(decode_wav(path.read_bytes(), rate_hz=INPUT_RATE_HZ))
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {error.strerror}") from error
    except MediaError as error:
        raise ConfigError(f"{where}: {path}: {error}") from error


def _plan_recogniser(
    deployment: Deployment, given: Mapping[str, Any]
) -> tuple[Hearing, BaseModel | ServiceRow[Any]]:
    """Resolve the recogniser; return the deployment's ears as they are with it, and its settings.

    Raises:
        ConfigError: see ``plan``; a file of it is missing or altered, and there is no fallback.
    """
    hearing = deployment.hearing
    stt: BaseModel | ServiceRow[Any]
    if hearing.stt.name == POOL:
        stt = _plan_pool(deployment, hearing.stt, PoolSttSettings, where="hearing.stt")
    else:
        try:
            stt = engine_or_service(
                STT, STT_SERVICES, hearing.stt, given, where="hearing.stt", others=(POOL,)
            )
        except ModelFileError as error:
            if hearing.fallback is None or hearing.fallback.name == hearing.stt.name:
                raise
            logger.warning(f"{hearing.fallback.name} listens in place of {hearing.stt.name}: {error}")
            stt = engine_settings(STT, hearing.fallback, given, where="hearing.fallback")
            hearing = hearing.model_copy(update={"stt": hearing.fallback})
    return _with_traits(hearing, recogniser_traits(stt)), stt


def _with_traits(hearing: Hearing, traits: RecogniserTraits) -> Hearing:
    """Return the deployment's ears with what its recogniser is like, where the deployment does not say."""
    update: dict[str, object] = {}
    endpoint = tuned(EndpointTuning, hearing.endpoint)
    if "heard_for_fillers" not in endpoint.model_fields_set:
        update["endpoint"] = endpoint.model_copy(update={"heard_for_fillers": traits.heard_for_fillers})
    if traits.doubtful_below is not None:
        doubt = {"below": traits.doubtful_below, "lost_below": traits.lost_below}
        if "ask_back" not in hearing.model_fields_set:
            update["ask_back"] = AskBackSettings(**doubt)
        elif hearing.ask_back is not None:
            given = hearing.ask_back.model_fields_set
            below = hearing.ask_back.below if "below" in given else traits.doubtful_below
            # Who asks back less than the recogniser's figures say does so for lost turns too.
            doubt["lost_below"] = min(traits.lost_below, below)
            unsaid = {name: value for name, value in doubt.items() if name not in given}
            update["ask_back"] = hearing.ask_back.model_copy(update=unsaid)
    return hearing.model_copy(update=update)


def _plan_echo(hearing: Hearing, traits: RecogniserTraits) -> BaseModel | None:
    if hearing.echo is None:
        if hearing.echo_mode == "on":
            raise ConfigError("hearing.echo_mode is on, and hearing.echo names no canceller")
        return None
    suppression = {"noise_suppression": traits.wants_noise_suppression}
    settings = engine_settings(ECHO, hearing.echo, suppression, where="hearing.echo")
    return None if hearing.echo_mode == "off" else settings


class Engines:
    """What all calls of a process share. Made by ``load``; an async context manager that closes it.

    Attributes:
        deployment: what was asked for.
        vad: voice activity.
        turn: turn completeness, or None when switched off.
        echo: echo canceller, or None when no call uses one.
        executors: threads for these and for synthesis.
        output_rate_hz: rate of the bot's audio.
        latencies: of perception's streams, as the calls so far have learnt them.
        answers: ``AnswerHeard`` of all calls.
        shutdown: how far the end of the process has come.
    """

    def __init__(self, deployment: Deployment, loaded: Loaded, executors: Executors | None = None) -> None:
        self.deployment = deployment
        self.vad = loaded.vad
        self.turn = loaded.turn
        self.echo = loaded.echo
        self.executors = executors or Executors()
        voice_rate_hz = CLOUD_VOICE_RATE_HZ if isinstance(loaded.tts, ServiceRow) else loaded.tts.rate_hz
        self.output_rate_hz = voice_rate_hz if voice_rate_hz in OPUS_RATES_HZ else CLOUD_VOICE_RATE_HZ
        self.latencies = LearntLatencies()
        self.shutdown = Shutdown()
        self.answers = CallEvents()
        self._loaded = loaded
        self._front_end: EnginePool[object] | None = None
        self._starting: asyncio.Task[None] | None = None

    @classmethod
    async def load(cls, deployment: Deployment, *, duplex: bool = False) -> "Engines":
        """Check the deployment and load its engines, side by side. When one fails, the others are closed.

        Args:
            deployment: what is asked for.
            duplex: whether full-duplex calls are wanted.

        Raises:
            ConfigError: see ``plan``.
            EngineError: an engine does not load.
        """
        planned = await asyncio.to_thread(plan, deployment, duplex=duplex)
        hearing = planned.hearing
        deployment = deployment.model_copy(update={"hearing": hearing})
        stt = planned.stt
        ears: UtteranceEngine[Transcript] | ServiceRow[Any] | None = None
        hosted_ears: asyncio.Task[UtteranceEngine[Transcript]] | None = None
        commands: EnginePool[Transcript] | None = None
        looks: EnginePool[Transcript] | None = None
        workers: Pool | None = None
        async with AsyncExitStack() as opened:

            async def load_answering() -> Answering:
                streams = None if workers is None else workers.streams
                loaded = await Answering.load(deployment, planned.answering, streams)
                opened.push_async_callback(loaded.close)
                return loaded

            if planned.answering.in_workers or any(
                isinstance(each, POOLED)
                for each in (stt, planned.tts, *(chosen for _, chosen in planned.omni))
            ):
                # A full-duplex call may begin while its workers load: who wants one waits.
                workers = await opened.enter_async_context(Pool(deployment.workers))
            try:
                async with asyncio.TaskGroup() as tasks:
                    if isinstance(stt, ServiceRow):
                        ears = stt
                    elif isinstance(stt, PoolSttSettings | WorkerSttSettings):
                        hosted_ears = tasks.create_task(_create_hosted_ears(stt, workers), name="load.stt")
                    else:
                        ears = pool = _pool(
                            STT.row(hearing.stt.name).target,
                            stt,
                            decode=transcript_from_fields,
                            name=hearing.stt.name,
                            processes=hearing.stt_processes,
                            spares=int(hearing.spare_processes),
                        )
                        opened.push_async_callback(pool.close)
                        tasks.create_task(pool.start(), name="load.stt")
                        if _looks_at_voices(hearing, stt):
                            looks = pool
                    if hearing.stop_words is not None and planned.commands is not None:
                        commands = _pool(
                            COMMANDS.row(hearing.stop_words.name).target,
                            planned.commands,
                            decode=transcript_from_fields,
                            name=hearing.stop_words.name,
                        )
                        opened.push_async_callback(commands.close)
                        tasks.create_task(commands.start(), name="load.commands")
                    vad = tasks.create_task(_create(VAD, hearing.vad.name, planned.vad), name="load.vad")
                    turn = tasks.create_task(
                        _create(TURN, hearing.turn.name if hearing.turn else "", planned.turn),
                        name="load.turn",
                    )
                    echo = tasks.create_task(_create_echo(hearing, planned.echo), name="load.echo")
                    voice = tasks.create_task(_create_voice(deployment, planned, workers), name="load.tts")
                    answering = tasks.create_task(load_answering(), name="load.answering")
                    omni = [
                        tasks.create_task(_load_omni(opened, name, settings), name=f"load.{name}")
                        for name, settings in planned.omni
                        if not isinstance(settings, TwoTierSettings | PoolOmniSettings)
                    ]
            except ExceptionGroup as errors:
                # One cause is enough for the person who has to mend it.
                raise errors.exceptions[0] from errors
            tts, phrases, hosted_voices = voice.result()
            if hosted_ears is not None:
                ears = hosted_ears.result()
            assert ears is not None
            for each in hosted_voices:
                opened.callback(each.close)
            _check_rates(vad.result(), echo.result())
            # A clause that a worker speaks takes a thread here, and no processor.
            clauses = max([SPEECH_THREADS, *(each.limits.clauses for each in hosted_voices)])
            executors = Executors(speech=ThreadPoolExecutor(clauses, thread_name_prefix="speech"))
            hosts = iter([task.result() for task in omni])

            # The ears of a two-tier engine are the process's own.
            own = partial(TwoTierHost, vad=vad.result(), turn=turn.result(), executor=executors.turn)
            loaded = Loaded(
                vad.result(),
                turn.result(),
                ears,
                tts,
                answering.result(),
                phrases,
                echo.result(),
                commands,
                looks=looks,
                front_end=_front_end(hearing, planned),
                omni=tuple(_host_of(each, workers, own, hosts) for each in planned.omni),
                realtime=planned.realtime,
                preparation=planned.preparation,
                pool=workers,
                hosted_voices=hosted_voices,
            )
            engines = cls(deployment, loaded, executors)
            if phrases is not None:
                engines.executors.speech.submit(_warm, phrases)
            # Theirs to close from here on.
            opened.pop_all()
            return engines

    def stand_by(self) -> None:
        """Load the processes that take over when one of a recogniser or front end dies.

        For a server, which is there for long. Call it after ``host_front_end``.
        """
        for engine in (self._loaded.stt, self._front_end):
            if isinstance(engine, EnginePool):
                engine.start_spares()

    async def measure_hearing(self) -> None:
        """Have the recogniser hear a phrase of the embedded voice, so that its pace on this machine is known.

        Takes ``MEASURE_S`` at most, for each of the two. What fails here fails in a call as well, and is
        reported there.
        """
        stt, voice = self._loaded.stt, self.voice
        if not isinstance(stt, EnginePool) or voice is None:
            return
        with suppress(AgentError, TimeoutError):
            async with asyncio.timeout(MEASURE_S):
                pcm = await asyncio.get_running_loop().run_in_executor(
                    self.executors.speech, _spoken, voice, MEASURED_PHRASE, stt.rate_hz
                )
            async with asyncio.timeout(MEASURE_S):
                stream = await stt.open_stream(lambda _partial: None, lambda _error: None)
                try:
                    stream.start()
                    stream.feed(pcm)
                    await stream.finish()
                finally:
                    stream.close()

    def hearing(self) -> EarsReport | None:
        """Return what the embedded recognisers report of their pace; None where there are none."""
        stt = self._loaded.stt
        if not isinstance(stt, EnginePool):
            return None
        return EarsReport(len(stt.processes), stt.real_time_factor, stt.utterances)

    def hears(self, mode: object) -> bool:
        """Return whether a call of this mode has the deployment's recogniser hear its caller.

        All have, in full duplex for the words that are kept and shown; but a realtime service sends its own.
        """
        return mode != DUPLEX or self.realtime is None

    def health(self) -> list[str]:
        """Return the stages that cannot work at this moment, one sentence for each; empty when all can.

        Echo control and voice activity are never among them: threads take over from their process. A call
        without a stop-word listener understands stop words by its recogniser.
        """
        stt = self._loaded.stt
        if isinstance(stt, EnginePool) and not stt.is_ready:
            return [f"speech recognition ({self.deployment.hearing.stt.name}) has no process that works"]
        return []

    def host_front_end(self) -> None:
        """Start the process with echo control and voice activity.

        Calls have theirs in threads of this one until it is ready, and all of them where it does not start.
        """
        settings = self._loaded.front_end
        hearing = self.deployment.hearing
        if self._front_end is not None or settings is None or not hearing.own_process:
            return
        self._front_end = _pool(
            "models.front_end:load_front_end",
            settings,
            decode=dict,
            name="front_end",
            limits=FRONT_END_LIMITS,
            spares=int(hearing.spare_processes),
        )
        self._starting = asyncio.create_task(self._start_front_end(self._front_end), name="load.front_end")

    async def _start_front_end(self, pool: EnginePool[object]) -> None:
        try:
            await pool.start()
        except AgentError as error:
            logger.warning(f"echo control and voice activity run in threads of this process: {error}")

    def open_front_end(self) -> HostedFrontEnd | None:
        """A caller's part of that process, in threads until it is ready; None where there is none."""
        pool, settings = self._front_end, self._loaded.front_end
        if pool is None or settings is None:
            return None
        # A caller with echo control asks for both at once, in front of voice activity's other callers.
        front_end = FrontEnd(self.vad, self.echo, least_db=settings.least_db)
        return HostedFrontEnd(pool, LocalFrontEnd(front_end, self.executors.echo))

    def exchange(self, **parts: Any) -> None:
        """Put others in the place of engines that were loaded: a measurement may do without some."""
        self._loaded = replace(self._loaded, **parts)

    @property
    def answering(self) -> Answering:
        """What answers."""
        return self._loaded.answering

    @property
    def voice(self) -> TextToSpeech | None:
        """The embedded voice; None where a service of Pipecat's speaks (``build_tts``)."""
        return None if isinstance(self._loaded.tts, ServiceRow) else self._loaded.tts

    @property
    def ears(self) -> UtteranceEngine[Transcript] | None:
        """The embedded recogniser; None where a service of Pipecat's listens (``build_stt``)."""
        return None if isinstance(self._loaded.stt, ServiceRow) else self._loaded.stt

    @property
    def omni(self) -> tuple[OmniHost, ...]:
        """Hosts of full-duplex engines, the one that talks first; empty where none was wanted."""
        return self._loaded.omni

    @property
    def realtime(self) -> RealtimeRow[Any] | None:
        """The row of a full-duplex service in place of engines, or None."""
        return self._loaded.realtime

    @property
    def pool(self) -> Pool | None:
        """The workers of the deployment; None where no engine is in them."""
        return self._loaded.pool

    @property
    def preparation(self) -> Preparation:
        """How a conversation with a full-duplex engine begins, without its history."""
        return self._loaded.preparation

    @property
    def sees(self) -> bool:
        """Whether the full-duplex engine looks at the caller's camera."""
        return bool(self.omni) and self.omni[0].takes_frames

    async def build_stt(self, *, audio_passthrough: bool = True) -> FrameProcessor:
        """The recogniser of one call.

        Args:
            audio_passthrough: whether somebody behind an embedded recogniser hears the audio too.
        """
        stt = self._loaded.stt
        if isinstance(stt, ServiceRow):
            return await asyncio.to_thread(stt.build, self._loaded.answering.shared)
        return EngineSttService(stt, audio_passthrough=audio_passthrough)

    async def build_stop_words(self) -> StopWords | None:
        """What listens for stop words in one call; None where nobody does."""
        commands = self._loaded.commands
        if commands is None:
            return None
        stop_words = StopWords(commands)
        await stop_words.open()
        return stop_words

    async def build_looks(self) -> VoiceLooks | None:
        """What looks at the beginnings of voices in one call; None where nothing does."""
        engine = self._loaded.looks
        if engine is None:
            return None
        looks = VoiceLooks(engine)
        await looks.open()
        return looks

    async def build_llm(self) -> list[FrameProcessor]:
        """What answers in one call, in pipeline order."""
        return await self._loaded.answering.build()

    async def build_tts(self) -> FrameProcessor:
        """The voice of one call."""
        tts = self._loaded.tts
        if isinstance(tts, ServiceRow):
            return await asyncio.to_thread(tts.build, self._loaded.answering.shared)
        return EngineTtsService(tts, executor=self.executors.speech)

    def kept_speech(self, phrase: str) -> bytes | None:
        """Audio of a phrase of the bot, 16-bit mono at ``output_rate_hz``; None when it is not kept."""
        phrases = self._loaded.phrases
        if phrases is None or phrases.rate_hz != self.output_rate_hz:
            return None
        return phrases.kept(phrase)

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
            "omni": chosen.duplex.engine.name if self.omni or self.realtime else None,
            "sees": self.sees,
        }

    async def close(self) -> None:
        """End everything that ``load`` and the calls opened."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._front_end is not None:
            await self._front_end.close()
        if self._loaded.phrases is not None:
            self._loaded.phrases.close()
        await self._loaded.answering.close()
        for host in self._loaded.omni:
            await asyncio.to_thread(host.close)
        for hosted in self._loaded.hosted_voices:
            await asyncio.to_thread(hosted.close)
        if self._loaded.pool is not None:
            await self._loaded.pool.close()
        for engine in (self._loaded.stt, self._loaded.commands):
            if isinstance(engine, EnginePool):
                await engine.close()
        self.executors.shutdown()

    async def __aenter__(self) -> "Engines":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _front_end(hearing: Hearing, planned: Plan) -> FrontEndSettings:
    echo = None
    if hearing.echo is not None and planned.echo is not None:
        echo = EngineSpec.of(hearing.echo.name, planned.echo)
    # A call may want softer voices; it is the usual ones that are measured here.
    return FrontEndSettings(
        vad=EngineSpec.of(hearing.vad.name, planned.vad),
        least_db=VOICE.ears().least_db,
        echo=echo,
    )


def _spoken(voice: TextToSpeech, text: str, rate_hz: int) -> bytes:
    """16-bit PCM of a text at another rate than the voice's."""
    pieces: list[bytes] = []

    def take(piece: SpeechPiece) -> bool:
        pieces.append(piece.pcm)
        return True

    voice.synthesize(text, take)
    samples = pcm16_to_float(b"".join(pieces))
    if voice.rate_hz != rate_hz:
        samples = Resampler(voice.rate_hz, rate_hz).feed(samples)
    return float_to_pcm16(samples)


async def _create_echo(hearing: Hearing, chosen: BaseModel | None) -> EchoCanceller | None:
    if hearing.echo is None or chosen is None:
        return None
    engine: EchoCanceller = await _create(ECHO, hearing.echo.name, chosen)
    # The first stream of a process loads the native library: not in somebody's call.
    stream = await asyncio.to_thread(engine.open_stream)
    stream.close()
    return engine


async def _load_omni(opened: AsyncExitStack, name: str, settings: BaseModel) -> OmniHost:
    """Return a full-duplex engine, which is closed with ``opened``."""
    loading = asyncio.ensure_future(_create(OMNI, name, settings))
    try:
        host: OmniHost = await asyncio.shield(loading)
    except asyncio.CancelledError:
        # Another engine failed. What a thread loads is there when it is done, and is closed then.
        if not loading.cancelled():
            with suppress(AgentError):
                opened.push_async_callback(asyncio.to_thread, (await loading).close)
        raise
    opened.push_async_callback(asyncio.to_thread, host.close)
    return host


def _host_of(
    chosen: tuple[str, BaseModel],
    workers: Pool | None,
    own: Callable[[TwoTierSettings], OmniHost],
    loaded: Iterator[OmniHost],
) -> OmniHost:
    """Return the engine that a row chooses: of a worker, with the process's own ears, or loaded here."""
    _, settings = chosen
    if isinstance(settings, PoolOmniSettings):
        assert workers is not None
        return PooledOmni(workers, settings)
    if isinstance(settings, TwoTierSettings):
        return own(settings)
    return next(loaded)


def _check_rates(vad: VoiceActivityDetector, echo: EchoCanceller | None) -> None:
    if echo is not None and echo.rate_hz != vad.rate_hz:
        raise ConfigError(
            f"hearing.echo works at {echo.rate_hz} Hz and hearing.vad behind it at {vad.rate_hz} Hz"
        )


def _looks_at_voices(hearing: Hearing, stt: BaseModel) -> bool:
    """Return whether early looks are wanted and the recogniser with these settings can take them."""
    wanted = hearing.barge_in is not None and hearing.barge_in.looks
    return wanted and recogniser_traits(stt).looks_at_voices


def _pool(
    target: str,
    settings: BaseModel,
    *,
    decode: Callable[[Mapping[str, object]], Result],
    name: str,
    limits: EngineProcessSettings | None = None,
    processes: int = 1,
    spares: int = 0,
) -> EnginePool[Result]:
    """Child processes of one engine, not started; see ``EngineProcess``."""
    children = [
        EngineProcess(target, settings, decode=decode, limits=limits, name=name)
        for _ in range(processes + spares)
    ]
    return EnginePool(children[:processes], spares=children[processes:])


async def _create_hosted_ears(
    settings: PoolSttSettings | WorkerSttSettings, workers: Pool | None
) -> UtteranceEngine[Transcript]:
    """A recogniser in workers. Its calls wait for a socket: no child process, a thread for each call."""
    engine: HostedStt
    if isinstance(settings, PoolSttSettings):
        assert workers is not None
        engine = await asyncio.to_thread(pooled_stt, workers.streams, settings)
    else:
        engine = await asyncio.to_thread(WorkerStt, settings)
    limits = StreamThreadSettings(request_timeout_s=settings.request_timeout_s + FINAL_MARGIN_S)
    return StreamThreads(engine, name="worker", limits=limits)


async def _create_first_voice(
    deployment: Deployment, planned: Plan, workers: Pool | None
) -> TextToSpeech | ServiceRow[Any]:
    if isinstance(planned.tts, PoolTtsSettings):
        assert workers is not None
        return await asyncio.to_thread(pooled_tts, workers.streams, planned.tts)
    first: TextToSpeech | ServiceRow[Any] = await _create(TTS, deployment.speaking.tts.name, planned.tts)
    return first


async def _create_voice(
    deployment: Deployment, planned: Plan, workers: Pool | None
) -> tuple[TextToSpeech | ServiceRow[Any], PhraseCache | None, tuple[HostedTts, ...]]:
    """Load the voice and those after it; one of them is enough to start with.

    Returns:
        The voice, the phrases that it keeps, and those of its voices that are in workers.

    Raises:
        AgentError: no voice loads.
    """
    speaking = deployment.speaking
    names = (speaking.tts.name, *(name for name, _ in planned.fallback_voices))
    voices: list[TextToSpeech] = []
    for place, name in enumerate(names):
        try:
            if place:
                voices.append(await _create(TTS, name, planned.fallback_voices[place - 1][1]))
                continue
            first = await _create_first_voice(deployment, planned, workers)
        except AgentError as error:
            following = names[place + 1 : place + 2]
            if not voices and not following:
                raise
            instead = f"{following[0]} speaks instead" if not voices else "it stands in for no other"
            logger.warning(f"the voice {name} does not load, {instead}: {error}")
            continue
        if isinstance(first, ServiceRow):
            return first, None, ()
        voices.append(first)
    hosted = tuple(voice for voice in voices if isinstance(voice, HostedTts))
    # In front of the first voice alone: what another one said for it in a bad moment is not kept.
    cache = PhraseCache(voices[0], _phrases(deployment, planned.omni))
    after: TextToSpeech | None = None
    for voice in reversed(voices[1:]):
        after = voice if after is None else FallbackTts(voice, after)
    return (cache if after is None else FallbackTts(cache, after)), cache, hosted


def _phrases(deployment: Deployment, omni: Sequence[tuple[str, BaseModel]]) -> list[str]:
    """What the bot says of itself, in the order in which a call is likely to need it."""
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


def _warm(phrases: PhraseCache) -> None:
    try:
        phrases.warm()
    except AgentError as error:
        # Nobody waits for it: a phrase that is not kept is spoken when it is needed.
        logger.warning(f"the voice could not say its phrases beforehand: {error}")


async def _create(registry: Registry[Any], name: str, chosen: BaseModel | ServiceRow[Any] | None) -> Any:
    """An engine, loaded in a thread; a service's row and None stay what they are."""
    if chosen is None or isinstance(chosen, ServiceRow):
        return chosen
    return await asyncio.to_thread(registry.create, name, chosen)
