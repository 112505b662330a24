"""Divide a long recording where it is quiet, for an engine that takes utterances. Pure."""

import numpy as np

# Window whose loudness is compared.
WINDOW_MS = 200


def quiet_cuts(samples: np.ndarray, rate_hz: int, *, least_s: float, most_s: float) -> list[tuple[int, int]]:
    """Return the parts of a recording as (first, end) in samples: without gaps, cut in the quietest windows.

    Args:
        samples: float32, (samples,), in [-1, 1].
        rate_hz: of the samples.
        least_s: shortest part, except the last one.
        most_s: longest part.
    """
    window = rate_hz * WINDOW_MS // 1000
    least, most = int(least_s * rate_hz), int(most_s * rate_hz)
    parts: list[tuple[int, int]] = []
    first = 0
    while len(samples) - first > most:
        squares = np.square(samples[first + least : first + most], dtype=np.float64)
        sums = np.concatenate([[0.0], np.cumsum(squares)])
        energy = sums[window:] - sums[:-window]
        # The middle of the quietest window. Of equal ones the last: longer parts have more context.
        quietest = len(energy) - 1 - int(np.argmin(energy[::-1]))
        cut = first + least + quietest + window // 2
        parts.append((first, cut))
        first = cut
    if len(samples) > first:
        parts.append((first, len(samples)))
    return parts
