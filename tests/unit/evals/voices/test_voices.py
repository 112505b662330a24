import json

import pytest

from parley.core.errors import AgentError
from parley.evals.voices.__main__ import main, measure
from parley.models.tts.espeak import EspeakTts


def test_the_command_reports_each_voice(tmp_path, capsys):
    assert main(["--runs", "2", "--engine", "espeak", "--json", str(tmp_path / "out.json")]) == 0
    figures = json.loads((tmp_path / "out.json").read_text())["engines"]["espeak"]
    assert figures["runs"] == 2
    assert 0 < figures["first_audio_ms"]["p50"] <= figures["whole_ms"]["p50"]
    assert 1_000 < figures["spoken_ms"] < 10_000
    assert "| espeak | 2 |" in capsys.readouterr().out


def test_a_clause_without_sound_is_an_error_of_one_line(capsys):
    with pytest.raises(AgentError, match="produced no audio"):
        measure(EspeakTts(), "...", 1)
    assert main(["--runs", "1", "--engine", "espeak", "--text", "..."]) == 2
    assert capsys.readouterr().err.count("\n") == 1
