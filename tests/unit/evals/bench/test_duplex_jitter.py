"""The measured clock of full duplex: short runs, and figures of synthetic lines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parley.core.units import Tick, Vote
from parley.evals import virtual_time
from parley.evals.bench.duplex_jitter.__main__ import main
from parley.evals.bench.duplex_jitter.figures import WARM_UNITS, drift, lateness, left_out, spread
from parley.evals.bench.duplex_jitter.line import RATE_HZ, Line, Mock, hold

UNIT_MS = 80
TICK = Tick(0, 0, 0, 0, 0, 0, UNIT_MS, 0, 0, False, Vote.LISTEN, 0, "", 0)


def test_percentiles_are_those_of_the_times() -> None:
    found = spread([each * 1_000 for each in range(1, 101)])
    assert (found.p50, found.max, found.count) == (50.5, 100.0, 100)
    with pytest.raises(ValueError):
        spread([])


def test_the_beginning_of_a_line_is_left_out() -> None:
    ticks = [replace(TICK, late_us=9_000_000)] * WARM_UNITS + [replace(TICK, late_us=2_000)] * 10
    assert lateness([Line(ticks)]).max == 2.0


def test_units_that_are_not_taken_are_counted_and_the_backlog_is_in_units() -> None:
    ticks = [TICK] * WARM_UNITS + [replace(TICK, late_us=40_000, missed=1, left_out_ms=80)] * 4
    found = left_out([Line(ticks)], UNIT_MS)
    assert (found["missed_share"], found["backlog_units"], found["left_out_ms"]) == (0.5, 0.5, 320)


def test_a_voice_that_leaves_slower_than_time_drifts() -> None:
    samples = RATE_HZ // 50
    even = Line(pieces=[(n * 0.02, samples) for n in range(1_000)], made=1_000 * samples)
    assert drift(even, UNIT_MS).drift_ms == 0.0
    slow = Line(pieces=[(n * 0.02002, samples) for n in range(1_000)], made=1_000 * samples)
    assert drift(slow, UNIT_MS).drift_ms == pytest.approx(18.0, abs=0.1)
    lost = replace(even, made=1_100 * samples)
    assert drift(lost, UNIT_MS).missing_samples == 100 * samples


def test_a_simulated_call_of_two_minutes_does_not_drift() -> None:
    mock = Mock(UNIT_MS, speaks=lambda _unit: True, sleeps=False)
    line = virtual_time.run(hold(mock, 120))
    found = drift(line, UNIT_MS)
    assert found.pieces >= 6_000 - 10
    assert (found.drift_ms, found.missing_samples, found.holes) == (0.0, 0, 0)
    assert lateness([line]).max == 0.0


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["jitter", "--sessions", "2", "--seconds", "1.5"], "late_ms"),
        (["finalize", "--seconds", "1.5"], "saved_p50_ms"),
        (["slow", "--seconds", "2"], "backlog_units"),
        (["drift", "--minutes", "0.5", "--virtual"], "drift_ms"),
    ],
)
def test_every_part_gives_figures(arguments: list[str], key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert key in json.loads(capsys.readouterr().out)


def test_a_log_of_ticks_is_read_and_what_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "call.jsonl"
    line = {"vote": "speak", "late_us": 1_000, "took_us": 2_000, "missed": 1, "said_ms": 80}
    log.write_text(json.dumps({"kind": "head", "engine": "two_tier"}) + "\n" + json.dumps(line) + "\n")
    assert main(["log", str(log)]) == 0
    [call] = json.loads(capsys.readouterr().out)["calls"]
    assert (call["votes"], call["missed"], call["said_s"]) == ({"speak": 1}, 1, 0.08)
    (tmp_path / "other.jsonl").write_text("{}\n")
    assert main(["log", str(tmp_path / "other.jsonl")]) == 2
