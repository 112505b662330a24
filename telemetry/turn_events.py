"""Writes the turn log of a call from the call's events."""

from core.call_events import (
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
from runtime.event_stream import CallEvents
from telemetry.turns import TurnLog


class TurnLogWriter:
    """Subscribes a turn log to the events that make its records.

    Args:
        turns: the log.
        events: of the call.
        words: the event that final words of the caller arrived: ``WordsAccepted`` where it is known which
            words count for a turn, ``FinalWords`` otherwise.
    """

    def __init__(self, turns: TurnLog, events: CallEvents, *, words: type[CallEvent] = WordsAccepted) -> None:
        self._turns = turns
        events.subscribe(words, self._on_words)
        events.subscribe(TextTyped, self._on_text_typed)
        events.subscribe(TurnEndDecided, self._on_turn_end_decided)
        events.subscribe(TurnEnded, self._on_turn_words)
        events.subscribe(TurnTranscribed, self._on_turn_words)
        events.subscribe(WaitMasked, self._on_wait_masked)
        events.subscribe(AnsweredAhead, self._on_answered_ahead)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(ToolsCalled, self._on_tools_called)
        events.subscribe(SpeechStarted, self._on_speech_started)
        events.subscribe(SpeechMade, self._on_speech_made)
        events.subscribe(ReplyResumed, self._on_reply_resumed)

    def _on_words(self, _event: CallEvent) -> None:
        self._turns.words_arrived()

    def _on_text_typed(self, event: TextTyped) -> None:
        self._turns.user_typed(event.text)

    def _on_turn_end_decided(self, event: TurnEndDecided) -> None:
        self._turns.user_turn_ended(silence_ms=event.silence_ms, completeness=event.completeness)

    def _on_turn_words(self, event: TurnEnded | TurnTranscribed) -> None:
        if event.text:
            self._turns.user_said(event.text)

    def _on_wait_masked(self, _event: WaitMasked) -> None:
        self._turns.masked()

    def _on_answered_ahead(self, _event: AnsweredAhead) -> None:
        self._turns.answered_ahead()

    def _on_response_text(self, _event: ResponseText) -> None:
        self._turns.mark("llm_first_token")

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        self._turns.tools_called()

    def _on_speech_started(self, _event: SpeechStarted) -> None:
        self._turns.mark("first_clause")

    def _on_speech_made(self, _event: SpeechMade) -> None:
        self._turns.mark("tts_first_audio")

    def _on_reply_resumed(self, _event: ReplyResumed) -> None:
        self._turns.resumed()
