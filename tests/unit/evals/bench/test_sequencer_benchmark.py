"""The benchmark of the sequencer: its traffic, its checks, and one short run with all promises checked."""

import json
from itertools import islice
from pathlib import Path

import pytest

from parley.evals.bench.sequencer.__main__ import main
from parley.evals.bench.sequencer.bench import Checks, WrongOrderError, measure
from parley.evals.bench.sequencer.traffic import LATENCY_US, Mix, ticks
from parley.sequencer.merge import Committed

EVENTS = 100_000


def test_100_000_events_of_five_streams_keep_every_promise() -> None:
    # More stragglers than by default: a revision has an event time of its own, so few others come too late.
    figures = measure(EVENTS, Mix(stragglers=0.03), seed=7)
    counts = figures["counts"]
    assert figures["events"] == EVENTS
    assert figures["delay_us"]["max"] <= figures["delay_us"]["bound"] == 210_000
    assert counts["committed"] + counts["superseded"] + counts["duplicates"] == EVENTS
    # The traffic is disordered enough to exercise the promises.
    assert min(counts["late"], counts["superseded"], counts["duplicates"], figures["tardy"]) > 50
    # Events wait only within the bound, whatever the length of the run.
    assert figures["longest_waiting"] < 200


def test_the_same_seed_gives_the_same_figures() -> None:
    first, second = (measure(5_000, Mix(), seed=3) for _ in range(2))
    for key in ("counts", "delay_us", "tardy", "advances"):
        assert first[key] == second[key]


def test_traffic_arrives_in_order_within_its_tick_from_every_stream() -> None:
    seen: set[str] = set()
    before_us = 0
    for now_us, batch in islice(ticks(2_000, Mix(), 1), 300):
        for spoken in batch:
            assert before_us <= spoken.arrival_us <= now_us
            before_us = spoken.arrival_us
            seen.add(spoken.stream)
    assert seen == set(LATENCY_US)


def committed(seq: int, event_us: int, *, arrival_us: int, late: bool = False) -> Committed[int]:
    return Committed(seq, seq, "text", event_us, arrival_us, 0, None, 0, True, late)


@pytest.mark.parametrize(
    ("now_us", "second", "fault"),
    [
        (1_000, committed(2, 900, arrival_us=900), "expected number 1"),
        (1_000, committed(1, 799, arrival_us=900), "out of order"),
        (1_000, committed(1, 801, arrival_us=995, late=True), "marked late"),
        (1_000, committed(1, 700, arrival_us=989, late=True), "waited more than a tick"),
        (1_300, committed(1, 900, arrival_us=1_289), "waited more than a tick"),
        (1_111, committed(1, 900, arrival_us=1_000), "took 211 us"),
    ],
)
def test_a_broken_promise_is_found(now_us: int, second: Committed[int], fault: str) -> None:
    checks = Checks(slowest_us=200, tick_us=10)
    checks.see(800, [committed(0, 800, arrival_us=800)])
    with pytest.raises(WrongOrderError, match=fault):
        checks.see(now_us, [second])


def test_the_command_writes_the_figures_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert main(["--events", "2000", "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert result["dense"]["events"] == 2_000
    assert set(result["dense"]["rss_bytes"]) == {"200", "2000"}
    assert f"| dense | 2,000 | {result['dense']['events_per_s']:,} |" in capsys.readouterr().out


def test_a_path_that_cannot_be_written_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--events", "100", "--json", str(tmp_path / "no" / "out.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
