"""Durations in a histogram."""

from parley.core.durations import DurationCounts


def test_a_duration_counts_in_the_first_interval_whose_bound_it_does_not_exceed():
    durations = DurationCounts((0.1, 1.0))
    for duration_s in (0.05, 0.1, 0.5, 7.0):
        durations.add(duration_s)
    assert durations.counts() == (2, 1, 1)
    assert durations.sum_s == 7.65
