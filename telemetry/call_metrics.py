"""Fill the metrics of a process from the events of a call.

One ``CallMetrics`` belongs to one call and subscribes to its events. It keeps moments and numbers, and the
text of a response only until its words are counted. Nothing that identifies a call or a caller leaves it.
"""

from collections.abc import Mapping

from parley.core.call_events import (
    AnsweredAhead,
    AnswerHeard,
    CallEnding,
    EngineFailed,
    EngineFailedOver,
    EngineUsed,
    FallbackAnswers,
    FinalWords,
    PacketLate,
    PartialWords,
    QuestionSent,
    RecordingDegraded,
    RecordingStarted,
    ReplyCut,
    ReplyFinished,
    ResponseEnded,
    ResponseStarted,
    ResponseText,
    SpeechMade,
    SpeechStarted,
    TextTyped,
    TurnEnded,
    TurnPriced,
    TurnTranscribed,
    VoiceStarted,
    WaitMasked,
)
from parley.core.failover import FailoverReason
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall
from parley.telemetry import definitions as d
from parley.telemetry.engine_names import REALTIME_SECTION, STAGE_OF_SECTION
from parley.telemetry.metrics import OTHER, REALTIME, ServerMetrics

# A caller who goes on within this time after the end of the turn was not finished.
CUT_IN_MS = 1_000
# Unmute counts frames of this length.
FRAME_MS = 20
TOKEN_KINDS = (
    *("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens"),
    *("audio_prompt_tokens", "audio_completion_tokens"),
)


def count_ends(events: CallEvents, metrics: ServerMetrics) -> None:
    """Count the end of a call or conversation that its server ends."""
    events.subscribe(CallEnding, lambda event: metrics.counter(d.CALL_ENDS, event.reason).inc())


