"""The end of a voice as one kind of evidence."""

import pytest

from parley.turn_taking.endpointing.evidence_tempo import Tempo
from parley.turn_taking.endpointing.evidence_voice import USUAL_WEIGHT, CallerVoiceAverage, VoiceEnd


def end(final: float = 1.0, whole: float = 1.0, moved: float | None = 0.0) -> VoiceEnd:
    return VoiceEnd(Tempo(final, whole), moved, -10.0)


def test_a_tempo_is_relative_to_the_caller_s_own():
    hasty, calm = CallerVoiceAverage(1.0), CallerVoiceAverage(1.0)
    for _ in range(40):
        hasty.on_voice_end(end(whole=1.5))
        calm.on_voice_end(end(whole=0.5))
    assert hasty.signs(end(final=1.0, whole=1.5)).tempo == pytest.approx(-0.5, abs=0.06)
    assert calm.signs(end(final=1.0, whole=0.5)).tempo == pytest.approx(0.5, abs=0.06)


def test_before_anything_was_heard_the_general_tempo_counts_alongside_this_pause():
    signs = CallerVoiceAverage(1.0).signs(end(final=0.0, whole=2.0))
    assert signs.tempo == pytest.approx(-(USUAL_WEIGHT + 2.0) / (USUAL_WEIGHT + 1))


def test_looking_at_a_pause_twice_teaches_nothing():
    caller = CallerVoiceAverage(1.0)
    assert caller.signs(end(0.2, 2.0)) == caller.signs(end(0.2, 2.0))
