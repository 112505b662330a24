"""Traces of a call: one trace for each turn, with a span for each engine and the audible moments as events.

The root span lasts from the caller's voice to the end of the bot's turn; that of a greeting, from its first
sound. A voice over the bot is an event of the turn that it interrupts, and the beginning of the next one.
Below the root are the recogniser, the responses of the model and the stretches of speech. Names and
attributes of the model's spans are those of OpenTelemetry's conventions for generative AI (``gen_ai.*``);
others begin with ``parley.``. There is no span for a frame or a packet, and no word of the caller or the bot
in any.

Events of the call have the clock of the loop, spans that of the wall: the difference is taken once, at the
beginning of the call.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from parley.core.call_events import (
    AnswerHeard,
    BotTurnEnded,
    CallEnding,
    CallEvent,
    EngineFailed,
    EngineUsed,
    FallbackAnswers,
    FinalWords,
    ReplyCut,
    ReplyFinished,
    ReplyResumed,
    ReplyStarted,
    ResponseEnded,
    ResponseStarted,
    ResponseText,
    SpeechMade,
    SpeechStarted,
    TextTyped,
    ToolsCalled,
    TurnEndDecided,
    TurnEnded,
    TurnPriced,
    VoiceEnded,
    VoiceStarted,
    WaitMasked,
)
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall
from parley.runtime.trace_context import TRACEPARENT, CallTrace

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

NS_PER_MS = 1_000_000


class CallTraces:
    """Observer of one call (``runtime.observers.CallObserver``).

    Args:
        events: events of the call.
        call: its identity, which is in the spans.
        tracer: makes the spans.
        engines: name of the engine of each stage.
        trace: gets the open spans, for engines that pass them on.
    """

    def __init__(
        self,
        events: CallEvents,
        call: ObservedCall,
        tracer: "Tracer",
        engines: Mapping[Stage, str],
        trace: CallTrace,
    ) -> None:
        # Imported where a deployment asks for traces.
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace, self._propagator = trace, TraceContextTextMapPropagator()
        self._client, self._in_context = SpanKind.CLIENT, set_span_in_context
        self._events, self._call, self._tracer, self._engines = events, call, tracer, engines
        self._wall_ns = time.time_ns() - events.now_ms() * NS_PER_MS
        self._root: Span | None = None
        # End of a turn that is over, until its cost is known.
        self._over_ms: int | None = None
        # The words of the turn are complete, or the bot speaks first.
        self._is_answered = False
        # Beginning of a voice over the bot, which begins the next turn.
        self._next_ms: int | None = None
        self._turn = 0
        self._characters = 0
        self._spans: dict[Stage, Span] = {}
        self._last_ms: dict[Stage, int] = {}
        # Of the newest text of the model.
        self._author = ""
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(FinalWords, self._on_final_words)
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(TextTyped, self._on_text_typed)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(ResponseEnded, self._on_response_ended)
        events.subscribe(SpeechStarted, self._on_speech_started)
        events.subscribe(SpeechMade, self._on_speech_made)
        events.subscribe(EngineUsed, self._on_engine_used)
        events.subscribe(EngineFailed, self._on_engine_failed)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)
        events.subscribe(TurnPriced, self._on_turn_priced)
        for kind in (
            FallbackAnswers,
            *(VoiceEnded, TurnEndDecided, WaitMasked, ToolsCalled, ReplyStarted, AnswerHeard, ReplyCut),
            *(ReplyResumed, ReplyFinished, CallEnding),
        ):
            events.subscribe(kind, self._on_moment)

    def close(self) -> None:
        """End the spans that are open: the call is over."""
        self._next_ms = None
        self._end_turn(self._events.now_ms() if self._over_ms is None else self._over_ms)

    # Turns.

    def _on_voice_started(self, event: VoiceStarted) -> None:
        began_ms = event.at_ms - event.voiced_ms
        if self._over_ms is not None:
            self._end_turn(self._over_ms)
        if self._root is not None and self._is_answered:
            self._root.add_event("voice over the bot", timestamp=self._ns(began_ms))
            self._next_ms = began_ms if self._next_ms is None else self._next_ms
            return
        self._hear(began_ms)

    def _hear(self, began_ms: int) -> None:
        """Begin a turn with the caller's voice, or go on with the one that is open."""
        self._root_at(began_ms).add_event("voice started", timestamp=self._ns(began_ms))
        if Stage.STT not in self._spans:
            self._begin(Stage.STT, "speech_to_text", began_ms)

    def _on_turn_ended(self, event: TurnEnded) -> None:
        if not event.text and self._call.mode != "realtime":
            # The words belong to no turn. Those of a realtime service come later.
            self._next_ms = None
            if not self._is_answered:
                self._end_turn(event.at_ms)
            return
        if self._is_answered and self._root is not None:
            self._end_turn(event.at_ms)
        self._asked(event.at_ms)

    def _on_text_typed(self, event: TextTyped) -> None:
        if self._root is not None:
            self._end_turn(event.at_ms if self._over_ms is None else self._over_ms)
        self._asked(event.at_ms)
        self._root_at(event.at_ms).add_event("text typed", timestamp=self._ns(event.at_ms))

    def _asked(self, at_ms: int) -> None:
        self._turn += 1
        self._is_answered = True
        self._root_at(at_ms).set_attribute("parley.turn", self._turn)

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        if self._root is not None:
            self._root.set_attribute("parley.interrupted", event.interrupted)
            self._over_ms = event.at_ms

    def _on_turn_priced(self, event: TurnPriced) -> None:
        root = self._root
        if root is None:
            return
        known = sum(float(each.known_cost) for each in event.used)
        root.set_attribute("parley.cost.known", known)
        root.set_attribute("parley.cost.is_known", not any(each.unpriced for each in event.used))
        if self._over_ms is not None:
            self._end_turn(self._over_ms)

    def _root_at(self, at_ms: int) -> "Span":
        if self._root is None:
            self._root = self._tracer.start_span(
                "turn",
                start_time=self._ns(at_ms),
                attributes={
                    "gen_ai.conversation.id": self._call.session_id,
                    "parley.call.id": self._call.call_id,
                    "parley.transport": self._call.transport,
                    "parley.mode": self._call.mode,
                    "parley.turn": self._turn,
                },
            )
            if (parent := self._traceparent(self._root)) is not None:
                self._trace.turn_began(parent)
        return self._root

    def _traceparent(self, span: "Span") -> str | None:
        """Return a span as another process continues it; None where the turn is not sampled."""
        if not span.is_recording():
            return None
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._in_context(span))
        return carrier[TRACEPARENT]

    def _end_turn(self, at_ms: int) -> None:
        for stage in list(self._spans):
            self._end(stage, self._last_ms.get(stage, at_ms))
        if self._root is not None:
            self._root.end(self._ns(at_ms))
        self._trace.turn_ended()
        self._root = self._over_ms = None
        self._is_answered = False
        began_ms, self._next_ms = self._next_ms, None
        if began_ms is not None:
            self._hear(began_ms)

    # Audible and other moments.

    def _on_moment(self, event: CallEvent) -> None:
        root = self._root
        if root is None and not isinstance(event, ReplyStarted):
            return
        if root is None:
            root, self._is_answered = self._root_at(event.at_ms), True
        at_ms, name, facts = _moment(event)
        root.add_event(name, facts, timestamp=self._ns(at_ms))

    # Engines.

    def _on_final_words(self, event: FinalWords) -> None:
        span = self._spans.get(Stage.STT)
        if span is not None:
            span.set_attribute("parley.words", len(event.text.split()))
            self._end(Stage.STT, event.at_ms)

    def _on_response_started(self, event: ResponseStarted) -> None:
        self._end(Stage.LLM, self._last_ms.get(Stage.LLM, event.at_ms))
        self._author = ""
        engine = self._engines[Stage.LLM]
        self._begin(
            Stage.LLM,
            f"chat {engine}",
            event.at_ms,
            {"gen_ai.operation.name": "chat", "gen_ai.provider.name": engine},
        )

    def _on_response_text(self, event: ResponseText) -> None:
        span = self._spans.get(Stage.LLM)
        if span is not None and Stage.LLM not in self._last_ms:
            span.add_event("first token", timestamp=self._ns(event.at_ms))
        if span is not None and event.author and event.author != self._author:
            # The fallback, or a phrase of the deployment, in place of the rest of the answer.
            span.update_name(f"chat {event.author}")
            span.set_attributes({"gen_ai.provider.name": event.author, "parley.engine": event.author})
        self._author = event.author
        self._last_ms[Stage.LLM] = event.at_ms

    def _on_response_ended(self, event: ResponseEnded) -> None:
        # Its tokens may be reported a moment later: the span ends with the turn, at this moment.
        self._last_ms[Stage.LLM] = event.at_ms

    def _on_speech_started(self, event: SpeechStarted) -> None:
        self._end(Stage.TTS, self._last_ms.get(Stage.TTS, event.at_ms))
        self._characters = 0
        self._begin(Stage.TTS, "text_to_speech", event.at_ms)

    def _on_speech_made(self, event: SpeechMade) -> None:
        span = self._spans.get(Stage.TTS)
        if span is not None and Stage.TTS not in self._last_ms:
            span.add_event("first audio", timestamp=self._ns(event.at_ms))
        self._last_ms[Stage.TTS] = event.at_ms

    def _on_engine_used(self, event: EngineUsed) -> None:
        span, used = self._spans.get(event.stage), event.usage
        if span is None:
            return
        if event.stage is Stage.LLM:
            cached = used.cached_tokens + used.cache_write_tokens
            read = used.prompt_tokens + used.audio_prompt_tokens + cached
            written = used.completion_tokens + used.audio_completion_tokens
            span.set_attribute("gen_ai.usage.input_tokens", read)
            span.set_attribute("gen_ai.usage.output_tokens", written)
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", used.cached_tokens)
            if event.model:
                span.set_attribute("gen_ai.response.model", event.model)
                if not self._author:
                    span.update_name(f"chat {event.model}")
        elif event.stage is Stage.TTS:
            self._characters += used.characters
            span.set_attribute("parley.characters", self._characters)
        elif event.stage is Stage.STT:
            span.set_attribute("parley.heard_ms", round(used.heard_ms))

    def _on_engine_failed(self, event: EngineFailed) -> None:
        span = None if event.stage is None else self._spans.get(event.stage)
        failed = span or self._root
        if failed is not None:
            failed.set_attribute("error.type", "engine_failed")
            failed.add_event("engine failed", timestamp=self._ns(event.at_ms))

    def _begin(
        self, stage: Stage, name: str, at_ms: int, facts: "Mapping[str, AttributeValue] | None" = None
    ) -> None:
        root = self._root_at(at_ms)
        self._last_ms.pop(stage, None)
        self._spans[stage] = span = self._tracer.start_span(
            name,
            context=self._in_context(root),
            kind=self._client,
            start_time=self._ns(at_ms),
            attributes={"parley.stage": stage.value, "parley.engine": self._engines[stage], **(facts or {})},
        )
        if (parent := self._traceparent(span)) is not None:
            self._trace.stage_began(stage, parent)

    def _end(self, stage: Stage, at_ms: int) -> None:
        span = self._spans.pop(stage, None)
        if span is not None:
            self._trace.stage_ended(stage)
            span.end(self._ns(at_ms))

    def _ns(self, at_ms: int) -> int:
        return self._wall_ns + at_ms * NS_PER_MS


