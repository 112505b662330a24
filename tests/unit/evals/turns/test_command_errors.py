"""Errors that the user can correct: one line, exit code 2, and unchanged files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.evals.turns import __main__ as turns
from parley.evals.turns import frontier, yielding
from parley.evals.turns.callers import CallSpec

OLD = "what was there"


@pytest.mark.parametrize(
    "run",
    [
        lambda out: frontier.main(["--processes", "1", "--json", str(out)]),
        lambda out: yielding.main(["--processes", "1", "--policies", "words", "--json", str(out)]),
        lambda out: turns.main(["--processes", "1", "--speech", "human", "--json", str(out)]),
    ],
    ids=["frontier", "yielding", "turns"],
)
def test_recordings_that_were_not_fetched_are_named(
    run: Callable[[Path], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("PARLEY_HUMAN_SPEECH", str(tmp_path / "empty"))
    out = tmp_path / "out"
    out.write_text(OLD)
    assert run(out) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and "evals.human fetch" in line
    assert out.read_text() == OLD


def test_recorded_people_are_refused_where_the_calls_are_real(capsys: pytest.CaptureFixture[str]):
    assert turns.main(["--webrtc", "--speech", "human"]) == 2
    assert "leave --webrtc out" in capsys.readouterr().err.splitlines()[-1]


def test_the_figures_of_people_have_a_row_for_each_kind_of_speech():
    rate = {"share": 0.5, "of": 2}
    times = {"p50": 300, "p95": 400}
    row = {"recall": rate, "false": rate, "decided_ms": times, "ducked_ms": times, "kinds": {"echo": rate}}
    printed = turns.table({"kind": "people", "yielding": {"words": {"people": row, "generated": row}}})
    assert [line.split()[:2] for line in printed.splitlines()[1:]] == [
        ["words", "people"],
        ["words", "generated"],
    ]


def test_a_set_of_one_kind_is_refused():
    with pytest.raises(ConfigError, match="0 ends"):
        frontier.of_set("people", [], CallSpec(), learn=False)
