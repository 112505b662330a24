"""Commands for a replay that are refused before an engine is loaded, and where a recording begins."""

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.command.bot_line import main
from parley.command.file_call import FILE
from parley.command.main import main as parley
from parley.command.replay import (
    FirstAudio,
    delays_of,
    echo_notes,
    first_audio_of,
    mode_of,
    pauses_of,
    row_of,
    until_typed,
)
from parley.pipelines.modes import CASCADE, DUPLEX, REALTIME
from parley.recording.call_files import CallFiles
from parley.recording.folder import TIMELINE, CallRecording
from parley.recording.heard_audio import HeardAudio
from parley.recording.timeline import RecordedTimeline
from parley.recording.typed import TypedTurn


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--transport", "file"), "--replay holds its own call: leave out --transport"),
        (("--mode", "text"), "--replay holds calls"),
        (("--port", "1"), "leave out --port"),
        (("--print-config",), "leave out --replay"),
    ],
)
def test_flags_that_do_not_belong_to_a_replay_are_refused(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], reason: str
):
    assert main(["--replay", "x", *flags]) == 2
    assert reason in capsys.readouterr().err


def test_hearing_again_belongs_to_a_replay(capsys: pytest.CaptureFixture[str]):
    assert main(["--hear-again"]) == 2
    assert "--hear-again can only be used with --replay" in capsys.readouterr().err


@pytest.mark.parametrize("session", [str(uuid.UUID(int=1)), "..", "x"])
def test_a_session_without_recordings_is_one_line(capsys: pytest.CaptureFixture[str], session: str):
    assert main(["--replay", session]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bot.py: ") and error.count("\n") == 1
    assert parley(["replay", session]) == 2
    assert capsys.readouterr().err == error.replace("bot.py: ", "parley replay: ")
    assert "--replay" not in error


def timeline(first_sample: int, arrival_ms: int) -> RecordedTimeline:
    """Return the timeline of a caller who arrives then, with audio of 16 kHz from that sample on."""
    return RecordedTimeline.model_validate(
        {
            "user_audio": {"rate_hz": 16_000, "first_sample": first_sample, "first_piece": 320},
            "events": [{"at_ms": arrival_ms, "event": "CallerJoined"}],
        }
    )


def test_audio_that_came_with_the_caller_is_held_from_its_first_sample():
    assert first_audio_of(timeline(1_600, 40)) == FirstAudio(1_600, 320, after_ms=60, left_out_ms=0)


@pytest.mark.parametrize(
    ("arrival_ms", "left_out_ms", "after_ms"), [(101, 160, 159), (260, 160, 0), (261, 320, 159)]
)
def test_windows_lie_where_they_lay_when_audio_from_before_the_arrival_is_left_out(
    arrival_ms: int, left_out_ms: int, after_ms: int
):
    found = first_audio_of(timeline(1_600, arrival_ms))
    assert found == FirstAudio(1_600 + left_out_ms * 16, 320, after_ms, left_out_ms)
    # Windows of voice activity, frames of echo control, pieces of the caller.
    assert all((found.sample - 1_600) % samples == 0 for samples in (512, 160, 320))


@pytest.mark.parametrize(
    ("recorded", "votes", "mode"),
    [
        (CASCADE, False, CASCADE),
        (DUPLEX, True, DUPLEX),
        # A service decides by itself: it has no votes.
        (REALTIME, False, DUPLEX),
        # Recordings of earlier releases, and one that says something else.
        (None, True, DUPLEX),
        (None, False, CASCADE),
        ("other", True, DUPLEX),
    ],
)
def test_a_call_is_held_again_in_its_own_mode(tmp_path: Path, recorded: str | None, votes: bool, mode: str):
    events = [{"at_ms": 5, "event": "VoteChanged"}] if votes else []
    (tmp_path / TIMELINE).write_text(json.dumps({"events": events}))
    meta = {} if recorded is None else {"mode": recorded}
    assert mode_of(CallRecording(tmp_path, "s", "c", meta, CallFiles(tmp_path))) == mode


def test_a_call_goes_on_until_the_last_text_is_typed():
    beginning, second = FirstAudio(0, 320, after_ms=500, left_out_ms=0), bytes(32_000)
    assert until_typed(second, beginning, ()) == second
    assert until_typed(second, beginning, (TypedTurn(1_400, "a"),)) == second
    assert until_typed(second, beginning, (TypedTurn(2_500, "a"),)) == second + second


@pytest.mark.parametrize(
    ("transport", "row"),
    [
        ("webrtc", "webrtc"),
        ("phone", "twilio"),
        ("local", "local"),
        ("file", FILE),
        # What was played in a room is not known, and a socket is named by the dialect of its client.
        ("daily", FILE),
        ("openai_realtime", FILE),
        ("", FILE),
        (None, FILE),
    ],
)
def test_a_call_has_the_capabilities_of_its_transport(transport: object, row: str):
    assert row_of(transport) == row


def test_pauses_and_delays_are_those_of_the_recorded_caller():
    beginning = FirstAudio(1_600, 320, after_ms=0, left_out_ms=0)
    heard = HeardAudio(np.zeros(9_000, np.float32), ((800, 16_000), (3_200, 8_000)))
    assert pauses_of(heard, beginning) == [(1_600, 500)]
    events = [
        {"at_ms": 10, "event": "ClientDelayReported", "delay_ms": 40},
        {"at_ms": 40, "event": "CallerJoined"},
        {"at_ms": 2_040, "event": "ClientDelayReported", "delay_ms": 90},
        {"at_ms": 3_000, "event": "ClientDelayReported", "delay_ms": "late"},
    ]
    assert delays_of(RecordedTimeline(events=events)) == [(0, 40), (2_000, 90)]


WEBRTC = {"name": "webrtc", "settings": {}}


@pytest.mark.parametrize(
    ("then", "now", "change"),
    [
        ({"echo_control": WEBRTC}, {"echo_control": WEBRTC}, None),
        ({"echo_control": None}, {"echo_control": None}, None),
        # Of an earlier release.
        ({}, {"echo_control": WEBRTC}, None),
        ({"echo_control": WEBRTC}, {"echo_control": None}, "webrtc then and none now"),
        ({"echo_control": None}, {"echo_control": WEBRTC}, "none then and webrtc now"),
        (
            {"echo_control": {"name": "webrtc", "settings": {"a": 1}}},
            {"echo_control": WEBRTC},
            "webrtc with other settings",
        ),
    ],
)
def test_a_replay_says_that_its_echo_control_differs(
    then: dict[str, Any], now: dict[str, Any], change: str | None
):
    notes = list(echo_notes(then, now))
    assert len(notes) == (change is not None)
    assert all(note.endswith(str(change)) for note in notes)
