import json
from pathlib import Path

import pytest

from parley.evals.bench.session_store import main


def test_a_short_run_gives_figures_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    folder = tmp_path / "out"
    arguments = ["--writers", "3", "--seconds", "0.2", "--json", str(figures), "--out-dir", str(folder)]
    assert main(arguments) == 0
    result = json.loads(figures.read_text())
    [row] = result["results"]
    assert (row["database"], row["writers"]) == ("sqlite", 3)
    assert row["appends"] > 3 and row["appends_per_s"] > 0
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert "| sqlite | 3 |" in capsys.readouterr().out
    assert list(folder.iterdir()) == []


def test_a_store_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", f"sqlite:///{tmp_path}", "--out-dir", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
