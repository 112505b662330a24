"""``python -m evals.turns --audio`` through the engines that ship, in its smallest size."""

import json
from pathlib import Path

import pytest

from parley.evals.turns.__main__ import main
from parley.evals.turns.overlap_calls import OF_A_CALL

KEYS = {
    "name",
    "cut_in_rate",
    "endpoint_ms",
    "barge_in_recall",
    "barge_in_stop_ms",
    "false_yield_rate",
    "self_interruptions",
}

SHARED_BY = 6


def test_the_command_writes_the_same_keys_of_audio(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out.json"
    sizes = ["--audio-callers", "1", "--audio-turns", "2", "--replays", "1"]
    # One call of the six that share the sounds of a call: a sentence, a correction, a backchannel and an
    # echo.
    sizes += ["--tuning-callers", "2", "--overlap-calls", "1", "--overlap-shared-by", str(SHARED_BY)]
    assert main(["--audio", *sizes, "--processes", "4", "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["kind"] == written["barge_in"]["kind"] == "audio"
    rows = {row["name"]: row for row in written["policies"]}
    learning = {"boundary-words-learning", "boundary-voice-words-learning"}
    assert {"always-talk", "always-silent", "timer-600", "bound"} | learning <= set(rows)
    assert all(KEYS <= set(row) for row in rows.values())
    assert all(set(row["endpoint_ms"]) == {"p50", "p95", "mean"} for row in rows.values())
    assert all(set(row["barge_in_stop_ms"]) == {"p50", "p95"} for row in rows.values())
    assert {"policy", "cut_in_rate", "mean_ms"} == set(written["frontier"][0])
    # A policy that yields to any voice yields to every interruption; one that never yields yields to none.
    assert rows["timer-600"]["barge_in_recall"] == 1.0
    assert rows["always-talk"]["barge_in_recall"] == 0.0
    assert written["barge_in"]["sounds"] == {sound.value: 1 for sound in OF_A_CALL[::SHARED_BY]}
    assert "audio" in capsys.readouterr().out
