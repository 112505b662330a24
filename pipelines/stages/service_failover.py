"""Choice of the stages of a call with a realtime service: those with the service, or a cascade after it.

Decides when the service is given up, and what the caller is owed then. Noticed are errors that the service
reports, a socket that closes or does not open in time, a garbled message, an answer that does not come and a
reply that stops (``ServiceWatch``). Then:

* Nothing of the service leaves its place any more. Its stages lose the call's events (``EventScope``), so a
  turn is written in one of the two ways only.
* A reply that the service had not finished is interrupted; the session has its heard part. One that it had
  sent to its end is played to its end.
* Speech that the service has not transcribed is passed to the recogniser (``UnansweredSpeech``). Otherwise
  the model is asked for an answer that was missing or cut, with the session's view, heard part included. A
  greeting that was cut is finished by the deployment's voice.

The cascade is built when it is needed: before, its stages would follow the events of turns that are not
theirs. It loads no model. Where it cannot be built, the call ends.

A circuit breaker for all calls of the process decides whether a call begins with the service; after its
cool-down one call at a time is the probe. ``RealtimeFailover.run`` is a task of the call and owns all tasks
of the stages. It ends with the call at any moment; stages in a place are then closed with the pipeline.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
)
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.transports.base_transport import BaseTransport

from parley.core.call_events import (
    CallEnding,
    CallerJoined,
    EngineFailed,
    EngineFailedOver,
    ReplyFinished,
    TurnEndRequested,
)
from parley.core.errors import AgentError, EngineError
from parley.core.failover import FailoverReason
from parley.core.timeline import HeardReply
from parley.core.usage import Stage
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.greeting import greeting_of
from parley.pipelines.listeners import Listener, fan_out
from parley.pipelines.modes import CASCADE
from parley.pipelines.phone.answering_machine import Screening
from parley.pipelines.sockets.client_tools import offered_tools
from parley.pipelines.stages.cascade import CascadeStages, CascadeSurroundings, cascade_stages
from parley.pipelines.stages.hold import NoHold
from parley.pipelines.stages.over_bot import OverBot
from parley.pipelines.stages.privacy import CallPrivacy
from parley.pipelines.stages.service import ask_last
from parley.pipelines.stages.service_ends import FAILED
from parley.pipelines.stages.service_part import ServicePart
from parley.pipelines.stages.shared import (
    closed_on_failure,
)
from parley.pipelines.stages.sight import Sight
from parley.pipelines.stages.turns import guards_protected
from parley.pipelines.voice.echo import CallFrontEnd
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.duplex.service_probe import RealtimeProbe
from parley.processors.duplex.services import RealtimeRow
from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.processors.fusion.voice_specialists import VoiceSpecialists
from parley.processors.perception.failover_stt import PROBE_S
from parley.processors.playout.assistant import HeardAssistantAggregator
from parley.processors.playout.playout import PlayoutEntry, PlayoutExit
from parley.processors.stage_slot import StageSlot
from parley.processors.turns.turn_events import publish_bot_turns
from parley.runtime.event_stream import EventScope
from parley.telemetry.engine_names import REALTIME_SECTION

# An interruption passes the pipeline in milliseconds.
CUT_S = 0.3
# The model is shown what is committed. A commit gate waits for a store that is slower.
FLUSH_S = 1.0


class AudioListeners:
    """Receivers of the caller's audio, which change with the stages of the call.

    Args:
        listeners: the first ones.
    """

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._hear = fan_out(listeners)

    def hear(self, pcm: bytes) -> None:
        """Pass audio to the present receivers."""
        self._hear(pcm)

    def replace(self, listeners: Sequence[Listener]) -> None:
        """Pass audio to others from here on."""
        self._hear = fan_out(listeners)


@dataclass(frozen=True)
class OuterStages:
    """Stages that stay in a call when others replace the service.

    Attributes:
        front: echo control.
        vad: detects voices.
        listeners: receivers of the caller's audio.
        over_bot: receivers of the caller's audio without the bot's echo, which look at voices over the bot.
        entry, exit: playout.
        specialists: specialists of the voice.
        sight: stages for pictures.
    """

    front: CallFrontEnd
    vad: SharedVadAnalyzer
    listeners: AudioListeners
    over_bot: AudioListeners
    entry: PlayoutEntry
    exit: PlayoutExit
    specialists: VoiceSpecialists
    sight: Sight


class RealtimeFailover:
    """Choice of the stages that hold a call: those with the service, or the cascade. ``run`` is its task.

    Args:
        engines: engines of the process.
        row: row of the service.
        probe: reports the service's outcome.
        transport: transport of the call.
        call: the call.
        outer: stages that stay.
        part: stages with the service.

    Attributes:
        slot: place between voice activity and the output.
        tail: place of the bot's turns.
    """

    def __init__(
        self,
        engines: Engines,
        row: RealtimeRow[Any],
        probe: RealtimeProbe,
        transport: BaseTransport,
        call: Call,
        outer: OuterStages,
        part: ServicePart,
    ) -> None:
        self._engines, self._row, self._probe = engines, row, probe
        self._transport, self._call, self._outer, self._part = transport, call, outer, part
        self._has_service = True
        self._reason: FailoverReason | None = None
        self._failed = asyncio.Event()
        self._joined, self._announced = asyncio.Event(), asyncio.Event()
        self.slot = StageSlot("realtime", keep=self._keep)
        self.tail = StageSlot("realtime.tail")
        call.events.subscribe(CallerJoined, lambda _event: self._joined.set())

    def take_typed(self, text: str) -> float:
        """Count a text of the client; see ``CheckedRtvi``."""
        part = self._part
        return part.take_typed(text) if self._has_service else self._call.conversation.take_typed(text)

    async def run(self, worker: PipelineWorker) -> None:
        """Hold the call of a worker with the service, and with the cascade when the service has failed."""
        try:
            if self._probe.begin():
                await self._hold_with_service()
            else:
                self._reason = FailoverReason.BROKEN
            await self._hold_with_cascade(worker)
        finally:
            self._probe.abandon()

    async def close(self) -> None:
        """Wait for the caller's last turn with the service on its way to the session."""
        await self._part.caller.close()

    def _keep(self, frame: Frame) -> bool:
        return self._has_service and self._part.speech.take(frame)

    # The service.

    async def _hold_with_service(self) -> None:
        """Return when the service has failed."""
        part = self._part
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(work(), name="realtime.service")
                for work in (self._open_service, self._watch_service, self._limit_probe, *part.background)
            ]
            try:
                await self._failed.wait()
            finally:
                for each in running:
                    each.cancel()

    async def _open_service(self) -> None:
        part, start = self._part, self._part.beginning
        await self.tail.open([part.tail])
        try:
            await self.slot.open(
                part.stages, first=part.speech.frames, unseen=[part.service], on_error=self._on_error
            )
        except EngineError as error:
            self._fail(FailoverReason.ERROR, str(error))
            return
        await self._joined.wait()
        if part.announcements.are_due:
            await part.announcements.say()
            # The service has not heard what the caller said meanwhile.
            part.watch.close()
            ask_last(part.context, start)
            self._announced.set()
        if start.greets:
            part.watch.on_asked()
        if start.is_sent:
            await self.slot.send(LLMRunFrame())

    async def _watch_service(self) -> None:
        if self._part.announcements.are_due:
            await self._announced.wait()
        reason = await self._part.watch.run()
        self._fail(reason, "it does not answer")

    async def _limit_probe(self) -> None:
        """Let another call probe the service when the caller of this one is silent."""
        await asyncio.sleep(PROBE_S)
        self._probe.abandon()

    def _on_error(self, frame: ErrorFrame) -> None:
        events = self._call.events
        events.publish(EngineFailed(events.now_ms(), Stage.LLM))
        self._fail(FailoverReason.ERROR, frame.error)

    def _fail(self, reason: FailoverReason, why: str) -> None:
        if self._reason is None:
            logger.warning(f"the realtime service {self._row.name} has failed ({reason}): {why}")
            self._reason = reason
            self._probe.on_failed(reason)
            self._failed.set()

    # From the service to the cascade.

    async def _hold_with_cascade(self, worker: PipelineWorker) -> None:
        """Give the call to the cascade, until cancelled."""
        call, engines = self._call, self._engines
        assert self._reason is not None
        shut = [self.slot.shut()]
        event = EngineFailedOver(
            call.events.now_ms(), REALTIME_SECTION, self._row.name, CASCADE, self._reason
        )
        call.events.publish(event)
        owed = await self._end_service()
        shut.append(self.tail.shut())
        privacy = CallPrivacy(engines, call)
        async with (
            offered_tools(engines.answering, call, more=privacy.tools) as tools,
            asyncio.TaskGroup() as tasks,
        ):
            for each in shut:
                tasks.create_task(each.close(), name="realtime.shut")
            try:
                cascade = await self._open_cascade(worker, privacy, tools)
            except AgentError as error:
                logger.error(f"the call ends, because its cascade cannot be built: {error}")
                call.events.publish(CallEnding(call.events.now_ms(), *FAILED))
                await call.live.input.queue(EndFrame())
                return
            for work in cascade.background:
                tasks.create_task(work(), name="realtime.cascade")
            tasks.create_task(tools.recover(), name="realtime.tools")
            await self._answer(owed)

    async def _end_service(self) -> list[Frame]:
        """Take the call from the service; return the frames that give the caller what is owed."""
        call, part = self._call, self._part
        was_cut = part.watch.is_reply_open
        part.model.replies.abandon()
        part.watch.close()
        cut = await self._cut_reply() if was_cut else None
        part.scope.close()
        await part.caller.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await call.conversation.flushed()
        if not part.speech.is_empty:
            return []
        greeting = greeting_of(call, self._engines.deployment.bot)
        return part.owed.frames(cut, was_cut=was_cut, greeting=greeting)

    async def _cut_reply(self) -> HeardReply | None:
        """Interrupt the reply that the service had not finished; return its heard part."""
        finished = EventScope(self._call.live.events)
        replies = finished.open_queue(ReplyFinished, size=2)
        try:
            await self.slot.push_frame(InterruptionFrame())
            with suppress(TimeoutError):
                async with asyncio.timeout(CUT_S):
                    event = await replies.get()
                    assert isinstance(event, ReplyFinished)
                    return event.heard
        finally:
            finished.close()
        return None

    async def _open_cascade(
        self, worker: PipelineWorker, privacy: CallPrivacy, tools: DurableTools
    ) -> CascadeStages:
        """Build the stages of the cascade and put them in their places, with the caller's speech."""
        call, engines, outer = self._call, self._engines, self._outer
        context = LLMContext()
        with closed_on_failure() as opened:
            opened.append(stop_words := await engines.build_stop_words())
            opened.append(looks := await engines.build_looks())
            over_bot = OverBot(stop_words, looks)
            around = CascadeSurroundings(
                front=outer.front,
                over_bot=over_bot,
                detector=self._listen,
                listeners=[outer.specialists.hear],
                thought=call.live.playout.taps(guards_protected=guards_protected(engines))[0],
                play=outer.entry.push_frame,
                sight=outer.sight,
                screening=Screening(),
                hold=NoHold(),
            )
            cascade = await cascade_stages(
                *(engines, self._transport, call, context, around), privacy=privacy, tools=tools
            )
        outer.over_bot.replace(over_bot.listeners)
        cascade.connect(worker)
        tail = HeardAssistantAggregator(context, cascade.user)
        publish_bot_turns(call.events, tail, call.live.input.flush)
        await self.tail.open([tail])
        await self.slot.open(
            cascade.stages, first=lambda: self._speech(cascade.overhear), unseen=cascade.unseen
        )
        return cascade

    def _listen(self, listeners: Sequence[Listener]) -> SharedVadAnalyzer:
        """Pass the caller's audio to the stages of the cascade; return the detector of voices."""
        self._outer.listeners.replace(listeners)
        return self._outer.vad

    def _speech(self, overhear: Listener) -> list[Frame]:
        """Return the caller's speech that the service has not transcribed."""
        frames = self._part.speech.frames()
        for frame in frames:
            if isinstance(frame, InputAudioRawFrame):
                overhear(frame.audio)
        self._has_service = False
        return frames

    async def _answer(self, owed: Sequence[Frame]) -> None:
        """Give the caller what is owed."""
        call, speech = self._call, self._part.speech
        for frame in [*self._part.announcements.frames(), *owed]:
            await call.live.input.queue(frame)
        if not owed and not speech.is_empty and not speech.in_voice:
            # The wait for the service was longer than the silence that ends a turn.
            call.events.publish(TurnEndRequested(call.events.now_ms(), waits_for_words=True))
