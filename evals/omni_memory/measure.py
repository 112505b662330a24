"""Consecutive conversations on one host, and the memory of the process between them.

The first ones are not counted: the allocator, the threads and the library allocate what they keep. After
them, the memory of a process without leaks is constant. Garbage is collected before each measurement; nothing
else is done to make the figure small.
"""

import gc
from typing import Any

import numpy as np
import psutil

from parley.models.omni import OmniEngine, OmniHost, Preparation

# Number of measurements on the way, to distinguish a slope from a step.
LOOKS = 10


def converse(engine: OmniEngine, units: int, seed: int) -> None:
    """Hold one conversation on noise, and release it."""
    random = np.random.default_rng(seed)
    engine.prepare(Preparation())
    for number in range(units):
        length_ms = engine.unit_ms if number else engine.first_unit_ms
        samples = length_ms * engine.input_rate_hz // 1000
        engine.prefill((0.1 * random.standard_normal(samples)).clip(-1, 1).astype(np.float32))
        engine.generate()
        engine.finalize()
    engine.stop()
    engine.cleanup()


def measure(host: OmniHost, *, sessions: int, units: int, warm_up: int) -> dict[str, Any]:
    """Open and close conversations.

    Args:
        host: of the engines.
        sessions: number of those that are counted.
        units: of each.
        warm_up: number of conversations before them.

    Returns:
        ``rss_bytes``: number of conversations after the warm-up to memory of the process.
            ``growth_bytes_per_session``: from the first measurement to the last. ``slope_bytes_per_session``:
            of the line through all measurements.
    """
    for number in range(warm_up):
        converse(host.open_engine(), units, number)
    looks = {0: _rss_bytes()}
    at = {round(sessions * (look + 1) / LOOKS) for look in range(LOOKS)} - {0}
    for number in range(sessions):
        converse(host.open_engine(), units, warm_up + number)
        if number + 1 in at:
            looks[number + 1] = _rss_bytes()
    counts, sizes = np.array(list(looks), float), np.array(list(looks.values()), float)
    return {
        "sessions": sessions,
        "units": units,
        "warm_up": warm_up,
        "rss_bytes": looks,
        "growth_bytes_per_session": round((sizes[-1] - sizes[0]) / sessions),
        "slope_bytes_per_session": round(float(np.polyfit(counts, sizes, 1)[0])),
    }


def _rss_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)
