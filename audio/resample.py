"""Streaming resampler with a short, known delay and no bursts.

A windowed-sinc interpolator (Smith and Gossett, "A flexible sampling-rate conversion method", ICASSP 1984).
Every output sample is the sum of the input around it, weighted by a sinc that is cut off below the lower of
the two Nyquist frequencies. An output leaves as soon as the input that it needs has arrived. The delay is
therefore half the sinc (2 ms from 16 to 8 kHz) and the same for every sample, whatever the pieces were.
Streams of soxr deliver in bursts and 20 to 37 ms late, too much for a microphone that barge-in depends on.
"""

from math import gcd

import numpy as np
from numpy.lib.stride_tricks import as_strided

from parley.core.errors import ShapeError

# Zero crossings of the sinc on each side, and the Kaiser window's shape: 16 and 8.6 put the stop band below
# -80 dB and the edge of the pass band at 0.9 of the cut-off.
ZERO_CROSSINGS = 16
KAISER_BETA = 8.6
CUT_OFF = 0.92
# Number of fractions of a sample that are distinguished where the position is arbitrary: half a step is an
# error of -66 dB at half of the Nyquist frequency.
FINE_PHASES = 1024
FINE_TAPS = 32
# Up to this many phases, all are computed at each place and the needed ones selected.
FEW_PHASES = 3


class Resampler:
    """Resampler of one stream. Chunk lengths do not change the result.

    Args:
        from_hz: rate of the input.
        to_hz: rate of the output.

    Raises:
        ValueError: a rate is not positive.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        if from_hz < 1 or to_hz < 1:
            raise ValueError(f"from {from_hz} to {to_hz} Hz")
        common = gcd(from_hz, to_hz)
        self._up, self._down = to_hz // common, from_hz // common
        # Relative to the input's Nyquist frequency.
        cut_off = CUT_OFF * min(1.0, to_hz / from_hz)
        self._half = 0 if self._up == self._down else int(np.ceil(ZERO_CROSSINGS / cut_off))
        phases = np.arange(self._up) / self._up
        self._filters = (
            sinc_filters(phases, self._half, cut_off) if self._half else np.ones((1, 1), np.float32)
        )
        # Input that later outputs still need, and the position of the next output in it, in ``up``-ths of a
        # sample.
        self._tail = np.zeros(max(0, self._half - 1), dtype=np.float32)
        self._next = max(0, self._half - 1) * self._up

    @property
    def delay_samples(self) -> int:
        """Number of input samples after an output's place that must arrive before it leaves."""
        return self._half

    def _every(self, known: np.ndarray, count: int) -> np.ndarray:
        """Return ``count`` outputs from all phases at each place: a third of the time of indexing by
        place.
        """
        if not count:
            return np.zeros(0, dtype=np.float32)
        first = self._next // self._up
        places = (self._next + self._down * (count - 1)) // self._up + 1 - first
        step = self._down if self._up == 1 else 1
        # Neighbouring windows overlap, so they are views and not copies.
        windows = as_strided(
            known[first - self._half + 1 :],
            ((places + step - 1) // step, 2 * self._half),
            (known.itemsize * step, known.itemsize),
        )
        made: np.ndarray = np.einsum("nt,pt->np", windows, self._filters).ravel()
        return made if self._up == 1 else made[self._next - first * self._up :: self._down][:count]

    def feed(self, samples: np.ndarray) -> np.ndarray:
        """Return the outputs, float32, (outputs,), that ``samples``, float32, (samples,), makes possible.

        Raises:
            ShapeError: not one-dimensional.
        """
        if samples.ndim != 1:
            raise ShapeError(f"expected (samples,), got {samples.shape}")
        if not self._half:
            return samples.astype(np.float32, copy=True)
        known = np.concatenate((self._tail, samples.astype(np.float32, copy=False)))
        taps = 2 * self._half
        # An output at place p needs known[p - half + 1 : p + half + 1].
        last = len(known) - self._half - 1
        count = max(0, (last * self._up + self._up - 1 - self._next) // self._down + 1) if last >= 0 else 0
        if self._up <= FEW_PHASES:
            made = self._every(known, count)
        else:
            places, phases = np.divmod(self._next + self._down * np.arange(count), self._up)
            windows = known[(places - self._half + 1)[:, None] + np.arange(taps)]
            made = np.einsum("nt,nt->n", windows, self._filters[phases])
        self._next += self._down * count
        drop = max(0, min(self._next // self._up - self._half + 1, len(known)))
        self._tail = known[drop:]
        self._next -= drop * self._up
        return made


def sinc_filters(phases: np.ndarray, half: int, cut_off: float) -> np.ndarray:
    """Return interpolation filters: float32, (phases, 2 * half), of unit gain at 0 Hz.

    phases: float, (phases,), position between two samples, 0..1.
    half: number of samples on each side.
    cut_off: relative to the Nyquist frequency.
    """
    distance = np.arange(-half + 1, half + 1)[None, :] - phases[:, None]
    window = np.i0(KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (distance / half) ** 2))) / np.i0(KAISER_BETA)
    filters = np.sinc(cut_off * distance) * window
    result: np.ndarray = (filters / filters.sum(axis=1, keepdims=True)).astype(np.float32)
    return result


class FineReader:
    """Reader of an array at places between samples, for a clock that runs a little fast or slow."""

    half = FINE_TAPS // 2

    def __init__(self) -> None:
        self._filters = sinc_filters(np.arange(FINE_PHASES + 1) / FINE_PHASES, self.half, CUT_OFF)
        self._taps = np.arange(FINE_TAPS)

    def read(self, known: np.ndarray, first: float, step: float, count: int) -> np.ndarray:
        """Return float32, (count,), at ``first``, ``first + step``...

        known: float32, (samples,), with ``half`` samples around all that is read.

        Raises:
            ShapeError: ``known`` has fewer.
        """
        places = first + step * np.arange(count)
        whole = np.floor(places).astype(np.int64)
        if count and (whole[0] < self.half - 1 or whole[-1] + self.half >= len(known)):
            raise ShapeError(f"{len(known)} samples do not surround {first} to {places[-1]}")
        phases = np.rint((places - whole) * FINE_PHASES).astype(np.int64)
        windows = known[(whole - self.half + 1)[:, None] + self._taps]
        result: np.ndarray = np.einsum("nt,nt->n", windows, self._filters[phases])
        return result
