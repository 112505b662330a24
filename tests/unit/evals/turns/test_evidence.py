import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.evals.turns.contours import Contour
from parley.evals.turns.evidence import (
    AskedRatios,
    EvidenceSettings,
    Heard,
    WordRatios,
    asked_log_odds,
    calibrated,
    contour_log_odds,
    end_log_odds,
    score_log_odds,
    words_log_odds,
)
from parley.language.cue_words import QuestionKind

SETTINGS = EvidenceSettings(asked=AskedRatios(choice=2.0))


def test_nothing_heard_says_nothing():
    assert end_log_odds(Heard(), SETTINGS) == 0


def test_the_signs_add_up():
    heard = Heard("what are your hours", 0.8, Contour.FALL, QuestionKind.CHOICE)
    parts = (
        asked_log_odds(heard, SETTINGS)
        + score_log_odds(0.8, SETTINGS)
        + words_log_odds(heard, SETTINGS)
        + contour_log_odds(heard, SETTINGS)
    )
    assert end_log_odds(heard, SETTINGS) == pytest.approx(parts)


def test_a_calibrated_probability_is_its_own_odds():
    assert score_log_odds(0.8, SETTINGS) == pytest.approx(math.log(4))
    steep = EvidenceSettings(score_slope=0.5, score_offset=1.0)
    assert score_log_odds(0.8, steep) == pytest.approx(1 + math.log(4) / 2)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_higher_probability_never_speaks_against_an_end(one: float, other: float):
    low, high = sorted((one, other))
    assert score_log_odds(low, SETTINGS) <= score_log_odds(high, SETTINGS)
    assert math.isfinite(score_log_odds(low, SETTINGS))


def test_a_filler_speaks_against_an_end_and_counts_by_its_weight():
    heard = Heard("send it to um")
    assert words_log_odds(heard, SETTINGS) < 0
    half = EvidenceSettings(words_weight=SETTINGS.words_weight / 2)
    assert words_log_odds(heard, half) == pytest.approx(words_log_odds(heard, SETTINGS) / 2)


def test_a_word_that_was_hardly_understood_is_no_cue():
    assert words_log_odds(Heard("how to argue the", last_word_confidence=0.1), SETTINGS) == 0


def test_a_short_answer_counts_as_what_was_counted():
    chosen = EvidenceSettings(short=0.5, short_answer=2.0, words_weight=1.0)
    asked = words_log_odds(Heard("on monday", asked=QuestionKind.QUESTION), chosen)
    unasked = words_log_odds(Heard("on monday"), chosen)
    assert asked - unasked == pytest.approx(math.log(4))


def test_a_rise_ends_a_question_and_not_a_statement():
    assert contour_log_odds(Heard("is it open", contour=Contour.RISE), SETTINGS) > 0
    assert contour_log_odds(Heard("milk bread", contour=Contour.RISE), SETTINGS) < 0


def test_a_ratio_of_nothing_is_refused():
    with pytest.raises(ValidationError):
        WordRatios(filler=0.0)


CURVE = ((-5.0, -4.0), (-4.0, -1.0), (3.0, 2.0))


@pytest.mark.parametrize(
    ("log_odds", "worth"), [(-6.0, -4.0), (-5.0, -4.0), (-4.5, -2.5), (-0.5, 0.5), (3.0, 2.0), (6.0, 2.0)]
)
def test_a_curve_has_straight_lines_between_its_points_and_is_level_outside(log_odds: float, worth: float):
    assert calibrated(log_odds, EvidenceSettings(score_curve=CURVE)) == pytest.approx(worth)


def test_slope_and_offset_are_of_what_the_curve_gives():
    settings = EvidenceSettings(score_curve=CURVE, score_slope=0.5, score_offset=1.0)
    assert calibrated(-4.0, settings) == pytest.approx(0.5)
    assert score_log_odds(0.999, settings) == pytest.approx(2.0)


@pytest.mark.parametrize("curve", [((0.0, 1.0), (0.0, 2.0)), ((0.0, 1.0), (1.0, 0.5))])
def test_a_curve_that_does_not_rise_is_refused(curve: tuple[tuple[float, float], ...]):
    with pytest.raises(ValidationError, match="rises"):
        EvidenceSettings(score_curve=curve)


def test_a_filler_is_one_by_its_sound_whatever_was_written_of_it() -> None:
    sure = Heard("please send it stone", last_word_confidence=0.9)
    assert words_log_odds(sure, SETTINGS) > 0
    by_sound = words_log_odds(replace(sure, is_filler=True), SETTINGS)
    assert by_sound == words_log_odds(Heard("please send it um"), SETTINGS) < 0
    # The same before any words.
    assert words_log_odds(Heard(is_filler=True), SETTINGS) == by_sound
