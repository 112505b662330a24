"""Errors that the user can correct: one line, exit code 2, and unchanged files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.evals.turns import frontier, yielding
from parley.evals.turns.callers import CallSpec

OLD = "what was there"


@pytest.mark.parametrize(
    "run",
    [
        lambda out: frontier.main(["--processes", "1", "--json", str(out)]),
        lambda out: yielding.main(["--processes", "1", "--policies", "words", "--json", str(out)]),
    ],
    ids=["frontier", "yielding"],
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


def test_a_set_of_one_kind_is_refused():
    with pytest.raises(ConfigError, match="0 ends"):
        frontier.of_set("people", [], CallSpec(), learn=False)
