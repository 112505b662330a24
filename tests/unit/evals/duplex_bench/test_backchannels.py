"""Scores of backchannels, compared with a random and a perfect listener."""

import math

import numpy as np
import pytest

from parley.evals.duplex_bench.backchannels import (
    NO_HUM,
    distance,
    histogram,
    jsd,
    listened,
    oracle_jsd,
    random_jsd,
    resampled,
    skill,
)
from parley.evals.duplex_bench.spoken import Segment, Spoken, Word

# A listener emits backchannels in two windows of 0.8 s of a clip of 10 s.
SHARES = tuple(1.0 if place in (*range(10, 14), *range(30, 34)) else 0.0 for place in range(50))
LENGTH_MS = 10_000


def test_a_hum_lies_over_the_bins_that_it_touches() -> None:
    assert histogram([(400, 800), (500, 700)], 6).tolist() == [0, 0, 2, 2, 0, 0]


def test_distributions_that_share_nothing_are_as_far_apart_as_can_be() -> None:
    apart = distance(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert apart == pytest.approx(math.sqrt(math.log(2)), abs=1e-4)
    assert distance(np.array([2.0, 6.0]), np.array([1.0, 3.0])) == pytest.approx(0, abs=1e-4)


def test_the_distance_by_hand() -> None:
    # (1, 0) and (0.5, 0.5): half of ln(4/3) and of 0.5 ln(2/3) + 0.5 ln 2.
    by_hand = math.sqrt((math.log(4 / 3) + 0.5 * math.log(2 / 3) + 0.5 * math.log(2)) / 2)
    assert distance(np.array([3.0, 0.0]), np.array([0.5, 0.5])) == pytest.approx(by_hand, abs=1e-4)


def test_who_never_hums_has_the_benchmarks_one() -> None:
    assert jsd([], SHARES, LENGTH_MS) == NO_HUM == oracle_jsd([], SHARES, LENGTH_MS)


def test_a_distribution_of_other_bins_is_resampled() -> None:
    assert resampled([0.0, 2.0], 3).tolist() == pytest.approx([0, 1 / 3, 2 / 3])


def test_hums_where_listeners_hum_are_worth_all_and_chance_is_worth_nothing() -> None:
    rng = np.random.default_rng(1)
    good = [(2_000, 2_800), (6_000, 6_800)]
    by_chance = random_jsd(good, SHARES, LENGTH_MS, rng)
    at_best = oracle_jsd(good, SHARES, LENGTH_MS)
    assert at_best == pytest.approx(0, abs=1e-3)
    worth = skill(jsd(good, SHARES, LENGTH_MS), by_chance, at_best)
    assert worth == pytest.approx(1, abs=0.01)
    drawn = [
        jsd([(int(a), int(a) + 800), (int(b), int(b) + 800)], SHARES, LENGTH_MS)
        for a, b in rng.integers(0, 9_200, (300, 2))
    ]
    assert skill(float(np.mean(drawn)), by_chance, at_best) == pytest.approx(0, abs=0.15)


def test_more_hums_are_nearer_wherever_they_are() -> None:
    """The distance alone is not enough: at random, ten backchannels score better than two."""
    rng = np.random.default_rng(1)
    few, many = ([(0, 400)] * count for count in (2, 10))
    assert random_jsd(many, SHARES, LENGTH_MS, rng) < random_jsd(few, SHARES, LENGTH_MS, rng)


def test_nothing_can_be_told_apart_without_hums() -> None:
    assert skill(NO_HUM, NO_HUM, NO_HUM) is None


@pytest.mark.parametrize(
    ("segments", "heard", "turn", "hums"),
    [
        ((Segment(0, 400), Segment(3_000, 3_500)), (), False, 2),
        ((Segment(0, 400), Segment(3_000, 7_000)), (), True, 1),
        # A later backchannel does not undo the turn before it.
        ((Segment(0, 1_500), Segment(3_000, 3_300)), (), True, 2),
        ((Segment(0, 900),), (Word("a", 0, 100), Word("b", 100, 200), Word("c", 200, 300)), True, 1),
    ],
)
def test_how_a_bot_listens(
    segments: tuple[Segment, ...], heard: tuple[Word, ...], turn: bool, hums: int
) -> None:
    one = listened(Spoken(10_000, segments, heard))
    assert one.takes_turn is turn and len(one.hums) == hums
