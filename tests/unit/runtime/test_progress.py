import pytest

from parley.runtime.progress import Progress, printable


def test_without_a_terminal_each_step_is_a_line_and_notes_are_left_out(capsys: pytest.CaptureFixture[str]):
    progress = Progress("read", 2)
    progress.note("half of a")
    progress.step("a")
    progress.step()
    assert capsys.readouterr().err == "read: 1 of 2, a\nread: 2 of 2\n"


def test_a_name_cannot_command_the_terminal():
    assert printable("a\x1b[2J\n\tü.wav") == "a?[2J??ü.wav"
