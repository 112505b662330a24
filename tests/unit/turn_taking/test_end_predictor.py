"""The predictor's estimates from the signs of a pause, and the weights that ship."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.turn_taking.endpointing.end_predictor import (
    EndPredictor,
    PauseSigns,
    other_signals,
    shipped_predictor,
    sound_signals,
)
from parley.turn_taking.endpointing.evidence_voice import VoiceSigns


def test_signals_are_weighed_and_those_without_a_weight_say_nothing():
    signs = PauseSigns("what are your", completeness=0.5, looked_ms=160)
    assert EndPredictor({}).end_log_odds(signs) == 0
    weighed = EndPredictor({"cue_hanging": -2.0, "score_known": 0.5, "tempo": 9.0})
    assert weighed.sound_log_odds(signs) == 0.5
    assert weighed.other_log_odds(signs) == -2.0
    assert weighed.end_log_odds(signs) == -1.5


def test_an_early_look_and_a_late_one_are_weighed_apart():
    early, late = (sound_signals(PauseSigns(completeness=0.9, looked_ms=ms)) for ms in (160, 480))
    assert not early.keys() & late.keys()
    assert early["score"] == late["late_score"] == pytest.approx(math.log(9))


def test_a_word_that_was_hardly_understood_says_nothing():
    assert other_signals(PauseSigns("what are your", last_word_confidence=0.05)) == {}
    assert other_signals(PauseSigns("")) == {}


def test_the_end_of_a_voice_is_believed_only_so_far():
    wild = VoiceSigns(tempo=-50.0, movement_semitones=90.0, loudness_db_s=900.0)
    signals = other_signals(PauseSigns(voice=wild))
    assert max(abs(value) for value in signals.values()) <= 5.0
    assert other_signals(PauseSigns(voice=VoiceSigns(None, None, None))) == {}


def test_a_voice_that_has_no_weight_is_not_measured():
    assert not EndPredictor({"score": 1.0, "tempo": 0.0}).uses_voice_end
    assert EndPredictor({"tempo": 0.1}).uses_voice_end


@given(one=st.floats(0, 1), other=st.floats(0, 1), looked_ms=st.sampled_from([160, 400]))
def test_the_weights_that_ship_believe_a_more_complete_sound_more(one: float, other: float, looked_ms: int):
    low, high = sorted((one, other))
    odds = [
        shipped_predictor().sound_log_odds(PauseSigns(completeness=each, looked_ms=looked_ms))
        for each in (low, high)
    ]
    assert odds[0] <= odds[1] + 1e-9


@pytest.mark.parametrize("text", ["what are your", "my number is four one five", "i want to go to the", "um"])
def test_the_weights_that_ship_take_what_is_open_for_a_hold(text: str):
    shipped = shipped_predictor()
    whole = shipped.other_log_odds(PauseSigns("what are your opening hours"))
    assert shipped.other_log_odds(PauseSigns(text)) < whole - 0.8
