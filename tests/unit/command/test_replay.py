"""Commands for a replay that are refused before an engine is loaded."""

import uuid

import pytest

from parley.command.bot_line import main


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
    assert error.startswith("bot.py: --replay: ") and error.count("\n") == 1
