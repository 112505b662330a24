"""Errors that the user can correct: one line, exit code 2, and unchanged files."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.core.errors import AgentError, ConfigError
from parley.evals.turns import audio, frontier, heard, looks, predictor, yielding
from parley.evals.turns.callers import CallSpec, ScriptedCall, generate
from parley.evals.turns.overlap_calls import Sound
from parley.turn_taking.endpointing.end_predictor import EndPredictor

SPEC = CallSpec(callers=4, turns=4, looks_ms=heard.LOOKS_MS)
OLD = "what was there"


@pytest.fixture
def nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_HUMAN_SPEECH", str(tmp_path / "empty"))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.usefixtures("nothing_fetched")
@pytest.mark.parametrize(
    "run",
    [
        lambda out: frontier.main(["--processes", "1", "--json", str(out)]),
        lambda out: looks.main(["--calls", "1", "--processes", "1", "--write", str(out)]),
        lambda out: predictor.main(["--keep", str(out.parent / "kept"), "--out", str(out)]),
        lambda out: yielding.main(["--processes", "1", "--policies", "words", "--json", str(out)]),
    ],
    ids=["frontier", "looks", "predictor", "yielding"],
)
def test_recordings_that_were_not_fetched_are_named(
    run: Callable[[Path], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    out.write_text(OLD)
    assert run(out) == 2
    assert "evals.human fetch" in one_line(capsys)
    assert out.read_text() == OLD


def test_weights_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    # The default folder of models is below the working directory.
    monkeypatch.chdir(tmp_path)
    assert looks.main(["--calls", "1", "--processes", "1"]) == 2
    assert "moonshine" in one_line(capsys)


def test_a_file_of_voices_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    voices = tmp_path / "voices.npz"
    voices.write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="voices"):
        looks.load(voices)


def test_a_set_of_one_kind_is_refused():
    window = looks.VoiceWindow(Sound.SENTENCE, "a", True, "", 40, 800, np.zeros(4, np.int16))
    with pytest.raises(ConfigError, match="too few"):
        looks.require_both([window] * 9)
    with pytest.raises(ConfigError, match="too few"):
        looks.require_both([])
    with pytest.raises(ConfigError, match="too few"):
        predictor.fit([])
    ends = [row for row in predictor.rows(generate(SPEC, 5)) if row.end]
    with pytest.raises(ConfigError, match="0 at holds"):
        predictor.fit(ends)
    with pytest.raises(ConfigError, match="0 ends"):
        frontier._of_set("tuning: people", [], SPEC, learn=False)


@pytest.mark.parametrize("damage", [lambda text: text[:-200], lambda text: "{}", lambda text: "[1]"])
def test_what_was_kept_and_is_damaged_is_named(damage: Callable[[str], str], tmp_path: Path):
    script: list[ScriptedCall] = list(generate(SPEC, 5))
    path = tmp_path / "kept.json"
    audio.save(path, script, audio.Lags((200,), 0, 1, 0, 1))
    assert len(audio.load(path, script)[0]) == SPEC.callers
    path.write_text(damage(path.read_text()))
    with pytest.raises(ConfigError, match=r"kept\.json .*measure it again"):
        audio.load(path, script)


def figures(predicted: float, score: float) -> dict[str, dict[str, Any]]:
    areas = {"predictor": predicted, "smart_turn": score}
    return {"even callers": {f"area_{look_ms}_ms": areas for look_ms in heard.LOOKS_MS}}


def test_weights_that_are_worth_nothing_are_not_written(tmp_path: Path):
    good = EndPredictor({"score": 1.0})
    predictor.check(good, figures(0.87, 0.82))
    with pytest.raises(AgentError, match="nothing is written"):
        predictor.check(EndPredictor({"score": math.nan}), figures(0.87, 0.82))
    for predicted in (0.82, 0.5, math.nan):
        with pytest.raises(AgentError, match="nothing is written"):
            predictor.check(good, figures(predicted, 0.82))
    lines = tmp_path / "lines.npz"
    lines.write_text(OLD)
    # More than half a precision holds.
    with pytest.raises(AgentError, match="nothing is written"):
        looks.write(lines, [(np.full(3, 1e6), 0.0)], "digest")
    assert lines.read_text() == OLD


def test_the_committed_weights_are_those_that_the_command_writes(tmp_path: Path):
    out = tmp_path / "weights.json"
    assert predictor.main(["--processes", "1", "--out", str(out)]) == 0
    written = json.loads(out.read_text())["weights"]
    committed = json.loads(predictor.WEIGHTS.read_text())["weights"]
    assert written == pytest.approx(committed, abs=1e-3)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.json"]
