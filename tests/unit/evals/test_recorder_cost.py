"""The cost of recording: a short run of its measurement."""

import json

import pytest

from parley.evals.bench.recorder import main


def test_recording_costs_less_than_a_hundredth_and_a_half_of_a_core_per_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--calls", "20", "--seconds", "6"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["cpu_percent_per_call"] < 1.5
    # A packet of 20 ms that the recorders of twenty calls keep the loop from sending in time.
    assert found["late_packets"] == 0 and 0 < found["longest_ms"] < 20
    assert len(found["late_ms_p99"]) == 2
    assert found["lost_ms"] == 0
    assert found["merge_ms_per_minute"] < 3_000
