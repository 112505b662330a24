"""Short runs of the telephone evaluation: real calls, whole reports."""

from pathlib import Path
from typing import Any

import pytest

from tests.peers.eval_command import report_of

SYSTEMS = ("parley", "parley_faked", "line", "stock")


async def report(folder: Path, *arguments: str) -> dict[str, Any]:
    found, _ = await report_of("phone", folder, "--greeting", "Hello there.", *arguments)
    assert found["machine"]["cpus"] and found["target"]
    return found


async def test_a_call_is_answered_without_a_violation(tmp_path: Path):
    found = await report(tmp_path, "calls", "--count", "1")
    assert (found["reached"], found["calls"], found["answered"]) == (True, 1, 1), found
    assert found["violations"] == {"server": 0, "caller": 0, "examples": []}
    assert found["voice_to_voice_ms"]["count"] == 1
    assert 50 < found["voice_to_voice_ms"]["p50"] < 8_000
    assert found["per_call"][0]["heard_as"] == "what are your opening hours on saturday"
    marks = found["marks"]
    assert marks["sent"] >= marks["echoed"] >= 4


@pytest.mark.alone
@pytest.mark.slow
async def test_the_session_says_what_interrupted_callers_heard(tmp_path: Path):
    found = await report(tmp_path, "interruptions", "--count", "1", "--per-call", "2")
    assert (found["interruptions"], found["without_record"]) == (1, 0), found
    assert found["attempts"] == 1 + found["surplus"] + sum(found["left_out"].values())
    judged = [one for one in found["per_interruption"] if one["word_error"] is not None]
    assert judged, found
    assert all(abs(one["word_error"]) <= 1 and one["heard_words"] > 0 for one in judged), judged
    assert found["clear_ms"]["count"] == 1
    # A busy machine is late; a clear that is not caused by the decision would be seconds off.
    assert 0 <= found["clear_ms"]["p50"] < 100
    assert found["late_packets"] == 0
    assert found["violations"] == {"server": 0, "caller": 0}


@pytest.mark.slow
async def test_a_bad_line_loses_packets_and_no_call(tmp_path: Path):
    found = await report(tmp_path, "bad_line", "--turns", "1", "--per-call", "1")
    assert found["complete"] == {"clean": [1, 1], "bad": [1, 1]}, found
    assert 1 < found["packets"]["lost_percent"] < 12
    assert found["heard"]["clean"] == 1, found
    assert found["answered"] == {"clean": 1, "bad": 1}, found
    [turn] = found["per_turn"]
    assert turn["clean"] == turn["asked"] == "what are your opening hours on saturday"
    assert turn["bad"], found
    assert found["violations"] == {"server": 0, "caller": 0}


@pytest.mark.slow
async def test_holes_are_filled_in_every_way_on_the_same_line(tmp_path: Path):
    found = await report(tmp_path, "concealment", "--draws", "1", "--questions", "2", "--loss-percent", "20")
    assert list(found["methods"]) == ["parley", "last_piece", "silence"]
    assert found["turns"]["asked"] == 4
    assert found["turns"]["heard_on_the_clean_line"] >= 2, found
    # A fifth of the speech is missing.
    assert found["methods"]["silence"]["words_lost_percent"] > 0, found


@pytest.mark.alone
@pytest.mark.slow
async def test_every_system_plays_to_many_callers(tmp_path: Path):
    found = await report(tmp_path, "load", "--calls", "2", "--seconds", "2", "--systems", *SYSTEMS)
    systems = found["systems"]
    assert list(systems) == list(SYSTEMS)
    for name, system in systems.items():
        assert (system["held"], system["refused"]) == (2, []), (name, system)
        assert 95 < system["audio_percent"]["p50"] < 105, (name, system)
        # Two callers for two seconds, in packets of 20 ms; stock Pipecat's have 40 ms.
        assert system["packets"] >= (80 if name == "stock" else 160), (name, system)
        assert system["pacing_error_ms"]["count"] == system["packets"]
        assert 0 < system["cpu_percent_per_call"] < 60, (name, system)
    # Only this product's line returns marks.
    assert [name for name, system in systems.items() if system["marks"]] == ["parley", "parley_faked", "line"]
