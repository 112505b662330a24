"""The cost of metrics and traces: a short run of its measurement."""

import json

import pytest

from parley.evals.bench.telemetry import main


def test_metrics_and_traces_cost_less_than_half_a_hundredth_of_a_core_per_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--calls", "20", "--minutes", "2", "--traces"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["turns"] == 15
    assert 0 < found["metrics_percent_per_call"] < 0.25
    assert 0 < found["traces_percent_per_call"] < 0.25
    assert found["scrapes_percent"] < 0.5
    assert 100 < found["series"] < 2_000
