"""Estimates of the completeness of turns, kept while a call is recorded and used again when it is replayed.

A completeness model sees the audio up to a moment. Where that moment is on a timer, it lies in another piece
of the caller's audio on a machine that is late, and a few milliseconds of silence more change some estimates
from open to complete. A replay that compares prompts and settings gives this no part: a look at the same
place of the caller's audio has the estimate of the recorded call, where the model and its settings are the
same. Every other look is estimated anew. The model runs in both cases, so that a look takes as long as it
does.
"""

from collections.abc import Sequence
from enum import StrEnum

from parley.core.call_events import TurnEstimated
from parley.models.turn import TurnEstimate
from parley.runtime.event_stream import CallEvents

# Four pieces of audio: looks of one kind at two pauses are further apart.
SAME_PLACE_MS = 80


class Occasion(StrEnum):
    """Occasion of an estimate."""

    PAUSE = "pause"
    CONFIRMED = "confirmed"
    LATER = "later"


class CallEstimates:
    """Estimates of one call.

    Args:
        events: events of the call; every estimate is published.
        model: name of the completeness model with its settings.
        recorded: estimates of the call that is held again.
    """

    def __init__(self, events: CallEvents, model: str, recorded: Sequence[TurnEstimated] = ()) -> None:
        self._events, self._model = events, model
        self._recorded = [each for each in recorded if each.model == model]

    def settled(self, made: TurnEstimate, look: Occasion, heard_ms: int) -> TurnEstimate:
        """Return the estimate that counts: that of the recorded call at this place, or the one just made."""
        near = [
            each
            for each in self._recorded
            if each.look == look and abs(each.heard_ms - heard_ms) <= SAME_PLACE_MS
        ]
        if near:
            found = min(near, key=lambda each: abs(each.heard_ms - heard_ms))
            made = TurnEstimate(found.complete, found.filler_log_odds)
        self._events.publish(
            TurnEstimated(
                self._events.now_ms(),
                model=self._model,
                look=look.value,
                heard_ms=heard_ms,
                complete=float(made.complete),
                filler_log_odds=None if made.filler_log_odds is None else float(made.filler_log_odds),
            )
        )
        return made
