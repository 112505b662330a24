"""The distribution of pauses, the estimates of a caller, and the wait of the least cost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.turn_taking.endpointing.boundary import least_cost_wait_ms
from parley.turn_taking.endpointing.pauses import (
    HOLD_SHARE,
    LONGEST_MS,
    SHORTEST_MS,
    CallerHabits,
    CallerPauses,
    PauseLaw,
    waits_ms,
)


@pytest.mark.parametrize(("silence_ms", "cut"), [(300, 0.558), (600, 0.214), (1_000, 0.103), (1_600, 0.049)])
def test_the_law_gives_the_share_of_holds_that_a_timer_cuts(silence_ms: int, cut: float):
    assert PauseLaw().at(silence_ms) == pytest.approx(cut, abs=0.005)


def test_every_hold_lasts_the_shortest_and_none_longer_than_the_longest():
    law = PauseLaw(scale=1.7)
    assert (law.at(SHORTEST_MS), law.at(LONGEST_MS)) == (1.0, 0.0)
    assert (np.diff(law.survival) <= 0).all()


def test_samples_follow_the_law():
    law, rng = PauseLaw(scale=1.4), np.random.default_rng(3)
    drawn = np.array([law.sample(rng) for _ in range(4_000)])
    for silence_ms in (300, 600, 1_200):
        assert (drawn > silence_ms).mean() == pytest.approx(law.at(silence_ms), abs=0.03)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_a_callers_factor_is_learnt_from_their_holds(factor: float):
    rng, law, pauses = np.random.default_rng(1), PauseLaw(scale=factor), CallerPauses(spread=0.5)
    for _ in range(60):
        pauses.on_hold(law.sample(rng))
    assert pauses.factor == pytest.approx(factor, rel=0.3)
    assert abs(math.log(pauses.factor / factor)) < abs(math.log(factor)) or factor == 1.0


def test_a_hold_that_was_cut_says_that_it_was_longer():
    pauses = CallerPauses()
    before = pauses.factor
    pauses.on_cut(1_500)
    assert pauses.factor > before


def test_nothing_is_learnt_without_a_spread():
    pauses = CallerPauses(spread=0)
    pauses.on_hold(3_000)
    assert pauses.survival == pytest.approx(PauseLaw().survival)


def test_what_lies_outside_of_the_range_is_survived():
    pauses = CallerPauses()
    for silence_ms in (0, 150, 4_999.9, 60_000):
        pauses.on_hold(silence_ms)
        pauses.on_cut(silence_ms)
    assert np.isfinite(pauses.survival).all()


def test_the_share_of_holds_is_counted_from_the_general_one_on():
    habits = CallerHabits(share_weight=10)
    assert habits.hold_share == pytest.approx(HOLD_SHARE)
    for _ in range(30):
        habits.on_end()
    assert habits.hold_share == pytest.approx(10 * HOLD_SHARE / 40)
    habits.on_hold(400)
    habits.on_cut(400)
    assert habits.hold_share == pytest.approx((10 * HOLD_SHARE + 2) / 42)
    assert habits.end_log_odds == pytest.approx(math.log(1 / habits.hold_share - 1))


def test_an_infinite_weight_learns_no_share():
    habits = CallerHabits(share_weight=math.inf)
    habits.on_end()
    assert habits.hold_share == HOLD_SHARE


@given(odds=st.floats(-8, 8), cost=st.floats(100, 50_000))
def test_the_wait_is_the_cheapest_of_all(odds: float, cost: float):
    survival = PauseLaw().survival
    chosen = least_cost_wait_ms(odds, survival, cut_cost_ms=cost)
    end = 1 / (1 + math.exp(-odds))
    costs = end * waits_ms() + (1 - end) * cost * survival
    assert costs[(chosen - SHORTEST_MS) // 10] == pytest.approx(costs.min())


@given(odds=st.floats(-8, 8), more=st.floats(0, 8))
def test_more_evidence_of_an_end_never_makes_it_longer(odds: float, more: float):
    survival = PauseLaw().survival
    wait, sooner = (least_cost_wait_ms(o, survival, cut_cost_ms=6_000) for o in (odds, odds + more))
    assert sooner <= wait


def test_certainty_is_no_division_by_zero_and_the_longest_wait_holds():
    survival = PauseLaw().survival
    assert least_cost_wait_ms(math.inf, survival, cut_cost_ms=6_000) == SHORTEST_MS
    assert least_cost_wait_ms(-math.inf, survival, cut_cost_ms=6_000, longest_ms=2_000) == 2_000
