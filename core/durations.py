"""Histogram of durations that its owner fills and others read.

A part that must not know who measures it (a store, a queue) counts its waits here. A reader takes ``counts``
at any time. Not thread-safe: the owner adds on one thread, and a reader of another may see the sum without
the newest duration.
"""

from bisect import bisect_left
from collections.abc import Sequence

# Of waits that callers notice: from a commit to a fast disk to a caller in a queue.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class DurationCounts:
    """Numbers of durations below some bounds.

    Args:
        bounds_s: upper bounds in rising order; a longer duration counts in the total only.

    Attributes:
        bounds_s: as given.
        sum_s: total of all durations.
    """

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self.bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(self.bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self.bounds_s, duration_s)] += 1
        self.sum_s += duration_s

    def counts(self) -> tuple[int, ...]:
        """Return the number of durations in each interval; the last one is above every bound."""
        return tuple(self._counts)
