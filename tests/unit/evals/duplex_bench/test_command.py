"""The command: a run of the controls, and errors that the user can correct."""

import json
from pathlib import Path

import pytest
import soundfile

from parley.evals.duplex_bench.__main__ import main
from parley.evals.duplex_bench.hosts import BASELINES


def test_the_controls_are_always_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert main(["--part", "turn,pause", "--clips", "1", "--json", str(path), "--out", str(tmp_path)]) == 0
    result = json.loads(path.read_text())
    assert [each["name"] for each in result["systems"]] == list(BASELINES)
    of = {each["name"]: each for each in result["systems"]}
    assert (of["always_talk"]["turn_tor"], of["always_silent"]["turn_tor"]) == (1.0, 0.0)
    assert of["always_talk"]["turn_latency_ms"]["p50"] < -1_000 < 0 < of["timer"]["turn_latency_ms"]["p50"]
    assert "timer_1000" in capsys.readouterr().out
    stereo, rate_hz = soundfile.read(tmp_path / "always_talk" / "synthetic_turn_taking" / "01.wav")
    assert stereo.shape[1] == 2 and rate_hz == 16_000 and stereo.any(axis=0).all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "no/such/folder"], "there is no folder"),
        (["--engine", "nobody"], "unknown engine"),
        (["--part", "everything"], "unknown part"),
        (["--settings", "no/such.yaml"], "no/such.yaml"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--part", "turn", "--clips", "1", *arguments]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("error: ") and says in line and "\n" not in line


def test_a_folder_without_audio_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "candor_turn_taking" / "1").mkdir(parents=True)
    assert main(["--data", str(tmp_path)]) == 2
    assert "no clip" in capsys.readouterr().err


def test_settings_that_no_one_has_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("two_tier: {no_such: 1}\n")
    arguments = ["--engine", "two_tier", "--settings", str(path), "--part", "turn", "--clips", "1"]
    assert main(arguments) == 2
    assert "two_tier" in capsys.readouterr().err
