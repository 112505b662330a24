"""Compare two recordings of the same side of a call, window by window: same sounds at the same times.

Each audible window of one recording is looked for in the other one by normalised cross-correlation
(``matches``). What is audible in one of them alone, such as the rest of a reply that was cut off, is found by
level (``sounds_alone``). Blocks: an hour takes minutes of processor time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WINDOW_MS, STEP_MS = 400, 200
# Of 16 bits; a window that is softer has too little to compare.
LOUD_RMS = 300
# Of two windows with the same sound, through a codec.
LEAST_LIKENESS = 0.6
LEVEL_MS = 10


@dataclass(frozen=True, slots=True)
class Match:
    """A window of one recording in another one.

    Attributes:
        begin_ms: beginning of the window.
        delay_ms: by how much the same sound is later in the other recording.
    """

    begin_ms: float
    delay_ms: float


@dataclass(frozen=True, slots=True)
class Matching:
    """All windows of a recording that were looked for in another one.

    Attributes:
        found: windows that were found, in order.
        windows: number of audible windows.
    """

    found: tuple[Match, ...]
    windows: int

    @property
    def delay_ms(self) -> float:
        """Median delay; 0 without any."""
        return float(np.median([each.delay_ms for each in self.found])) if self.found else 0.0

    @property
    def largest_ms(self) -> float:
        """Largest difference of a delay from the median; 0 without any."""
        return max((abs(each.delay_ms - self.delay_ms) for each in self.found), default=0.0)


def matches(one: np.ndarray, other: np.ndarray, rate_hz: int, *, most_ms: int = 3_000) -> Matching:
    """Look for each audible window of ``one`` in ``other``, within ``most_ms`` of the same place.

    one, other: (samples,), 16-bit values of any type.
    """
    found, windows = list[Match](), 0
    size, reach = rate_hz * WINDOW_MS // 1_000, rate_hz * most_ms // 1_000
    other = np.pad(other, reach + size)
    for start in range(0, len(one) - size, rate_hz * STEP_MS // 1_000):
        window = one[start : start + size].astype(np.float64)
        if np.sqrt(np.mean(window**2)) < LOUD_RMS:
            continue
        windows += 1
        # In ``other`` as it is padded, from ``reach`` before the place to ``reach`` after it.
        part = other[start + size : start + 2 * size + 2 * reach].astype(np.float64)
        length = len(part) + size
        crossed = np.fft.irfft(np.fft.rfft(part, length) * np.conj(np.fft.rfft(window, length)), length)
        places = len(part) - size + 1
        sums = np.concatenate(([0.0], np.cumsum(part**2)))
        energies = np.maximum(sums[size:] - sums[:-size], 1.0)[:places]
        likeness = crossed[:places] / np.sqrt(energies * (window**2).sum())
        best = int(likeness.argmax())
        if likeness[best] > LEAST_LIKENESS:
            found.append(Match(start * 1_000 / rate_hz, (best - reach) * 1_000 / rate_hz))
    return Matching(tuple(found), windows)


def sounds_alone(
    one: np.ndarray, other: np.ndarray, rate_hz: int, found: Sequence[Match] = (Match(0.0, 0.0),)
) -> list[int]:
    """Return the milliseconds at which something is audible in ``one`` and not in ``other``.

    A sound of ``one`` is looked for within 20 ms of where the nearest of ``found`` says that it is.
    """
    begins = np.array([each.begin_ms for each in found])
    delays = np.array([each.delay_ms for each in found])
    frame = rate_hz * LEVEL_MS // 1_000

    def levels(samples: np.ndarray) -> np.ndarray:
        whole = samples[: len(samples) // frame * frame].astype(np.float64)
        return np.sqrt(np.mean(whole.reshape(-1, frame) ** 2, axis=1))

    loud = np.flatnonzero(levels(one) > LOUD_RMS)
    margin = len(one) // frame + 2 + round(np.abs(delays).max() / LEVEL_MS)
    there = np.pad(levels(other), margin)
    shifts = [round(delays[np.abs(begins - place * LEVEL_MS).argmin()] / LEVEL_MS) for place in loud]
    near = [
        there[margin + place + shift - 2 : margin + place + shift + 3].max()
        for place, shift in zip(loud, shifts, strict=True)
    ]
    return [int(place) * LEVEL_MS for place, level in zip(loud, near, strict=True) if level < LOUD_RMS / 4]


def turned(found: Sequence[Match]) -> list[Match]:
    """Return the same matches as windows of the other recording."""
    return [Match(each.begin_ms + each.delay_ms, -each.delay_ms) for each in found]
