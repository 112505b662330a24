"""Shares, percentiles and the intervals of both. Pure.

Intervals are percentile bootstraps over clips (Efron 1979), 95 %, always from the same draws. Percentiles are
those of ``evals.latency.figures``: nearest rank, never a value between two that were measured.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parley.evals.harness.report import percentile

DRAWS, SEED = 2_000, 7
LEVEL = 0.95


def share(outcomes: Sequence[bool]) -> float | None:
    """Return the share of true outcomes; None without any outcome."""
    return round(float(np.mean(outcomes)), 4) if outcomes else None


def spread_ms(values_ms: Sequence[int]) -> dict[str, float | None]:
    """Return ``p50`` and ``p95``."""
    return {f"p{percent}": percentile(values_ms, percent) for percent in (50, 95)}


def interval(
    values: Sequence[float], statistic: Callable[[np.ndarray], np.ndarray] | None = None
) -> list[float] | None:
    """Return the 95 % interval of a statistic (the mean) of these values; None of fewer than two.

    Args:
        values: one for each clip.
        statistic: of each row: float64, (draws, values) to (draws,).
    """
    if len(values) < 2:
        return None
    rng = np.random.default_rng(SEED)
    drawn = np.asarray(values, np.float64)[rng.integers(len(values), size=(DRAWS, len(values)))]
    found = drawn.mean(axis=1) if statistic is None else statistic(drawn)
    low, high = np.quantile(found, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return [round(float(low), 4), round(float(high), 4)]


def median_interval(values: Sequence[float]) -> list[float] | None:
    """Return the 95 % interval of the median."""
    return interval(values, lambda rows: np.median(rows, axis=1))


def joint(pause_turns: Sequence[bool], turn_turns: Sequence[bool]) -> dict[str, Any]:
    """Return P(no turn in pause clips) x P(turn in turn clips), with its interval.

    A policy that always does the same gets 0.
    """
    if not pause_turns or not turn_turns:
        return {"value": None, "interval": None}
    rng = np.random.default_rng(SEED)
    held, taken = ~np.asarray(pause_turns), np.asarray(turn_turns)
    value = float(held.mean() * taken.mean())
    drawn = [
        values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1) for values in (held, taken)
    ]
    low, high = np.quantile(drawn[0] * drawn[1], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return {"value": round(value, 4), "interval": [round(float(low), 4), round(float(high), 4)]}
