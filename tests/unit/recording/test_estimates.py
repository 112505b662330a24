"""Estimates of a completeness model in a timeline that may come from anywhere."""

from typing import Any

import pytest

from parley.core.call_events import TurnEstimated
from parley.recording.estimates import estimates_of
from parley.recording.event_facts import facts_of

MADE = TurnEstimated(5_000, model="m 1", look="later", heard_ms=4_800, complete=0.75, filler_log_odds=-2.0)


def written(**other: Any) -> dict[str, Any]:
    return {"at_ms": 5_000, "event": "TurnEstimated", **facts_of(MADE), **other}


def test_an_estimate_is_read_as_it_was_written_with_its_place_in_what_is_held_again():
    [found] = estimates_of([{"at_ms": 1, "event": "TurnEnded"}, written()], 1_000.0, left_out_ms=160)
    assert (found.at_ms, found.heard_ms) == (4_000, 4_640)
    assert (found.model, found.look, found.complete, found.filler_log_odds) == ("m 1", "later", 0.75, -2.0)


@pytest.mark.parametrize(
    "broken", [{"complete": 1.5}, {"complete": None}, {"heard_ms": -1}, {"model": "m" * 201}, {"look": 5}]
)
def test_one_in_another_form_is_left_out(broken: dict[str, Any]):
    assert estimates_of([written(**broken), written()], 0.0) == estimates_of([written()], 0.0)
