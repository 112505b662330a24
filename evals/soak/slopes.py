"""Slopes of the samples, with their confidence. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

# A server that starts fills caches and pools: this share of the samples is left out.
WARM_UP = 0.25
# Two-sided 95 % of the normal distribution; a soak has dozens of samples.
Z_95 = 1.96
LEAST_SAMPLES = 8


class Verdict(StrEnum):
    """Verdict on the growth of one quantity."""

    MET = "met"
    GROWS = "grows"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth of one quantity.

    Attributes:
        per_hour: least squares.
        within: half of the 95 % confidence interval of it.
        first: mean of the first quarter that counts.
        last: mean of the last quarter.
        largest: of all samples that count.
    """

    per_hour: float
    within: float
    first: float
    last: float
    largest: float

    @property
    def grows(self) -> bool:
        """True when growth is larger than by chance."""
        return self.per_hour - self.within > 0

    def verdict(self, limit: float) -> Verdict:
        """Judge the growth by a limit for an hour: an interval wider than the limit is unclear."""
        if self.per_hour - self.within > limit:
            return Verdict.GROWS
        return Verdict.UNCLEAR if self.within > limit else Verdict.MET


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """Fit a line through the samples after the warm-up.

    Samples of one call resemble each other, so the interval counts as many independent ones as their
    autocorrelation at lag 1 leaves (Bartlett 1946).

    Raises:
        ValueError: too few samples, or not as many times as values.
    """
    if len(seconds) != len(values):
        raise ValueError("expected one time for each value")
    skipped = int(len(values) * WARM_UP)
    at = np.asarray(seconds[skipped:], dtype=np.float64)
    of = np.asarray(values[skipped:], dtype=np.float64)
    if at.size < LEAST_SAMPLES:
        raise ValueError(f"{at.size} samples after the warm-up are too few for a slope")
    centred = at - at.mean()
    spread = float((centred**2).sum())
    gain = float((centred * of).sum()) / spread
    left = of - of.mean() - gain * centred
    variance = float((left**2).sum())
    related = float((left[1:] * left[:-1]).sum()) / variance if variance else 0.0
    independent = at.size * (1 - max(0.0, related)) / (1 + max(0.0, related))
    error = math.sqrt(variance / max(1.0, independent - 2) / spread)
    quarter = max(1, at.size // 4)
    return Slope(
        gain * 3_600,
        Z_95 * error * 3_600,
        float(of[:quarter].mean()),
        float(of[-quarter:].mean()),
        float(of.max()),
    )
