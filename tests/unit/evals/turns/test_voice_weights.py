"""Weights of the end of a voice for the baselines."""

import math

from hypothesis import given
from hypothesis import strategies as st

from parley.evals.turns.evidence import SignWeight, VoiceWeights, voice_log_odds
from parley.turn_taking.endpointing.evidence_tempo import Tempo
from parley.turn_taking.endpointing.evidence_voice import CallerVoiceAverage, VoiceEnd, VoiceSigns

WEIGHTS = VoiceWeights()


def end(final: float = 1.0, whole: float = 1.0, moved: float | None = 0.0) -> VoiceEnd:
    return VoiceEnd(Tempo(final, whole), moved, -10.0)


@given(st.floats(-10, 10), st.floats(-10, 10))
def test_a_drawn_out_word_never_speaks_for_an_end_more_than_a_quick_one(one: float, other: float):
    slow, quick = sorted((one, other))
    odds = [voice_log_odds(VoiceSigns(tempo, 3.0, -10.0), WEIGHTS) for tempo in (slow, quick)]
    assert odds[0] <= odds[1]


def test_a_level_pitch_speaks_for_a_hold_and_a_fall_and_a_rise_for_an_end():
    caller = CallerVoiceAverage(1.0)
    level, fall, rise = (voice_log_odds(caller.signs(end(moved=by)), WEIGHTS) for by in (0.0, -5.0, 5.0))
    assert level < fall == rise


def test_a_voice_that_grows_softer_speaks_for_an_end():
    soft, loud = (voice_log_odds(VoiceSigns(None, None, db_s), WEIGHTS) for db_s in (-50.0, 0.0))
    assert soft > loud


def test_what_was_not_measured_says_nothing():
    assert voice_log_odds(None, WEIGHTS) == 0.0
    assert voice_log_odds(CallerVoiceAverage(1.0).signs(VoiceEnd(None, None, None)), WEIGHTS) == 0.0


def test_a_sign_counts_no_further_than_it_was_seen():
    sign = SignWeight(weight=2.0, neutral=0.0, lowest=-1.0, highest=3.0)
    assert [sign.log_odds(value) for value in (-9.0, -1.0, 0.0, 3.0, math.inf)] == [-2.0, -2.0, 0.0, 6.0, 6.0]
