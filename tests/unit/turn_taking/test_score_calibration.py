"""The learned reliability of a score."""

import numpy as np
import pytest

from parley.turn_taking.endpointing.score_calibration import ScoreCalibration

PRIOR = -0.57


def judged(worth: ScoreCalibration, truth: float, pauses: int, *, seed: int = 3) -> ScoreCalibration:
    """Return the worth after pauses whose true log odds are ``truth`` times the claimed ones."""
    rng = np.random.default_rng(seed)
    for _ in range(pauses):
        claimed = float(rng.normal(0, 2.5))
        ended = rng.random() < 1 / (1 + np.exp(-(PRIOR + truth * claimed)))
        worth.on_pause(claimed=claimed, otherwise=PRIOR, ended=bool(ended))
    return worth


def test_before_the_first_pause_a_score_is_nearly_believed():
    assert ScoreCalibration(doubt=0.2).share == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_a_worthless_score_is_given_up_within_a_call(seed: int):
    assert judged(ScoreCalibration(doubt=0.2), 0.0, 50, seed=seed).share < 0.3


@pytest.mark.parametrize("seed", range(5))
def test_a_true_score_stays_believed(seed: int):
    assert judged(ScoreCalibration(doubt=0.2), 1.0, 60, seed=seed).share == pytest.approx(1.0, abs=0.25)


def test_without_doubt_nothing_is_learnt():
    assert judged(ScoreCalibration(doubt=0.0), 0.0, 50).share == 1.0


def test_a_pause_without_a_claim_teaches_nothing():
    worth = ScoreCalibration(doubt=0.2)
    before = worth.share
    worth.on_pause(claimed=0.0, otherwise=2.0, ended=False)
    assert worth.share == before


def test_being_wrong_costs_a_score_more_the_surer_it_was():
    sure, unsure = ScoreCalibration(doubt=0.2), ScoreCalibration(doubt=0.2)
    sure.on_pause(claimed=4.0, otherwise=PRIOR, ended=False)
    unsure.on_pause(claimed=1.0, otherwise=PRIOR, ended=False)
    assert sure.share < unsure.share < ScoreCalibration(doubt=0.2).share
