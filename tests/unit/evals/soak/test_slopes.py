"""Slopes of the samples of a soak."""

import numpy as np
import pytest

from parley.evals.soak.__main__ import LIMITS
from parley.evals.soak.slopes import Slope, Verdict, slope

SECONDS = [5.0 * number for number in range(120)]


def test_steady_growth_is_found_with_its_size():
    noise = np.random.default_rng(1).normal(0, 0.5, len(SECONDS))
    fitted = slope(
        SECONDS, [450 + second / 3_600 * 240 + extra for second, extra in zip(SECONDS, noise, strict=True)]
    )
    assert fitted.grows
    assert abs(fitted.per_hour - 240) < fitted.within < 20


def test_calls_that_come_and_go_are_no_growth():
    fitted = slope(SECONDS, [100 + 20 * np.sin(second / 15) for second in SECONDS])
    assert not fitted.grows


def test_what_a_server_takes_while_it_warms_up_is_left_out():
    values = [300 + min(second, 100) for second in SECONDS]
    fitted = slope(SECONDS, values)
    assert (fitted.per_hour, fitted.first, fitted.last) == (0, 400, 400)


def test_too_few_samples_have_no_slope():
    with pytest.raises(ValueError, match="too few"):
        slope(SECONDS[:9], SECONDS[:9])


def fitted(per_hour: float, within: float) -> Slope:
    return Slope(per_hour, within, first=595, last=600, largest=610)


@pytest.mark.parametrize(
    ("per_hour", "within", "verdict"),
    [
        # As measured in an hour, and in six minutes while ended calls were kept.
        (8.5, 2.0, Verdict.MET),
        (239, 51, Verdict.GROWS),
        (12, 2.0, Verdict.GROWS),
        (0, 51, Verdict.UNCLEAR),
        (60, 55, Verdict.UNCLEAR),
    ],
)
def test_memory_is_judged_by_what_a_soak_can_tell(per_hour: float, within: float, verdict: Verdict):
    assert fitted(per_hour, within).verdict(LIMITS["rss_mb"]) is verdict


@pytest.mark.parametrize(("name", "limit"), [("threads", 6), ("descriptors", 12), ("tasks", 12)])
def test_what_grows_by_one_for_many_calls_is_no_chance(name: str, limit: float):
    assert fitted(limit, 2.0).verdict(LIMITS[name]) is not Verdict.MET
