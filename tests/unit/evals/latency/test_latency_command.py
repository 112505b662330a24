"""The command line and its output files."""

import json
from pathlib import Path

import pytest

from parley.evals.harness.launcher import SYSTEMS, command, free_port
from parley.evals.latency import report
from parley.evals.latency.__main__ import main
from parley.evals.latency.figures import TurnFigures, summary

SPANS = {"network_in": 100_000, "endpoint_wait": 300_000, "network_out": 90_000}


def result() -> dict[str, object]:
    turns = [
        TurnFigures("q", 0, 495_000, False, False, SPANS, 80_000),
        TurnFigures("q", 300, None, True, False),
    ]
    stock = [TurnFigures("q", 0, 1_200_000, False, False)]
    return {**summary(turns), "baseline": summary(stock), "ratio_p50": 0.41}


def test_unreachable_server_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["--turns", "1", "--url", url]) == 2
    assert capsys.readouterr().err == f"error: no healthy server at {url}\n"


def test_missing_configuration_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "configs/nowhere.yaml"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "path", "says"),
    [
        ("--json", "a/folder", "a/folder"),
        ("--table", "file.txt/table.md", "file.txt"),
        ("--waterfall", "picture.txt", "not a picture (known: .png, .svg, .pdf)"),
    ],
)
def test_a_result_that_cannot_be_written_is_said_before_anything_is_measured(
    flag: str, path: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a" / "folder").mkdir(parents=True)
    (tmp_path / "file.txt").write_text("kept")
    out = tmp_path / "out"
    assert main(["--turns", "1", "--out-dir", str(out), flag, str(tmp_path / path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and says in error
    assert not out.exists() and (tmp_path / "file.txt").read_text() == "kept"


@pytest.mark.parametrize(
    "bad",
    [["--turns", "0"], ["--warmup", "-1"], ["--baseline", "other"], ["--capacity", "--call-start"]],
)
def test_wrong_arguments_end_with_status_2(bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(bad)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_both_systems_get_the_same_configuration() -> None:
    ours, stock = (
        command(SYSTEMS[system], 81, "--config", "configs/a.yaml") for system in ("parley", "stock")
    )
    assert ours[1:] == ["bot.py", "--config", "configs/a.yaml", "--port", "81"]
    assert stock[1:] == ["-m", "parley.evals.latency.stock", "--config", "configs/a.yaml", "--port", "81"]


def test_table_shows_percentiles_cut_ins_and_spans() -> None:
    table = report.latency_table(result())
    assert "| Parley | 2 | 495 | 495 | 495 | 1 of 2 (1 of 1 with a pause) | 0 |" in table
    assert "| stock Pipecat | 1 | 1200 | 1200 | 1200 |" in table
    assert "p50 is 0.41 of the stock pipeline's." in table
    assert "| endpoint wait | 300.0 |" in table
    assert "| sum | 495.0 |" in table


def test_waterfall_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "waterfall.png"
    report.waterfall(json.loads(json.dumps(result())), path)
    assert path.read_bytes().startswith(b"\x89PNG")
