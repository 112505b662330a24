"""Commands for a replay that are refused before an engine is loaded, and where a recording begins."""

import uuid

import pytest

from parley.command.bot_line import main
from parley.command.main import main as parley
from parley.command.replay import FirstAudio, first_audio_of
from parley.recording.timeline import RecordedTimeline


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
