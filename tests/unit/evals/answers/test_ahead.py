"""The instrument that measures the search while the caller speaks."""

import json
from pathlib import Path

from parley.evals.answers.ahead import PAUSE_S, given_on, main


def test_words_are_given_on_as_often_as_in_a_call_and_in_the_pause():
    # Slower than four times a second: each word by itself.
    assert given_on(3, 2.0) == [(0.5, 1), (1.0, 2), (1.5, 3)]
    moments = given_on(8, 8.0)
    assert moments == [(0.125, 1), (0.375, 2), (0.625, 4), (0.875, 6), (1.125, 8)]
    # The pause comes before the next interval.
    assert given_on(7, 8.0)[-1] == (7 / 8 + PAUSE_S, 7)


def test_a_short_run_measures_both(tmp_path: Path):
    arguments = [
        "--set",
        "tuning",
        "--words-per-s",
        "20",
        "--silence-ms",
        "400",
        "--differs",
        "0",
        "--turns",
        "4",
    ]
    assert main([*arguments, "--json", str(tmp_path / "figures.json")]) == 0
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert rows["without"]["searches_per_turn"] == 1.0
    assert rows["ahead"]["end_to_request_ms"]["p50"] < rows["without"]["end_to_request_ms"]["p50"]
