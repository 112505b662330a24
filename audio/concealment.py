"""What stands in the place of a piece of speech that was lost: both sides of the hole go on into it.

Each side is continued by its own last period of pitch (waveform replication, ITU-T G.711 appendix I), the
later one backwards in time, and one fades into the other. A receiver that has to play at once knows only what
was before; here a hole is known when the piece behind it is there, so both sides are. Of a long hole only the
beginning is filled, softer and softer.

What a recogniser makes of it beside silence and the last piece again: ``python -m evals.phone concealment``.
Pure.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# Pitch of 67 to 400 Hz.
SHORTEST_MS, LONGEST_MS = 2.5, 15.0
# Compared to find it: in front of the hole, and behind it, where there is one piece.
BEFORE_MS, BEHIND_MS = 20.0, 7.5
# What is looked at of the past.
HISTORY_MS = 50
# A part of the period, in which its end is blended into what was in front of its beginning.
BLEND = 0.25
_TINY = 1e-6


def conceal(before: np.ndarray, behind: np.ndarray, samples: int, *, rate_hz: int) -> np.ndarray:
    """What fills a hole.

    Args:
        before: float32, (samples,): what was heard last; ``HISTORY_MS`` of it are enough.
        behind: the same of the piece that ends the hole.
        samples: of the hole.
        rate_hz: of all of them.

    Returns:
        float32, (samples,).
    """
    forward = _goes_on(before, samples, BEFORE_MS, rate_hz)
    backward = _goes_on(behind[::-1], samples, BEHIND_MS, rate_hz)[::-1]
    fade = np.linspace(0, 1, samples, dtype=np.float32)
    return forward * (1 - fade) + backward * fade


def fade_out(before: np.ndarray, samples: int, *, rate_hz: int) -> np.ndarray:
    """What stands at the beginning of a hole that is too long to be filled. As ``conceal``."""
    return _goes_on(before, samples, BEFORE_MS, rate_hz) * np.linspace(1, 0, samples, dtype=np.float32)


def _goes_on(heard: np.ndarray, samples: int, compared_ms: float, rate_hz: int) -> np.ndarray:
    """Its last period again and again, without a step where it begins anew."""
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
    """By how many samples the end of it is most like what was before."""
    longest = min(longest, len(heard) - template)
    end = heard[-template:].astype(np.float64)
    # One row for each shift, the longest first; the last one is ``end`` itself.
    rows = sliding_window_view(heard[-template - longest :].astype(np.float64), template)
    rows = rows[: longest - shortest + 1]
    likeness = rows @ end / np.sqrt(np.einsum("ij,ij->i", rows, rows) + _TINY)
    return longest - int(np.argmax(likeness))
