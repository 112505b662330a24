"""``python -m evals.turns`` through the engines that ship, in its smallest size."""

import json
from pathlib import Path

import pytest

from parley.evals.turns.__main__ import main
from parley.evals.turns.overlap_calls import OF_A_CALL

KEYS = {"barge_in_recall", "barge_in_stop_ms", "false_yield_rate", "self_interruptions"}
SHARED_BY = 6


@pytest.mark.slow
def test_the_command_writes_the_figures_of_every_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out.json"
    # One call of the six that share the sounds of a call: a sentence, a correction, a backchannel and an
    # echo.
    sizes = ["--overlap-calls", "1", "--overlap-shared-by", str(SHARED_BY)]
    assert main([*sizes, "--processes", "4", "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    judged = written["barge_in"]
    assert written["kind"] == judged["kind"] == "audio"
    rows = judged["policies"]
    assert all(KEYS <= set(row) for row in rows.values())
    assert all(set(row["barge_in_stop_ms"]) == {"p50", "p95"} for row in rows.values())
    # A policy that yields to any voice yields to every interruption; one that never yields yields to none.
    assert rows["voice-0"]["barge_in_recall"] == 1.0
    assert rows["never"]["barge_in_recall"] == 0.0
    assert judged["sounds"] == {sound.value: 1 for sound in OF_A_CALL[::SHARED_BY]}
    assert "barge-in-stop-words" in capsys.readouterr().out