def _moment(event: CallEvent) -> "tuple[int, str, dict[str, AttributeValue]]":
    """Return the moment, the name and the facts of an event of the root span."""
    match event:
        case VoiceEnded(at_ms=at_ms, silence_ms=silence_ms):
            return at_ms - silence_ms, "voice ended", {}
        case TurnEndDecided(rule=rule):
            return event.at_ms, "turn end decided", {"rule": rule} if rule else {}
        case WaitMasked():
            return event.at_ms, "filler", {}
        case FallbackAnswers(reason=reason):
            return event.at_ms, "fallback answers", {"reason": reason}
        case ToolsCalled():
            return event.at_ms, "tools called", {}
        case ReplyStarted():
            return event.at_ms, "reply audible", {}
        case AnswerHeard(latency_ms=latency_ms, stages_ms=stages_ms):
            facts: dict[str, AttributeValue] = {"voice_to_voice_ms": latency_ms}
            return event.at_ms, "answer audible", facts | {f"{name}_ms": took for name, took in stages_ms}
        case ReplyCut(reason=reason):
            return event.at_ms, "reply cut", {"reason": reason}
        case ReplyResumed():
            return event.at_ms, "reply resumed", {}
        case ReplyFinished(heard=heard):
            return event.at_ms, "reply finished", {"heard_ms": heard.mark.audio_ms, "cut": heard.truncated}
        case CallEnding(reason=reason):
            return event.at_ms, "call ending", {"reason": reason}
        case _:
            raise AssertionError(event)
