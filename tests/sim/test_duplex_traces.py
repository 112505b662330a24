"""Decisions of seeded full-duplex calls must equal the recorded ones.

A change that is meant to decide otherwise records them anew: ``python -m tests.sim.duplex_traces --calls 40
--digests tests/sim/duplex_traces.json``.
"""

import json
from pathlib import Path

import pytest

from tests.sim.duplex_traces import WHOLE_EVERY, digests, trace

RECORDED = Path(__file__).with_name("duplex_traces.json")
CALLS = 40


def test_full_duplex_calls_decide_the_same_at_the_same_times_as_before():
    before = json.loads(RECORDED.read_text())
    now = digests(CALLS)
    assert len(before) == CALLS
    assert [seed for seed in range(CALLS) if before[seed] != now[seed]] == []


@pytest.mark.parametrize("seed", [1, WHOLE_EVERY])
def test_a_full_duplex_call_is_the_same_each_time_and_no_other(seed: int):
    assert trace(seed) == trace(seed) != trace(seed + 1)


def test_the_recorded_full_duplex_calls_have_replies_yields_and_failures():
    traces = [trace(seed) for seed in range(1, WHOLE_EVERY)]
    votes = {tick["vote"] for made in traces for tick in made["ticks"]}
    assert {"Vote.LISTEN", "Vote.SPEAK", "Vote.BACKCHANNEL", "Vote.YIELD"} <= votes
    assert any(truncated for made in traces for _, _, truncated in made["heard"])
    assert any(apologies for made in traces for apologies in made["ends"][:1])
