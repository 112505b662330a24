"""Engines of one process: chosen by the deployment, loaded once, shared by every call.

``load`` checks the deployment (``plan``), reads weights in threads and starts the child processes of
recognisers that would hold the interpreter (``loading``); nothing embedded is loaded per call.
``close`` ends processes, threads and connections.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from loguru import logger
from pipecat.processors.frame_processor import FrameProcessor

from parley.configs.deployment import Choice, Deployment
from parley.core.call_choices import OWN_VOICE, PROMPT_FIELDS, ChoiceField, ChoiceOffer
from parley.core.call_events import UtteranceRead, VoiceChosen
from parley.core.errors import AgentError
from parley.core.usage import Stage
from parley.models.front_end import FrontEndEngines
from parley.models.omni import OmniHost, Preparation
from parley.models.omni.two_tier.engine import TwoTierHost
from parley.models.stt import Transcript
from parley.models.tts import TextToSpeech
from parley.models.tts.phrase_cache import PhraseCache
from parley.pipelines.call_recording import CallRecordings, check_recording
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.engines.loading import (
    Executors,
    Loaded,
    pool_of,
    warm,
)
from parley.pipelines.engines.plan import plan
from parley.pipelines.engines.planned_loading import load_planned
from parley.pipelines.engines.readings import circuits_of, processes_of
from parley.pipelines.engines.service_fallbacks import (
    CLOUD_VOICE_RATE_HZ,
    ServiceRecogniser,
    ServiceVoices,
    WorkerRecogniser,
    new_breaker,
)
from parley.pipelines.engines.specialist_processes import SpecialistProcesses
from parley.pipelines.engines.speech_trial import MEASURED_PHRASE, spoken_pcm
from parley.pipelines.live_annotations import LiveAnnotations
from parley.pipelines.live_calls import LiveCalls
from parley.pipelines.modes import DUPLEX, REALTIME
from parley.pipelines.voice_bridges import VoiceBridges
from parley.pipelines.voiceprints import recall_voices
from parley.processors.duplex.services import RealtimeRow
from parley.processors.front_end.hosted import HostedFrontEnd, LocalFrontEnd
from parley.processors.fusion.camera_specialist import CameraSpecialist
from parley.processors.fusion.voice_specialists import VoiceSpecialists
from parley.processors.perception.engine_stt import EngineSttService
from parley.processors.perception.recorded_words import AsKept, HeardLength, kept_utterances
from parley.processors.perception.second_opinion import TwiceHeard
from parley.processors.service_rows import ServiceRow
from parley.processors.speech.engine_tts import EngineTtsService
from parley.processors.turns.looks import EarlyLooks, NoLooks, VoiceLooks
from parley.processors.turns.stop_words import NoStopWords, StopWords, StopWordSpotter
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import EngineProcessSettings
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObserverFactory
from parley.runtime.shutdown import Shutdown
from parley.runtime.utterances import UtteranceEngine
from parley.sequencer.calibration import LearntLatencies
from parley.serving.gateway.admission import RecogniserLoad
from parley.serving.pool.pool import Pool
from parley.session_store.conversation import Conversation
from parley.telemetry.failure_log import CircuitReading, EngineProcessReading, FailureLog
from parley.telemetry.metrics import ServerMetrics
from parley.telemetry.private_log import log_no_words
from parley.telemetry.trace_export import TraceExport, check_traces
from parley.telemetry.usage_ledger import UsageLedger
from parley.transports.speech_encoder import OPUS_RATES_HZ

MEASURE_S = 1.0
# A caller's piece takes milliseconds. Its priority is below the loop that paces audio, and above recognisers.
FRONT_END_LIMITS = EngineProcessSettings(nice=1, request_timeout_s=2.0, late_timeout_s=2.0, hung_ms=500)


def name_of(chosen: Choice) -> str:
    """Return the name of an engine with a digest of its settings."""
    digest = hashlib.sha256(chosen.model_dump_json().encode()).hexdigest()
    return f"{chosen.name} {digest[:12]}"


class Engines:
    """Engines that all calls of a process share; an async context manager. Created by ``load``.

    Attributes:
        deployment: the deployment, with the recogniser in use.
        vad: voice activity.
        turn: turn completeness, or None when switched off.
        echo: echo canceller, or None when no call uses one.
        executors: threads for these and for synthesis.
        output_rate_hz: rate of the bot's audio.
        latencies: latencies of perception's streams, as learnt from the calls so far.
        answers: ``AnswerHeard`` of all calls.
        annotations: live calls, for outside specialists that report about them.
        live_calls: live calls, for operators who listen to them and end them.
        bridges: live calls, for humans at the desk who speak in them.
        recordings: recordings of the calls, where the deployment enables them.
        shutdown: progress of the process's shutdown.
        metrics: metrics of the process, which every call fills.
        failures: failures of the calls of the process.
        prices: prices of the deployment.
        ledger: use and cost of the calls of the process.
        traces: export of traces; None where the deployment has none.
        realtime_fallback: circuit breaker of a realtime service from which the cascade takes over; None where
            none does.
    """

    def __init__(self, deployment: Deployment, loaded: Loaded, executors: Executors | None = None) -> None:
        self.deployment = deployment
        self.vad = loaded.vad
        self.turn = loaded.turn
        self.echo = loaded.echo
        self.executors = executors or Executors()
        voice = loaded.embedded_voice
        voice_rate_hz = CLOUD_VOICE_RATE_HZ if voice is None else voice.rate_hz
        # A browser call carries Opus' rates as they are; another is resampled once, after the voice.
        self.output_rate_hz = voice_rate_hz if voice_rate_hz in OPUS_RATES_HZ else CLOUD_VOICE_RATE_HZ
        self.latencies = LearntLatencies()
        self.shutdown = Shutdown()
        self.answers = CallEvents()
        self.metrics = ServerMetrics()
        self.failures = FailureLog()
        # The log names a missing price once, whether a call or a typed turn lacks it.
        self.prices = loaded.answering.prices
        self.ledger = UsageLedger()
        traces = deployment.telemetry.traces
        self.traces = None if traces is None else TraceExport(traces)
        self.annotations = LiveAnnotations()
        self.live_calls = LiveCalls(can_listen=deployment.operations.listen_in)
        self.bridges = VoiceBridges()
        self.recordings = CallRecordings(deployment.recording, deployment.name, deployment.privacy)
        self._loaded = loaded
        self._front_end: EnginePool[object] | None = None
        self._specialists = SpecialistProcesses(loaded.specialists)
        self._starting: asyncio.Task[None] | None = None
        has_fallback = loaded.realtime is not None and deployment.duplex.fallback
        self.realtime_fallback = new_breaker() if has_fallback else None

    @classmethod
    async def load(cls, deployment: Deployment, *, duplex: bool = False) -> "Engines":
        """Check the deployment and load its engines concurrently. When one fails, the others are closed.

        Args:
            deployment: the deployment.
            duplex: full-duplex calls are required.

        Raises:
            ConfigError: see ``plan``.
            EngineError: an engine does not load.
        """
        if deployment.telemetry.traces is not None:
            check_traces(deployment.telemetry.traces)
        check_recording(deployment.recording)
        if deployment.privacy.redacts or deployment.privacy.pause is not None:
            log_no_words()
        planned = await asyncio.to_thread(plan, deployment, duplex=duplex)
        deployment = deployment.model_copy(update={"hearing": planned.hearing})
        async with AsyncExitStack() as opened:
            loaded, executors = await load_planned(deployment, planned, opened)
            engines = cls(deployment, loaded, executors)
            for kept in engines._caches():
                engines.executors.speech.submit(warm, kept)
            # The new object closes them from here on.
            opened.pop_all()
            return engines

    def stand_by(self) -> None:
        """Load the spare processes that take over when one of the recogniser or the front end dies.

        For a server, which runs for long. Call it after ``host_front_end``.
        """
        for engine in (self._loaded.stt, self._front_end):
            if isinstance(engine, EnginePool):
                engine.start_spares()

    async def measure_hearing(self) -> None:
        """Measure the recogniser's pace on this machine with a phrase of the embedded voice.

        Takes ``MEASURE_S`` at most, for each of the two. A failure here also occurs in a call, and is
        reported there.
        """
        stt, voice = self._loaded.stt, self.voice
        if not isinstance(stt, EnginePool) or voice is None:
            return
        with suppress(AgentError, TimeoutError):
            async with asyncio.timeout(MEASURE_S):
                pcm = await asyncio.get_running_loop().run_in_executor(
                    self.executors.speech, spoken_pcm, voice, MEASURED_PHRASE, stt.rate_hz
                )
            async with asyncio.timeout(MEASURE_S):
                stream = await stt.open_stream(lambda _partial: None, lambda _error: None)
                try:
                    stream.start()
                    stream.feed(pcm)
                    await stream.finish()
                finally:
                    stream.close()

    def hearing(self) -> RecogniserLoad | None:
        """Return the embedded recognisers' report of their pace; None where there are none."""
        stt = self._loaded.stt
        if not isinstance(stt, EnginePool):
            return None
        return RecogniserLoad(len(stt.processes), stt.real_time_factor, stt.utterances)

    def uses_recogniser(self, mode: object) -> bool:
        """Return whether the deployment's recogniser transcribes the caller in a call of this mode.

        It does in every mode, in full duplex for the words that are stored and shown. A realtime service
        transcribes its caller itself.
        """
        return mode != DUPLEX or self.realtime is None

    def answers_by_itself(self, mode: str) -> bool:
        """Return whether an engine answers by itself what it hears in a call of this mode."""
        if mode != DUPLEX:
            return False
        return self.realtime is not None or not all(isinstance(host, TwoTierHost) for host in self.omni)

    def voice_engine(self, voice: str) -> str:
        """Return the name of the engine of a voice; ``voice``: as for ``build_tts``."""
        speaking = self.deployment.speaking
        return speaking.voices.get(voice, speaking.tts).name

    def names(self, mode: str, *, voice: str = "") -> dict[Stage, str]:
        """Return the name of the engine of each stage in a call of this mode (``modes``).

        ``voice``: as for ``build_tts``.
        """
        chosen = self.deployment
        stt, llm, tts = chosen.hearing.stt.name, chosen.thinking.llm.name, self.voice_engine(voice)
        if mode == REALTIME:
            # The deployment's voice says its own phrases.
            stt = llm = chosen.duplex.engine.name
        elif self.answers_by_itself(mode):
            llm = tts = chosen.duplex.engine.name
        return {Stage.STT: stt, Stage.LLM: llm, Stage.TTS: tts}

    def health(self) -> list[str]:
        """Return the stages that cannot work at this moment, one sentence for each; empty when all can.

        Echo control and voice activity are never among them: threads take over from their process. A call
        without a stop-word listener detects stop words by its recogniser.
        """
        stt = self._loaded.stt
        if isinstance(stt, EnginePool) and not stt.is_ready:
            return [f"speech recognition ({self.deployment.hearing.stt.name}) has no process that works"]
        return []

    def circuits(self) -> list[CircuitReading]:
        """Return the state of the circuit breakers of the engines that have a fallback."""
        now_ms = self.answers.now_ms()
        return circuits_of(self._loaded, self.deployment, self.realtime_fallback, now_ms=now_ms)

    def processes(self) -> list[EngineProcessReading]:
        """Return the state of the child processes with engines."""
        loaded = self._loaded
        second = None if loaded.second_opinion is None else loaded.second_opinion.engine
        engines = [loaded.stt, second, loaded.commands, self._front_end, *self._specialists.pools]
        return processes_of(engines)

    def host_front_end(self) -> None:
        """Start the process with echo control and voice activity.

        Calls run both in threads of this process until it is ready, and all calls do when it does not start.
        """
        settings = self._loaded.front_end
        hearing = self.deployment.hearing
        if self._front_end is not None or settings is None or not hearing.own_process:
            return
        self._front_end = pool_of(
            "parley.models.front_end:load_front_end",
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
            logger.warning(
                f"echo control and voice activity detection run in threads of this process: {error}"
            )

    def host_specialists(self) -> None:
        """Start the processes of the specialists; calls have findings once they are ready."""
        self._specialists.start()

    def specialists_of(self, conversation: Conversation, events: CallEvents) -> VoiceSpecialists:
        """Return the specialists of the voice in one call; it has none before ``host_specialists``."""
        return VoiceSpecialists(
            self._specialists.voice,
            clock=conversation.clock,
            events=events,
            rate_hz=self.vad.rate_hz,
            recall=partial(recall_voices, conversation) if self._specialists.keeps_voiceprints else None,
        )

    def camera_specialist_of(self, conversation: Conversation, events: CallEvents) -> CameraSpecialist | None:
        """Return the specialist of the camera in one call; None without one."""
        process = self._specialists.camera
        if process is None:
            return None
        return CameraSpecialist(process, clock=conversation.clock, events=events)

    def open_front_end(self) -> HostedFrontEnd | None:
        """Return a caller's part of that process, which uses threads until it is ready; None without one."""
        pool, settings = self._front_end, self._loaded.front_end
        if pool is None or settings is None:
            return None
        # A caller with echo control requests both at once, ahead of voice activity's other callers.
        front_end = FrontEndEngines(self.vad, self.echo, least_db=settings.least_db)
        return HostedFrontEnd(pool, LocalFrontEnd(front_end, self.executors.echo))

    def exchange(self, **parts: Any) -> None:
        """Replace loaded engines; a measurement may run without some."""
        self._loaded = replace(self._loaded, **parts)

    @property
    def answering(self) -> LlmRuntime:
        """Language model and tools of the process."""
        return self._loaded.answering

    @property
    def voice(self) -> TextToSpeech | None:
        """The embedded voice; None where a service of Pipecat speaks (``build_tts``)."""
        return self._loaded.embedded_voice

    def voice_named(self, name: str) -> TextToSpeech | None:
        """Return a voice that a caller may choose, or the deployment's own (``voice``) for another name."""
        chosen = self._loaded.chosen_voices.get(name)
        return self.voice if chosen is None else chosen.engine

    @property
    def recogniser(self) -> UtteranceEngine[Transcript] | None:
        """The embedded recogniser; None where a service of Pipecat transcribes (``build_stt``)."""
        return self._loaded.recogniser

    @property
    def omni(self) -> tuple[OmniHost, ...]:
        """Hosts of full-duplex engines, the preferred one first; empty where none is required."""
        return self._loaded.omni

    @property
    def realtime(self) -> RealtimeRow[Any] | None:
        """Row of a full-duplex service in place of engines, or None."""
        return self._loaded.realtime

    @property
    def pool(self) -> Pool | None:
        """Workers of the deployment; None where no engine is in them."""
        return self._loaded.pool

    @property
    def observers(self) -> tuple[ObserverFactory, ...]:
        """Factories of the observers of a call, as the deployment names them."""
        return self._loaded.observers

    @property
    def preparation(self) -> Preparation:
        """Beginning of a conversation with a full-duplex engine, without its history."""
        return self._loaded.preparation

    @property
    def sees(self) -> bool:
        """True when the full-duplex engine takes pictures of the caller's camera."""
        return bool(self.omni) and self.omni[0].takes_frames

    @property
    def cascade_sees(self) -> bool:
        """True when the language model takes pictures of the caller's camera in a call by turns."""
        return self.answering.sees and self.deployment.thinking.vision.camera

    @property
    def watches(self) -> bool:
        """True when a specialist judges the caller's camera (``hearing.specialists``)."""
        return self._specialists.camera is not None

    async def build_stt(
        self,
        *,
        audio_passthrough: bool = True,
        events: CallEvents | None = None,
        recorded: Sequence[UtteranceRead] = (),
        as_kept: AsKept | None = None,
    ) -> FrameProcessor:
        """Return the recogniser of one call.

        Args:
            audio_passthrough: an embedded recogniser passes the audio on to processors after it.
            events: events of the call, which report when another recogniser takes over; None: nothing reads
                them.
            recorded: utterances of the call that is held again; those that an embedded recogniser of the same
                settings has read keep their words.
            as_kept: returns the record of an utterance as it may be kept; None: as it is.
        """
        stt = self._loaded.stt
        if isinstance(stt, ServiceRecogniser):
            shared = self._loaded.answering.shared
            return stt.build(shared, events or CallEvents(), audio_passthrough=audio_passthrough)
        if isinstance(stt, ServiceRow):
            return await asyncio.to_thread(stt.build, self._loaded.answering.shared)
        if isinstance(stt, WorkerRecogniser):
            stt = stt.of_call(events or CallEvents())
        hearing, opinion, heard = self.deployment.hearing, self._loaded.second_opinion, None
        name = name_of(hearing.stt)
        if opinion is not None and hearing.second_opinion is not None:
            stt = TwiceHeard(stt, opinion)
            name = f"{name}, {name_of(hearing.second_opinion)}"
        if events is not None and self.recordings.are_made:
            heard = HeardLength()
            stt = kept_utterances(stt, events, name, heard, recorded=recorded, as_kept=as_kept)
        return EngineSttService(stt, audio_passthrough=audio_passthrough, heard=heard, events=events)

    async def build_stop_words(
        self, events: CallEvents | None = None, recorded: Sequence[UtteranceRead] = ()
    ) -> StopWordSpotter:
        """Return the spotter of stop words in one call; ``NoStopWords`` where they are not spotted.

        ``events`` and ``recorded`` are as for ``build_stt``.
        """
        commands, chosen, heard = self._loaded.commands, self.deployment.hearing.stop_words, HeardLength()
        if commands is None:
            return NoStopWords()
        kept: UtteranceEngine[Transcript] = commands
        if events is not None and chosen is not None and self.recordings.are_made:
            kept = kept_utterances(commands, events, name_of(chosen), heard, recorded=recorded)
        stop_words = StopWords(kept, heard)
        await stop_words.open()
        return stop_words

    async def build_looks(self) -> EarlyLooks:
        """Return the looks at the beginnings of voices in one call; ``NoLooks`` where there are none."""
        engine = self._loaded.looks
        if engine is None:
            return NoLooks()
        looks = VoiceLooks(engine)
        await looks.open()
        return looks

    async def build_tts(self, events: CallEvents | None = None, voice: str = "") -> FrameProcessor:
        """Return the voice of one call.

        Args:
            events: events of the call, which report when another voice goes on; None: nothing reads them.
            voice: name of the voice that its caller has chosen; empty for the deployment's own.
        """
        tts = self._loaded.tts
        if isinstance(tts, ServiceVoices):
            shared = self._loaded.answering.shared
            return tts.build(shared, self.executors.speech, events or CallEvents())
        if isinstance(tts, ServiceRow):
            return await asyncio.to_thread(tts.build, self._loaded.answering.shared)
        service = EngineTtsService(self.voice_named(voice) or tts, executor=self.executors.speech)
        if events is not None:
            # Also back to the deployment's own.
            events.subscribe(VoiceChosen, lambda event: service.choose(self.voice_named(event.voice) or tts))
        return service

    def kept_speech(self, phrase: str, *, voice: str = "") -> bytes | None:
        """Return the audio of a phrase of the bot, 16-bit mono at ``output_rate_hz``; None unless cached.

        ``voice``: as for ``build_tts``.
        """
        chosen = self._loaded.chosen_voices.get(voice)
        phrases = self._loaded.phrases if chosen is None else chosen.phrases
        if phrases is None or phrases.rate_hz != self.output_rate_hz:
            return None
        return phrases.kept(phrase)

    def _caches(self) -> list[PhraseCache]:
        own = self._loaded.phrases
        chosen = [voice.phrases for voice in self._loaded.chosen_voices.values()]
        return chosen if own is None else [own, *chosen]

    def choices_of(self, mode: str) -> ChoiceOffer:
        """Return what a caller may choose in a call of a mode."""
        named = tuple(self._loaded.chosen_voices)
        voices = (OWN_VOICE, *named) if named else ()
        spoken = frozenset({ChoiceField.VOICE}) if voices else frozenset()
        written = PROMPT_FIELDS if self.answering.takes_instructions else frozenset()
        chosen = self.deployment
        by_turns = ChoiceOffer(
            f"{chosen.thinking.llm.name} with {chosen.speaking.tts.name}",
            spoken | written,
            voices,
            chosen.speaking.voice_aliases,
        )
        if mode != DUPLEX:
            return by_turns
        if self.realtime is not None:
            return ChoiceOffer(self.realtime.name, PROMPT_FIELDS)
        if self.omni and all(isinstance(host, TwoTierHost) for host in self.omni):
            return by_turns
        # A fallback takes over in the middle of a call: a choice has to hold for all of them.
        taken: list[frozenset[ChoiceField]] = [getattr(host, "choices", frozenset()) for host in self.omni]
        return ChoiceOffer(
            chosen.duplex.engine.name, frozenset.intersection(*taken) if taken else frozenset()
        )

    def describe(self) -> dict[str, object]:
        """Return the names of the engines in use."""
        chosen = self.deployment
        return {
            "deployment": chosen.name,
            "stt": chosen.hearing.stt.name,
            "turn": chosen.hearing.turn.name if chosen.hearing.turn else None,
            "llm": chosen.thinking.llm.name,
            "fallback": chosen.thinking.fallback.name if chosen.thinking.fallback else None,
            "tts": chosen.speaking.tts.name,
            "omni": chosen.duplex.engine.name if self.omni or self.realtime else None,
            "sees": self.sees or self.watches,
            "cascade_sees": self.cascade_sees or self.watches,
            "reads_pictures": self.answering.sees,
        }

    async def close(self) -> None:
        """End everything that ``load`` and the calls opened."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._front_end is not None:
            await self._front_end.close()
        await self._specialists.close()
        for kept in self._caches():
            kept.close()
        await self._loaded.answering.close()
        for host in self._loaded.omni:
            await asyncio.to_thread(host.close)
        for hosted in self._loaded.hosted_voices:
            await asyncio.to_thread(hosted.close)
        if self._loaded.pool is not None:
            await self._loaded.pool.close()
        stt, opinion = self._loaded.stt, self._loaded.second_opinion
        if isinstance(stt, ServiceRecogniser | WorkerRecogniser):
            stt = stt.embedded
        for engine in (stt, self._loaded.commands, None if opinion is None else opinion.engine):
            if isinstance(engine, EnginePool):
                await engine.close()
        await self.recordings.close()
        self.executors.shutdown()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)

    async def __aenter__(self) -> "Engines":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
