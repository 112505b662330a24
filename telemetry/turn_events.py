"""Write the turn log of a call from the call's events."""

from parley.core.call_events import (
    AnsweredAhead,
    EngineFailedOver,
    FinalWords,
    ReplyResumed,
    ResponseText,
    SpeechMade,
    SpeechStarted,
    TextTyped,
    ToolsCalled,
    TurnEndDecided,
    TurnEnded,
    TurnTranscribed,
    WaitMasked,
    WordsAccepted,
)
from parley.runtime.event_stream import CallEvents
from parley.telemetry.engine_names import REALTIME_SECTION
from parley.telemetry.turns import TurnLog


class TurnLogWriter:
    """Subscriber that fills a turn log from the events of a call.

    Args:
        turns: the log.
        events: of the call.
        judges_words: a stage decides which words of the caller count for a turn (``WordsAccepted``);
            otherwise all final words do. When a cascade takes over from a realtime service, one of its stages
            decides.
    """

    def __init__(self, turns: TurnLog, events: CallEvents, *, judges_words: bool = True) -> None:
        self._turns, self._judges_words = turns, judges_words
        events.subscribe(FinalWords, lambda _event: self._on_words(are_accepted=False))
        events.subscribe(WordsAccepted, lambda _event: self._on_words(are_accepted=True))
        events.subscribe(EngineFailedOver, self._on_engine_failed_over)
        events.subscribe(TextTyped, lambda event: turns.user_typed(event.text))
        events.subscribe(TurnEndDecided, self._on_turn_end_decided)
        events.subscribe(TurnEnded, self._on_turn_words)
        events.subscribe(TurnTranscribed, self._on_turn_words)
        events.subscribe(WaitMasked, lambda _event: turns.masked())
        events.subscribe(AnsweredAhead, lambda _event: turns.answered_ahead())
        events.subscribe(ResponseText, lambda _event: turns.mark("llm_first_token"))
        events.subscribe(ToolsCalled, lambda _event: turns.tools_called())
        events.subscribe(SpeechStarted, lambda _event: turns.mark("first_clause"))
        events.subscribe(SpeechMade, lambda _event: turns.mark("tts_first_audio"))
        events.subscribe(ReplyResumed, lambda _event: turns.resumed())

    def close(self) -> None:
        """Do nothing: the log is closed with the last turn of its call."""

    def _on_words(self, *, are_accepted: bool) -> None:
        if are_accepted == self._judges_words:
            self._turns.words_arrived()

    def _on_engine_failed_over(self, event: EngineFailedOver) -> None:
        if event.stage == REALTIME_SECTION:
            self._judges_words = True

    def _on_turn_end_decided(self, event: TurnEndDecided) -> None:
        self._turns.user_turn_ended(silence_ms=event.silence_ms, completeness=event.completeness)

    def _on_turn_words(self, event: TurnEnded | TurnTranscribed) -> None:
        if event.text:
            self._turns.user_said(event.text)
