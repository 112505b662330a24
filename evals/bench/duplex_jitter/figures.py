"""Figures of the measured lines. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from parley.evals.bench.duplex_jitter.line import RATE_HZ, Line

# Number of units at the start of a line, during the pipeline's own start, that are not counted.
WARM_UNITS = 5
US_PER_MS = 1_000


@dataclass(frozen=True)
class Spread:
    """Percentiles in milliseconds.

    Attributes:
        count: number of values.
    """

    p50: float
    p95: float
    p99: float
    max: float
    count: int

    def as_dict(self) -> dict[str, float]:
        """Return the fields for JSON."""
        return asdict(self)


def spread(values_us: Sequence[float]) -> Spread:
    """Return percentiles of times in microseconds.

    Raises:
        ValueError: there are no values.
    """
    if not len(values_us):
        raise ValueError("nothing was measured")
    values = np.asarray(values_us, float) / US_PER_MS
    p50, p95, p99 = (round(float(each), 2) for each in np.percentile(values, (50, 95, 99)))
    return Spread(p50, p95, p99, round(float(values.max()), 2), len(values))


def lateness(lines: Sequence[Line]) -> Spread:
    """Return the lateness of the beginnings of units."""
    return spread([tick.late_us for line in lines for tick in line.ticks[WARM_UNITS:]])


def result_times(lines: Sequence[Line]) -> Spread:
    """Return the times from the beginning of a unit until its result left."""
    return spread([tick.took_us for line in lines for tick in line.ticks[WARM_UNITS:]])


def left_out(lines: Sequence[Line], unit_ms: int) -> dict[str, float]:
    """Return the figures of units that came too late.

    ``backlog_units`` is the largest delay of a unit's beginning after its due time, in units.
    """
    ticks = [tick for line in lines for tick in line.ticks[WARM_UNITS:]]
    missed = sum(tick.missed for tick in ticks)
    backlog_us = max(tick.late_us for tick in ticks)
    return {
        "taken": len(ticks),
        "missed": missed,
        "missed_share": round(missed / (missed + len(ticks)), 3),
        "backlog_units": round(backlog_us / US_PER_MS / unit_ms, 3),
        "left_out_ms": sum(tick.left_out_ms for tick in ticks),
    }


@dataclass(frozen=True)
class Drift:
    """Audio sent against audio due.

    Attributes:
        pieces: number of pieces that were sent.
        drift_ms: median lateness of the last tenth of the pieces less that of the first tenth.
        latest_ms: largest lateness of a piece.
        missing_samples: samples that were made and not sent.
        holes: number of times that speech went on later than due.
    """

    pieces: int
    drift_ms: float
    latest_ms: float
    missing_samples: int
    holes: int

    def as_dict(self) -> dict[str, float]:
        """Return the fields for JSON."""
        return asdict(self)


def drift(line: Line, unit_ms: int) -> Drift:
    """Return the drift of a line whose engine speaks without a pause.

    A piece is due when all before it have been heard, counted in samples from the first. Its lateness is the
    time from that moment to its leaving.
    """
    if not line.pieces:
        raise ValueError("there was no speech")
    at_s = np.array([at for at, _ in line.pieces])
    samples = np.array([count for _, count in line.pieces])
    due_s = at_s[0] + (np.cumsum(samples) - samples) / RATE_HZ
    late_ms = (at_s - due_s) * 1000
    tenth = max(1, len(late_ms) // 10)
    # The last unit may have been cut with its conversation.
    unit = RATE_HZ * unit_ms // 1000
    missing = line.made - int(samples.sum())
    return Drift(
        len(late_ms),
        round(float(np.median(late_ms[-tenth:]) - np.median(late_ms[:tenth])), 3),
        round(float(late_ms.max()), 2),
        missing if abs(missing) >= unit else 0,
        line.holes,
    )
