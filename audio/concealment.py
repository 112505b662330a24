"""Packet-loss concealment: fill a gap by extrapolating pitch periods from both sides.

Each side is continued by its own last period of pitch (waveform replication, ITU-T G.711 appendix I), the
later one backwards in time, and one fades into the other. A receiver that has to play at once has only the
audio before the gap. Here a gap is noticed when the piece after it has arrived, so both sides are available.
Of a long gap only the beginning is filled, with decreasing level.

The effect on recognition, compared with silence and with repeating the last piece: ``python -m evals.phone
concealment``. Pure.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# Pitch of 67 to 400 Hz.
SHORTEST_MS, LONGEST_MS = 2.5, 15.0
# Length compared to find the pitch: before the gap, and after it, where only one piece is available.
BEFORE_MS, AFTER_MS = 20.0, 7.5
# Length of past audio that is used.
HISTORY_MS = 50
# Share of the period over which its end is blended with the audio before its beginning.
BLEND = 0.25
_TINY = 1e-6


def conceal(before: np.ndarray, after: np.ndarray, samples: int, *, rate_hz: int) -> np.ndarray:
    """Return the samples that fill a gap.

    Args:
        before: float32, (samples,): audio before the gap; ``HISTORY_MS`` of it are enough.
        after: float32, (samples,): the piece after the gap.
        samples: length of the gap.
        rate_hz: rate of all of them.

    Returns:
        float32, (samples,).
    """
    forward = _goes_on(before, samples, BEFORE_MS, rate_hz)
    backward = _goes_on(after[::-1], samples, AFTER_MS, rate_hz)[::-1]
    fade = np.linspace(0, 1, samples, dtype=np.float32)
    return forward * (1 - fade) + backward * fade


def fade_out(before: np.ndarray, samples: int, *, rate_hz: int) -> np.ndarray:
    """Return the samples for the beginning of a gap that is too long to be filled, as ``conceal`` does."""
    return _goes_on(before, samples, BEFORE_MS, rate_hz) * np.linspace(1, 0, samples, dtype=np.float32)


def _goes_on(heard: np.ndarray, samples: int, compared_ms: float, rate_hz: int) -> np.ndarray:
    """Repeat the last period of ``heard``, without a step where it begins again."""
    per_ms = rate_hz / 1000
    shortest = round(SHORTEST_MS * per_ms)
    template = min(round(compared_ms * per_ms), len(heard) - 2 * shortest)
    if template < shortest:
        return np.zeros(samples, np.float32)
    period = _period(heard, template, shortest, round(LONGEST_MS * per_ms))
    blended = min(max(1, round(period * BLEND)), len(heard) - period)
    last = heard[-period:].astype(np.float32)
    fade = np.linspace(0, 1, blended, dtype=np.float32)
    last[-blended:] = last[-blended:] * (1 - fade) + heard[-period - blended : -period] * fade
    return np.resize(last, samples)


def _period(heard: np.ndarray, template: int, shortest: int, longest: int) -> int:
    """Return the shift in samples at which the end of ``heard`` is most similar to the audio before it."""
    longest = min(longest, len(heard) - template)
    end = heard[-template:].astype(np.float64)
    # One row for each shift, the longest first; the last row is ``end`` itself.
    rows = sliding_window_view(heard[-template - longest :].astype(np.float64), template)
    rows = rows[: longest - shortest + 1]
    likeness = rows @ end / np.sqrt(np.einsum("ij,ij->i", rows, rows) + _TINY)
    return longest - int(np.argmax(likeness))
