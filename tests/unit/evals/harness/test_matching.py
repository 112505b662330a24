"""Two recordings of a side: what is found in the other one, how late, and what one of them has alone."""

import numpy as np
import pytest

from parley.evals.harness.matching import Match, matches, sounds_alone, turned

RATE_HZ = 8_000


def sound(seconds: float, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-5_000, 5_000, round(seconds * RATE_HZ)).astype(np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def test_the_same_sound_is_found_everywhere_with_one_delay():
    one = np.concatenate((silence(1), sound(3), silence(2), sound(2, 2)))
    found = matches(one, np.concatenate((silence(0.25), one)), RATE_HZ)
    assert len(found.found) == found.windows >= 20
    assert found.delay_ms == pytest.approx(250, abs=0.2)
    assert found.largest_ms <= 0.2


def test_a_reply_that_is_later_than_the_others_is_the_largest_difference():
    one = np.concatenate((sound(6), silence(1), sound(2, 2), silence(1)))
    other = np.concatenate((sound(6), silence(1.03), sound(2, 2), silence(1)))
    found = matches(one, other, RATE_HZ)
    assert found.delay_ms == 0
    assert found.largest_ms == pytest.approx(30, abs=0.2)


def test_another_sound_is_not_found():
    found = matches(sound(3), sound(3, 2), RATE_HZ)
    assert found.found == () and found.windows >= 10 and found.largest_ms == 0


def test_a_sound_that_one_has_alone_is_named_by_its_time():
    one = np.concatenate((sound(1), silence(1), sound(0.5, 2), silence(1)))
    other = np.concatenate((sound(1), silence(2.5)))
    alone = sounds_alone(one, other, RATE_HZ)
    assert alone[0] == 2_000 and alone[-1] == 2_490
    assert sounds_alone(other, one, RATE_HZ) == []


def test_matches_turn_round():
    assert turned([Match(1_000.0, 250.0)]) == [Match(1_250.0, -250.0)]
