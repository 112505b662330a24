"""Figures of telephone calls."""

from collections.abc import Sequence
from typing import Any

from parley.evals.latency.figures import percentile


def spread(values: Sequence[float], *, digits: int = 1) -> dict[str, Any]:
    """Return count, nearest-rank percentiles and maximum."""
    if not values:
        return {"count": 0}
    return {
        "count": len(values),
        **{f"p{each}": round(percentile(values, each) or 0.0, digits) for each in (50, 95, 99)},
        "max": round(max(values), digits),
    }


def percent(part: int, whole: int) -> float | None:
    """Return the percentage; None of nothing."""
    return round(100 * part / whole, 1) if whole else None
