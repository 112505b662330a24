"""Small examples of the fit of the linear models of ``models.keyword_spotting.floor`` and ``models.turn``."""

import numpy as np
import pytest

from parley.evals.turns import filler, floor, overlap_calls
from parley.evals.turns.floor_texts import CLAIMING, LISTENING
from parley.language.english.vocabulary import UTTERANCES
from parley.models.keyword_spotting.floor import FEATURES
from parley.models.turn.smart_turn import FILLER_FEATURES


def test_a_line_tells_apart_what_can_be_told_apart_whatever_the_shares() -> None:
    rng = np.random.default_rng(1)
    wanted = np.arange(400) < 40
    rows = [rng.standard_normal(3) + np.array([4.0 * hit, 0.0, 100.0]) for hit in wanted]
    weights, bias = floor.fitted(rows, list(wanted), ridge=1.0)
    odds = [float(row @ weights + bias) for row in rows]
    assert floor.area(odds, list(wanted)) == pytest.approx(1.0, abs=0.02)
    # Half-way between the two, both kinds have the same weight.
    assert float(np.array([2.0, 0.0, 100.0]) @ weights + bias) == pytest.approx(0.0, abs=0.6)


def test_an_area_is_the_share_of_pairs_in_order() -> None:
    assert floor.area([3.0, 1.0, 2.0, 0.0], [True, True, False, False]) == 0.75
    assert floor.area([1.0, 1.0], [True, False]) == 0.5
    assert floor.area([1.0, 2.0], [True, True]) is None


def test_nothing_that_is_reported_is_fitted_on_but_for_closed_classes() -> None:
    reported = {*overlap_calls.COMMAND_TEXTS, *overlap_calls.CORRECTION_TEXTS, *overlap_calls.QUESTION_TEXTS}
    reported |= set(overlap_calls.ANSWER_TEXTS)
    shared = set(CLAIMING) & reported
    assert shared <= UTTERANCES.negative | UTTERANCES.stops | {"what", "why"}
    assert not set(CLAIMING) & set(LISTENING)
    assert {"later", "tell me more"} & set(CLAIMING)
    assert len(CLAIMING) > 150 and len(LISTENING) > 50


def test_voices_by_themselves_and_over_a_bot_are_of_every_kind() -> None:
    alone, over = floor.by_themselves(12, 5, 0), floor.in_a_room(5, 0, count=3)
    assert (len(alone), len(over)) == (12, 3)
    assert all(row.features.shape == (FEATURES,) and np.isfinite(row.features).all() for row in alone + over)
    assert len({row.kind for row in alone}) >= 2 and len({row.voice for row in alone}) >= 4
    assert all(row.is_over_bot for row in over) and len({row.voice for row in over}) == 1
    again = floor.by_themselves(12, 5, 0)
    assert [row.kind for row in again] == [row.kind for row in alone]


def test_pauses_are_of_every_kind() -> None:
    pauses = filler.made_there(30, 5, 0)
    assert {pause.kind for pause in pauses} >= {"filler", "end", "hanging"}
    assert all(p.features.shape == (FILLER_FEATURES,) and np.isfinite(p.features).all() for p in pauses)
    assert sum(pause.is_filler for pause in pauses) == sum(pause.kind == "filler" for pause in pauses)
