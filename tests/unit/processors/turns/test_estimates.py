"""Estimates of a recorded call, and of one that is held again."""

import asyncio

import pytest

from parley.core.call_events import TurnEstimated
from parley.models.turn import TurnEstimate
from parley.processors.turns.estimates import SAME_PLACE_MS, CallEstimates, Occasion
from parley.runtime.event_stream import CallEvents

MADE = TurnEstimate(0.2, -1.0)


def recorded(
    heard_ms: int, complete: float, look: Occasion = Occasion.LATER, model: str = "m 1"
) -> TurnEstimated:
    return TurnEstimated(0, model=model, look=look.value, heard_ms=heard_ms, complete=complete)


async def settled(
    *before: TurnEstimated, look: Occasion = Occasion.LATER
) -> tuple[TurnEstimate, TurnEstimated]:
    """Return what counts of a look after a second, and what is published."""
    events, seen = CallEvents(), list[TurnEstimated]()
    events.subscribe(TurnEstimated, seen.append)
    found = CallEstimates(events, "m 1", before).settled(MADE, look, 1_000)
    await asyncio.sleep(0)
    [published] = seen
    return found, published


async def test_an_estimate_of_a_recorded_call_is_published_as_it_was_made():
    found, published = await settled()
    assert found == MADE
    assert (published.model, published.look, published.heard_ms) == ("m 1", "later", 1_000)
    assert (published.complete, published.filler_log_odds) == (0.2, -1.0)


async def test_a_look_at_the_same_place_has_the_recorded_estimate():
    found, published = await settled(recorded(960, 0.3), recorded(1_020, 0.9), recorded(9_000, 0.1))
    assert found.complete == published.complete == 0.9
    assert found.filler_log_odds is None


@pytest.mark.parametrize(
    "other",
    [
        recorded(1_001 + SAME_PLACE_MS, 0.9),
        recorded(1_000, 0.9, look=Occasion.PAUSE),
        recorded(1_000, 0.9, model="m 2"),
    ],
)
async def test_another_place_another_look_and_another_model_are_estimated_anew(other: TurnEstimated):
    assert (await settled(other))[0] == MADE
