"""The caller's usual level."""

import pytest

from parley.turn_taking.barge_in.speaker_level import LEAST_MS, VOICES, SpeakerLevel


def test_nothing_is_usual_before_the_first_voice() -> None:
    usual = SpeakerLevel()
    assert usual.above_usual_db(-20.0) is None
    usual.learn(-20.0, voiced_ms=LEAST_MS - 1)
    assert usual.above_usual_db(-20.0) is None


def test_a_voice_is_told_alongside_what_is_usual() -> None:
    usual = SpeakerLevel()
    usual.learn(-24.0, voiced_ms=2_000)
    assert usual.above_usual_db(-42.0) == -18.0
    assert usual.above_usual_db(-20.0) == 4.0


def test_soft_voices_between_the_turns_do_not_become_usual() -> None:
    usual = SpeakerLevel()
    for level_db in (-24.0, -44.0, -23.0, -45.0, -25.0, -43.0):
        usual.learn(level_db, voiced_ms=1_500)
    assert usual.above_usual_db(-44.0) == pytest.approx(-20.0, abs=1.0)


def test_who_goes_further_away_is_usual_there_after_a_while() -> None:
    usual = SpeakerLevel()
    for _ in range(VOICES):
        usual.learn(-20.0, voiced_ms=1_000)
    for _ in range(VOICES):
        usual.learn(-40.0, voiced_ms=1_000)
    assert usual.above_usual_db(-40.0) == 0.0