class CallMetrics:
    """Observer of one call (``runtime.observers.CallObserver``).

    Args:
        events: events of the call.
        call: identity of the call; its transport and mode are labels.
        metrics: metrics of the process.
        engines: name of the present engine of each stage.
        currency: of the deployment's prices; None: it has none, and no cost is counted.
    """

    def __init__(
        self,
        events: CallEvents,
        call: ObservedCall,
        metrics: ServerMetrics,
        engines: Mapping[Stage, str],
        currency: str | None = None,
    ) -> None:
        self._currency = currency
        self._events, self._metrics, self._engines = events, metrics, engines
        self._open = metrics.gauge(d.CALLS_OPEN, call.transport, call.mode)
        self._active = metrics.gauge(d.ACTIVE_SESSIONS)
        self._began_ms = events.now_ms()
        self._voice_ms: int | None = None
        self._ended_ms: int | None = None
        self._response_ms: int | None = None
        self._text: list[str] | None = None
        self._speech_ms: int | None = None
        self._made_ms = 0
        self._spoken_ms = 0.0
        # Beginning of the voice that cut the present reply.
        self._cut_ms: int | None = None
        # Of a realtime service nearly all speech is its own.
        speaker = Stage.LLM if call.mode == "realtime" else Stage.TTS
        self._speaker = speaker
        self._stt_ttft, self._words = metrics.histogram(d.STT_TTFT), metrics.counter(d.STT_WORDS)
        self._llm_ttft = metrics.histogram(d.LLM_TTFT)
        metrics.counter(d.SESSIONS).inc()
        metrics.counter(d.CALLS, call.transport, call.mode).inc()
        self._open.inc()
        self._active.inc()
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(PartialWords, self._on_words)
        events.subscribe(FinalWords, self._on_words)
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(AnswerHeard, self._on_answer_heard)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(ResponseEnded, self._on_response_ended)
        events.subscribe(SpeechStarted, self._on_speech_started)
        events.subscribe(SpeechMade, self._on_speech_made)
        events.subscribe(ReplyCut, self._on_reply_cut)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(EngineUsed, self._on_engine_used)
        events.subscribe(TurnPriced, self._on_turn_priced)
        events.subscribe(EngineFailed, self._on_engine_failed)
        count_ends(events, metrics)
        events.subscribe(QuestionSent, self._on_question_sent)
        events.subscribe(FallbackAnswers, self._on_fallback_answers)
        events.subscribe(EngineFailedOver, self._on_engine_failed_over)
        events.subscribe(TextTyped, lambda _event: metrics.counter(d.TURNS).inc())
        events.subscribe(TurnTranscribed, lambda _event: metrics.counter(d.TURNS).inc())
        events.subscribe(WaitMasked, lambda _event: metrics.counter(d.FILLERS).inc())
        events.subscribe(AnsweredAhead, lambda _event: metrics.counter(d.AHEAD).inc())
        events.subscribe(RecordingStarted, lambda _event: metrics.counter(d.RECORDINGS).inc())
        events.subscribe(RecordingDegraded, lambda _event: metrics.counter(d.RECORDINGS_DEGRADED).inc())
        events.subscribe(PacketLate, lambda _event: metrics.counter(d.LATE_PACKETS).inc())

    def close(self) -> None:
        """Count the end of the call."""
        self._flush_speech()
        self._open.dec()
        self._active.dec()
        self._metrics.histogram(d.SESSION_DURATION).observe((self._events.now_ms() - self._began_ms) / 1000)

    def _on_voice_started(self, event: VoiceStarted) -> None:
        self._voice_ms = event.at_ms - event.voiced_ms
        if self._ended_ms is not None and self._voice_ms - self._ended_ms < CUT_IN_MS:
            self._metrics.counter(d.CUT_INS).inc()
        self._ended_ms = None

    def _on_words(self, event: PartialWords | FinalWords) -> None:
        if self._voice_ms is not None and event.text:
            self._stt_ttft.observe(max(0, event.at_ms - self._voice_ms) / 1000)
            self._voice_ms = None
        if isinstance(event, FinalWords):
            self._words.inc(len(event.text.split()))

    def _on_turn_ended(self, event: TurnEnded) -> None:
        if event.text:
            self._ended_ms = event.at_ms
            self._metrics.counter(d.TURNS).inc()

    def _on_answer_heard(self, event: AnswerHeard) -> None:
        self._metrics.histogram(d.VOICE_TO_VOICE).observe(event.latency_ms / 1000)
        for stage, took_ms in event.stages_ms:
            self._metrics.histogram(d.STAGE, stage).observe(took_ms / 1000)

    def _on_question_sent(self, event: QuestionSent) -> None:
        self._metrics.histogram(d.REQUEST_WORDS).observe(event.words)

    def _on_fallback_answers(self, _event: FallbackAnswers) -> None:
        self._metrics.counter(d.FAILOVERS, Stage.LLM).inc()

    def _on_engine_failed_over(self, event: EngineFailedOver) -> None:
        if event.reason is not FailoverReason.RECOVERED:
            label = REALTIME if event.stage == REALTIME_SECTION else STAGE_OF_SECTION.get(event.stage, OTHER)
            self._metrics.counter(d.FAILOVERS, label).inc()
        if event.stage == REALTIME_SECTION:
            # The deployment's voice speaks from here on.
            self._speaker = Stage.TTS

    def _on_response_started(self, event: ResponseStarted) -> None:
        self._response_ms, self._text = event.at_ms, []

    def _on_response_text(self, event: ResponseText) -> None:
        if self._response_ms is not None:
            self._llm_ttft.observe((event.at_ms - self._response_ms) / 1000)
            self._response_ms = None
        if self._text is not None:
            self._text.append(event.text)

    def _on_response_ended(self, _event: ResponseEnded) -> None:
        words = 0 if self._text is None else len("".join(self._text).split())
        if words:
            self._metrics.histogram(d.REPLY_WORDS).observe(words)
        self._response_ms = self._text = None

    def _on_speech_started(self, event: SpeechStarted) -> None:
        self._flush_speech()
        self._speech_ms = event.at_ms

    def _on_speech_made(self, event: SpeechMade) -> None:
        self._metrics.counter(d.SPOKEN, self._engines[self._speaker]).inc(event.audio_ms / 1000)
        if self._speech_ms is not None:
            if not self._spoken_ms:
                self._metrics.histogram(d.TTS_TTFT).observe((event.at_ms - self._speech_ms) / 1000)
            self._spoken_ms += event.audio_ms
            self._made_ms = event.at_ms

    def _flush_speech(self) -> None:
        if self._speech_ms is not None and self._spoken_ms:
            self._metrics.histogram(d.TTS_AUDIO).observe(self._spoken_ms / 1000)
            self._metrics.histogram(d.TTS_GENERATION).observe((self._made_ms - self._speech_ms) / 1000)
        self._speech_ms, self._spoken_ms = None, 0.0

    def _on_reply_cut(self, event: ReplyCut) -> None:
        self._cut_ms = event.at_ms - (event.voice_ms or 0)
        self._metrics.counter(d.INTERRUPTIONS).inc()

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        self._flush_speech()
        if event.heard.truncated and self._cut_ms is not None:
            self._metrics.histogram(d.BARGE_IN).observe((event.at_ms - self._cut_ms) / 1000)
        self._cut_ms = None

    def _on_engine_used(self, event: EngineUsed) -> None:
        used, engine = event.usage, self._engines[event.stage]
        if used.heard_ms:
            self._metrics.counter(d.HEARD, engine).inc(used.heard_ms / 1000)
            self._metrics.counter(d.STT_FRAMES).inc(used.heard_ms / FRAME_MS)
        if used.characters:
            self._metrics.counter(d.CHARACTERS, engine).inc(used.characters)
        amounts = used.amounts()
        for kind in TOKEN_KINDS:
            if kind in amounts:
                self._metrics.counter(d.TOKENS, engine, event.model, kind).inc(amounts[kind])

    def _on_turn_priced(self, event: TurnPriced) -> None:
        if self._currency is None:
            return
        for used in event.used:
            if used.known_cost:
                self._metrics.counter(d.COST, used.engine, self._currency).inc(float(used.known_cost))
            for kind in used.unpriced:
                self._metrics.counter(d.UNPRICED, used.engine, used.model, kind).inc()

    def _on_engine_failed(self, event: EngineFailed) -> None:
        self._metrics.counter(d.FAILURES, OTHER if event.stage is None else event.stage).inc()
