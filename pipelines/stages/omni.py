"""Full-duplex engine of one call, and the stages that depend on it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from pipecat.frames.frames import Frame, InterruptionFrame, LLMContextFrame, TTSSpeakFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.transports.base_transport import BaseTransport

from parley.models.omni.two_tier.engine import TwoTierHost
from parley.models.omni.two_tier.speech_input import SpeechInput
from parley.pipelines.announcements import Saying
from parley.pipelines.builder import Background
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.greeting import announcements_of
from parley.pipelines.listeners import Listener
from parley.pipelines.queue_announcer import QUEUE_AGAIN_S, QueueAnnouncer
from parley.pipelines.stages.call_voice import CallVoice
from parley.pipelines.stages.omni_ends import EngineEnds
from parley.pipelines.stages.omni_host import host_of_call, preparation_of
from parley.pipelines.stages.shared import gain_of
from parley.pipelines.voice.echo import CallFrontEnd
from parley.processors.duplex.contents import Contents
from parley.processors.duplex.dialogue import CallDialogue
from parley.processors.duplex.omni import DuplexOmniProcessor
from parley.processors.duplex.outlet import Outlet
from parley.processors.duplex.succession import EngineSource
from parley.processors.duplex.turn_monitor import EngineTurns, NoTurnMonitor, TurnMonitor
from parley.processors.duplex.turns import IS_WRITTEN, DuplexTurnTracker
from parley.processors.front_end.vad import VOICE
from parley.processors.playout.playout import guard_protected
from parley.processors.taps.notice import NoticeTap
from parley.processors.taps.response_events import ResponseEvents
from parley.processors.turns.stop_words import StopWordSpotter
from parley.serving.pool.omni import PooledConversation
from parley.turn_taking.duplex_policy import DuplexPolicy, Volume, Yield


def is_two_tier(engines: Engines) -> bool:
    """Return whether every engine decides by its own small tier, and has the rest of the pipeline speak."""
    return all(isinstance(host, TwoTierHost) for host in engines.omni)


class OmniStages:
    """Stages of one full-duplex call.

    Args:
        engines: engines of the process.
        transport: transport of the call, Pipecat's or ours.
        call: the call.
        context: context of the language model.
        front: front end of the call.

    Attributes:
        omni: the engine in the pipeline.
        user: the caller's turns.
        thought: tap directly after the model.
    """

    def __init__(
        self,
        engines: Engines,
        transport: BaseTransport,
        call: Call,
        context: LLMContext,
        *,
        front: CallFrontEnd,
        words_of_turn: Callable[[str], str],
    ) -> None:
        duplex, client, events = engines.deployment.duplex, call.client, call.events
        has_echo = bool(front.echo)
        apology = engines.deployment.thinking.guard.apology
        self._call, self._responses = call, ResponseEvents(events)
        self.thought = NoticeTap(self._on_thought)
        self.user = DuplexTurnTracker(
            context,
            events,
            speak=self.thought.push_frame,
            are_own=front.are_own,
            words_of_turn=words_of_turn,
        )
        kept = CallVoice(engines, call).kept
        dialogue = CallDialogue(self.user, rate_hz=engines.output_rate_hz, kept=kept)
        self._contents = Contents(engines.output_rate_hz, dialogue.arrived)
        self._in_queue = QueueAnnouncer(duplex.queue_phrase, QUEUE_AGAIN_S, events)
        self._hosts = [
            host_of_call(host, dialogue, call, self._in_queue, has_echo=has_echo) for host in engines.omni
        ]
        phrases = announcements_of(engines, call) if client.speaks_announcements else ()
        saying = Saying(events, phrases)
        receives_directly = client.reports_units and not has_echo
        self.omni = DuplexOmniProcessor(
            EngineSource(self._hosts, partial(preparation_of, engines, call), engines.executors.omni),
            events,
            outlet=Outlet(
                playout=call.live.playout,
                contents=self._contents,
                holds_first=isinstance(engines.omni[0], TwoTierHost),
                reports_units=client.reports_units,
                unit_sink=client.unit_sink,
                voice_begins=lambda: saying.is_on,
            ),
            settings=duplex.ticks,
            apologise=lambda: self.thought.push_frame(TTSSpeakFrame(apology, append_to_context=False)),
            uses_pipeline_audio=not receives_directly,
        )
        EngineEnds(call, duplex.refusal)
        self._turn_monitor = self._create_turn_monitor(engines, transport)
        policy = engines.deployment.duplex_policy()
        yields_to_stop = duplex.yields == "policy" and policy.barge_in.protected_yields_to_stop
        self._guards_protected = yields_to_stop and not is_two_tier(engines)
        if receives_directly:
            client.entry.open(self.omni)

    @property
    def listeners(self) -> list[Listener]:
        """Receivers of the caller's audio."""
        return [self._turn_monitor.hear]

    def is_asked(self, frame: LLMContextFrame) -> bool:
        """Return whether the deployment's model answers: an engine with its own words answers by itself."""
        return self.omni.wants_content or IS_WRITTEN.is_on(frame)

    def is_over_bot(self) -> bool:
        """Return whether a voice that begins now begins over the bot's speech."""
        return self.omni.is_speaking or self.omni.is_voice_on

    def background(self) -> Background:
        """Return the tasks of the call. They are not stored, because they refer to this object."""
        tasks: list[Callable[[], Coroutine[Any, Any, None]]] = [self._turn_monitor.run]
        for host in self._hosts:
            if isinstance(host, PooledConversation):
                tasks += [partial(close_at_end, host), partial(self._in_queue.run, self._call.live.input)]
        return tasks

    def _on_thought(self, frame: Frame) -> None:
        if isinstance(frame, TTSSpeakFrame) and self._guards_protected and not self.omni.captures:
            # Speech for an engine is protected by that engine.
            guard_protected(frame)
        self._responses.publish(frame)
        self._contents.thought(frame)
        if isinstance(frame, InterruptionFrame):
            self.user.interruption_passed()

    def _create_turn_monitor(self, engines: Engines, transport: BaseTransport) -> EngineTurns:
        """Return the monitor of turns for an engine without one."""
        # A local: a reference to this object would form a reference cycle.
        omni = self.omni
        if is_two_tier(engines):
            return NoTurnMonitor()
        settings = engines.deployment.duplex_policy().model_copy(update={"backchannel": None})
        executors, is_silenced = engines.executors, engines.deployment.duplex.yields == "policy"
        return TurnMonitor(
            self._call.events,
            self.user,
            SpeechInput(
                DuplexPolicy(settings, language=engines.deployment.language()),
                vad=engines.vad,
                turn=engines.turn,
                executor=executors.turn,
                settings=VOICE.as_speech_input(),
            ),
            executors.vad or executors.turn,
            is_needed=lambda: not omni.wants_content,
            counts=lambda act: (
                not omni.wants_content and (is_silenced or not isinstance(act, Yield | Volume))
            ),
            set_gain_db=gain_of(transport),
        )


async def close_at_end(held: StopWordSpotter | PooledConversation) -> None:
    """Close a resource of the call when the call is over."""
    try:
        await asyncio.Event().wait()
    finally:
        held.close()
