"""Stages of a call with a realtime service that may be replaced, and what follows events for them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipecat.frames.frames import Frame, LLMRunFrame, TTSSpeakFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.call_events import ServiceSpoke, TextTyped, TurnEnded, TurnTranscribed
from parley.core.timeline import HeardReply
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.stages.service import Beginning, ServiceStages, beginning_of, user_aggregator
from parley.pipelines.stages.service_announcements import ServiceAnnouncements, service_announcements
from parley.pipelines.stages.service_ends import ServiceAllowance, ServiceEnding
from parley.pipelines.stages.shared import perception_of
from parley.processors.duplex.caller_turns import CallerTurns
from parley.processors.duplex.service_watch import ServiceDeadlines, ServiceWatch
from parley.processors.duplex.services import RealtimeRow
from parley.processors.duplex.unanswered_speech import UnansweredSpeech
from parley.processors.playout.assistant import HeardAssistantAggregator
from parley.processors.turns.turn_events import publish_bot_turns, publish_service_turns
from parley.runtime.event_stream import EventScope


class OwedAnswer:
    """Answer that a caller is owed when the service fails, by the events of the call until then.

    Args:
        events: events of the stages with the service.
    """

    def __init__(self, events: EventScope) -> None:
        self._has_turn = self._is_open = self._has_spoken = False
        events.subscribe(TurnEnded, lambda _event: self._on_turn())
        events.subscribe(TextTyped, lambda _event: self._on_typed())
        events.subscribe(TurnTranscribed, lambda _event: self._on_transcribed())
        events.subscribe(ServiceSpoke, lambda _event: self._on_spoke())

    def frames(self, cut: HeardReply | None, *, was_cut: bool, greeting: TTSSpeakFrame | None) -> list[Frame]:
        """Return the frames that have the cascade give it.

        Args:
            cut: the reply that was cut off, where something of it was heard.
            was_cut: a reply was cut off.
            greeting: first words of the call; None without any.
        """
        if self._has_turn and (self._is_open or was_cut):
            return [LLMRunFrame()]
        if self._has_turn or (self._has_spoken and not was_cut):
            return []
        if cut is not None and cut.text:
            return [TTSSpeakFrame(cut.unheard, append_to_context=True)] if cut.unheard else []
        return [] if greeting is None else [greeting]

    def _on_turn(self) -> None:
        self._is_open = True

    def _on_typed(self) -> None:
        self._has_turn = self._is_open = True

    def _on_transcribed(self) -> None:
        self._has_turn = True

    def _on_spoke(self) -> None:
        self._has_spoken, self._is_open = True, False


@dataclass(frozen=True, kw_only=True)
class ServicePart:
    """Stages with the service, in one call.

    Attributes:
        scope: their part of the event stream.
        beginning: instructions and greeting of the service.
        stages: stages between voice activity and the output, in the order of the data.
        service: the service itself.
        tail: stage of the bot's turns.
        model: stages around the service.
        context: context of the service.
        announcements: said before the service begins.
        watch: detects a missing answer.
        speech: speech that is not transcribed.
        owed: what the caller is owed when the service fails.
        caller: writes the caller's turns.
        take_typed: counts a text that the client has typed.
        background: tasks of the stages.
    """

    scope: EventScope
    beginning: Beginning
    stages: Sequence[FrameProcessor]
    service: FrameProcessor
    tail: HeardAssistantAggregator
    model: ServiceStages
    context: LLMContext
    announcements: ServiceAnnouncements
    watch: ServiceWatch
    speech: UnansweredSpeech
    owed: OwedAnswer
    caller: CallerTurns
    take_typed: Callable[[str], float]
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]]


async def service_part(engines: Engines, row: RealtimeRow[Any], whole: Call) -> ServicePart:
    """Return the stages of a call with the service. Loads no model; the service builds its parts in a thread.

    Args:
        engines: engines of the process.
        row: row of the service.
        whole: the call.
    """
    scope = EventScope(whole.live.events)
    call = replace(whole, scope=scope)
    start = beginning_of(engines, row, call)
    tts, service = await asyncio.gather(
        engines.build_tts(scope),
        asyncio.to_thread(row.build, engines.answering.shared, system_instruction=start.instructions),
    )
    perception = perception_of(engines, call, row.name)
    caller = CallerTurns(call.conversation, scope, transport=call.transport, perceive=perception.take)
    deadlines = ServiceDeadlines(engines.deployment.duplex.failover_ms, row.turn_end_ms)
    watch = ServiceWatch(deadlines, scope, is_playing=lambda: not call.live.playout.heard_clock.is_drained)
    speech, owed = UnansweredSpeech(scope), OwedAnswer(scope)
    model = ServiceStages(row, call, takes_contexts=start.is_sent)
    user = user_aggregator(row, start)
    ending = ServiceEnding(call, model.gate, engines.deployment.thinking.guard.apology)
    allowance = ServiceAllowance(engines, call, ending)
    tail = HeardAssistantAggregator(user.context, user)
    publish_service_turns(scope, user, call.live.input.flush)
    publish_bot_turns(scope, tail, call.live.input.flush)
    thought, _, _ = call.live.playout.taps()
    return ServicePart(
        scope=scope,
        beginning=start,
        # Words come from the service: features of them are perceived after the turns.
        stages=[model.typed, user, perception, thought, tts, model.gate, service, model.replies],
        service=service,
        tail=tail,
        model=model,
        context=user.context,
        announcements=service_announcements(engines, whole, model),
        watch=watch,
        speech=speech,
        owed=owed,
        caller=caller,
        take_typed=allowance.take_typed,
        background=[ending.run, allowance.run],
    )
