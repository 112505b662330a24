"""The cost of recording: a short run of its measurement, whose figures ``docs`` gives for a long one."""

import json

import pytest

from parley.evals.bench.recorder import main


def test_a_short_run_loses_nothing_and_gives_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--calls", "2", "--seconds", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "late_packets" in found and len(found["late_ms_p99"]) == 2
    assert found["lost_ms"] == 0
    assert found["merge_ms_per_minute"] > 0 and "cpu_percent_per_call" in found
