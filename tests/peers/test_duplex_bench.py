"""The duplex bench with the engines that ship: one question, at the pace of the clock."""

import json
from pathlib import Path

import pytest

from parley.evals.duplex_bench.__main__ import main
from parley.evals.duplex_bench.hosts import BASELINES


@pytest.mark.alone
@pytest.mark.slow
def test_the_two_tier_engine_answers_a_recorded_question(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    arguments = ["--engine", "two_tier", "--part", "turn", "--clips", "2", "--json", str(path)]
    assert main(arguments) == 0
    first, *controls = json.loads(path.read_text())["systems"]
    assert first["name"] == "two_tier" and [each["name"] for each in controls] == list(BASELINES)
    # The engine recognised something, answered in words of its own, and did not wait for a long silence.
    assert first["judged_by"] == "words" and first["turn_tor"] == 1.0
    assert all(each["understood"] for each in first["per_clip"])
    assert 0 < first["turn_latency_ms"]["p50"] < 2_000
    assert first["ticks"]["units"] > 100
