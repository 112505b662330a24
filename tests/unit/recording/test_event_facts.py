"""Facts of events in the timeline of a recording."""

from decimal import Decimal

import pytest

from parley.core.call_events import AnswerHeard, TurnPriced, VoteChanged
from parley.core.usage import PricedUsage, Stage, Usage
from parley.recording.event_facts import IN_TIMELINE, facts_of


def used(cost: str, *unpriced: str) -> PricedUsage:
    return PricedUsage(Stage.LLM, "engine", "model", Usage(), Decimal(cost), unpriced)


@pytest.mark.parametrize(
    ("uses", "cost"), [((used("0.1"), used("0.2")), 0.3), ((used("0.1"), used("0", "tokens")), None)]
)
def test_the_cost_of_a_turn_is_a_number_where_all_of_it_is_known(
    uses: tuple[PricedUsage, ...], cost: float | None
):
    assert facts_of(TurnPriced(5, 2, uses)) == {"turn": 2, "cost": cost}


def test_a_recording_keeps_votes_latencies_and_costs():
    assert facts_of(VoteChanged(5, "speak")) == {"vote": "speak"}
    assert facts_of(AnswerHeard(5, 600, (("stt_final", 250.5),))) == {
        "latency_ms": 600,
        "stages_ms": (("stt_final", 250.5),),
    }
    assert {VoteChanged, AnswerHeard, TurnPriced} <= set(IN_TIMELINE)
