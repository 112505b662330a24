"""Prompt to the caller after a noise for which the bot fell silent."""

from collections.abc import Callable

from pipecat.frames.frames import TTSSpeakFrame

from parley.core.call_events import BotTurnEnded, TurnEnded, Wait, WaitBegan, WaitEnded
from parley.pipelines.pipeline_input import PipelineInput
from parley.processors.turns.floor import Floor
from parley.runtime.event_stream import CallEvents


class Reprompt:
    """Speaks a phrase when a turn of the caller had no words and took the floor from the bot all the same.

    A cough needs no answer, but it cut the bot off, or the answer that the model was preparing. The phrase
    fills the gap. It is spoken once, as it would go on for ever in a noisy room.

    Args:
        events: events of the call.
        floor: tracks whether the bot holds the floor.
        pipeline: takes the phrase.
        phrase: phrase to speak; empty for none.
        was_wait_cut_off: returns whether the newest wait was interrupted while the model was at work.
    """

    def __init__(
        self,
        events: CallEvents,
        floor: Floor,
        pipeline: PipelineInput,
        phrase: str,
        *,
        was_wait_cut_off: Callable[[], bool],
    ) -> None:
        self._floor, self._pipeline, self._phrase = floor, pipeline, phrase
        self._was_wait_cut_off = was_wait_cut_off
        self._is_cut_off = self._is_said = self._is_held = False
        events.subscribe(WaitBegan, lambda event: self._on_wait(event.reason, is_on=True))
        events.subscribe(WaitEnded, lambda event: self._on_wait(event.reason, is_on=False))
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)

    def _on_turn_ended(self, event: TurnEnded) -> None:
        is_cut_off, self._is_cut_off = self._is_cut_off or self._was_wait_cut_off(), False
        if event.text:
            self._is_said = False
        elif is_cut_off and not self._is_held and self._may_speak():
            self._is_said = True
            self._pipeline.put(TTSSpeakFrame(self._phrase, append_to_context=True))

    def _may_speak(self) -> bool:
        return bool(self._phrase) and not self._is_said and not self._floor.holds_reply()

    def _on_wait(self, reason: Wait, *, is_on: bool) -> None:
        if reason is Wait.HOLD:
            # The bot is silent for the caller, and not for a noise.
            self._is_held = is_on

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        self._is_cut_off = event.interrupted
