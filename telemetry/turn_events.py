"""Write the turn log of a call from the call's events."""

from parley.core.call_events import (
    AnsweredAhead,
    CallEvent,
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
from parley.telemetry.turns import TurnLog


class TurnLogWriter:
    """Subscriber that fills a turn log from the events of a call.

    Args:
        turns: the log.
        events: of the call.
        words: event for the arrival of the caller's final words: ``WordsAccepted`` where a stage decides
            which words count for a turn, ``FinalWords`` otherwise.
    """

    def __init__(self, turns: TurnLog, events: CallEvents, *, words: type[CallEvent] = WordsAccepted) -> None:
        self._turns = turns
        events.subscribe(words, lambda _event: turns.words_arrived())
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

    def _on_turn_end_decided(self, event: TurnEndDecided) -> None:
        self._turns.user_turn_ended(silence_ms=event.silence_ms, completeness=event.completeness)

    def _on_turn_words(self, event: TurnEnded | TurnTranscribed) -> None:
        if event.text:
            self._turns.user_said(event.text)
