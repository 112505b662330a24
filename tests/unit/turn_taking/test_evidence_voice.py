"""The end of a voice as one piece of evidence."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from turn_taking.endpointing import BoundarySettings
from turn_taking.evidence_tempo import Tempo
from turn_taking.evidence_voice import (
    USUAL_WEIGHT,
    CallerVoice,
    SignWeight,
    VoiceEnd,
    VoiceSigns,
    VoiceWeights,
    voice_log_odds,
)

WEIGHTS = VoiceWeights(usual_tempo=1.0)


def end(final: float = 1.0, whole: float = 1.0, moved: float | None = 0.0) -> VoiceEnd:
    return VoiceEnd(Tempo(final, whole), moved, -10.0)


def test_a_tempo_is_relative_to_the_caller_s_own():
    hasty, calm = CallerVoice(1.0), CallerVoice(1.0)
    for _ in range(40):
        hasty.on_voice_end(end(whole=1.5))
        calm.on_voice_end(end(whole=0.5))
    assert hasty.signs(end(final=1.0, whole=1.5)).tempo == pytest.approx(-0.5, abs=0.06)
    assert calm.signs(end(final=1.0, whole=0.5)).tempo == pytest.approx(0.5, abs=0.06)


def test_before_anything_was_heard_the_general_tempo_counts_beside_this_pause():
    signs = CallerVoice(1.0).signs(end(final=0.0, whole=2.0))
    assert signs.tempo == pytest.approx(-(USUAL_WEIGHT + 2.0) / (USUAL_WEIGHT + 1))


def test_looking_at_a_pause_twice_teaches_nothing():
    caller = CallerVoice(1.0)
    assert caller.signs(end(0.2, 2.0)) == caller.signs(end(0.2, 2.0))


@given(st.floats(-10, 10), st.floats(-10, 10))
def test_a_drawn_out_word_never_speaks_for_an_end_more_than_a_quick_one(one: float, other: float):
    slow, quick = sorted((one, other))
    odds = [voice_log_odds(VoiceSigns(tempo, 3.0, -10.0), WEIGHTS) for tempo in (slow, quick)]
    assert odds[0] <= odds[1]


def test_a_level_pitch_speaks_for_a_hold_and_a_fall_and_a_rise_for_an_end():
    caller = CallerVoice(1.0)
    level, fall, rise = (voice_log_odds(caller.signs(end(moved=by)), WEIGHTS) for by in (0.0, -5.0, 5.0))
    assert level < fall == rise


def test_a_voice_that_grows_softer_speaks_for_an_end():
    soft, loud = (voice_log_odds(VoiceSigns(None, None, db_s), WEIGHTS) for db_s in (-50.0, 0.0))
    assert soft > loud


def test_what_was_not_measured_says_nothing():
    assert voice_log_odds(None, WEIGHTS) == 0.0
    assert voice_log_odds(CallerVoice(1.0).signs(VoiceEnd(None, None, None)), WEIGHTS) == 0.0


def test_a_sign_counts_no_further_than_it_was_seen():
    sign = SignWeight(weight=2.0, neutral=0.0, lowest=-1.0, highest=3.0)
    assert [sign.log_odds(value) for value in (-9.0, -1.0, 0.0, 3.0, math.inf)] == [-2.0, -2.0, 0.0, 6.0, 6.0]


def test_the_end_of_the_pitch_counts_once():
    with pytest.raises(ValidationError, match="contour or voice"):
        BoundarySettings(contour=True, voice=True)
