"""Decisions about voices over the bot in seeded calls must equal the recorded ones.

A change that is meant to decide otherwise records the calls anew: ``python -m tests.sim.traces --write
tests/sim/traces.json``.
"""

import json
from pathlib import Path

import pytest

from tests.sim.traces import KINDS, differing, recorded, traced

RECORDED = Path(__file__).with_name("traces.json")
CALLS, MOST_CALLS = 40, 500


@pytest.mark.parametrize("calls", [CALLS, pytest.param(MOST_CALLS, marks=pytest.mark.slow)])
def test_the_same_is_decided_at_the_same_times_as_before(calls: int):
    before = json.loads(RECORDED.read_text())
    assert {kind: len(digests) for kind, digests in before.items()} == dict.fromkeys(KINDS, MOST_CALLS)
    assert differing(before, recorded(calls)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_the_same_each_time_and_no_other(kind: str):
    assert traced(kind, 1) == traced(kind, 1) != traced(kind, 2)


def test_the_recorded_calls_have_every_decision():
    lines = {line.split()[1] for seed in range(CALLS) for line in traced("shell", seed)}
    decisions = {"ReplyDucked", "ReplyRestored", "ReplyCut", "ReplyResumed"}
    assert decisions | {"turn-started", "turn-stopped", "pushed", "reset", "interrupt", "words"} <= lines


def test_a_call_that_decides_otherwise_is_named():
    before = {"machine": ["a", "b"], "shell": ["c", "d", "e"]}
    assert differing(before, {"machine": ["a", "x"], "shell": ["c", "d"]}) == ["machine 1"]
