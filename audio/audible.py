"""Audible edges of a signal: the one definition, used on recordings and on live audio.

A signal is audible while its RMS over the last ``window_ms`` stays at or above ``threshold_dbfs``, if it does
so for at least ``min_ms``. 0 dBFS is a full-scale square wave. The window slides sample by sample, so the
edges of a sound do not depend on its place in a recording. Fixed hops moved the soft first sound of "from" by
up to 35 ms.

The defaults, 20 ms at -45 dBFS over 10 ms, lie 20 dB below quiet speech and above the faint noise that speech
synthesis adds before the first sound. A click shorter than the window is not audible. The first edge is the
first sample in the first loud window that itself reaches the threshold. The last edge is the last such sample
in the last loud window. An edge is therefore wrong by less than one window.

``audible_spans`` works on a whole recording, ``AudibleMeter`` on a stream in pieces of any size; both give
the same edges for the same samples.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from parley.core.errors import ShapeError
from parley.core.media import PCM_FULL_SCALE

# A piece whose energy is below this share of that of one loud window has none, whatever the rounding.
QUIETER = 0.999


@dataclass(frozen=True, slots=True)
class AudibleRule:
    """Rule for an audible sound.

    Attributes:
        threshold_dbfs: RMS at and above which a window is loud.
        window_ms: length of the window.
        min_ms: time for which the windows have to stay loud.
    """

    threshold_dbfs: float = -45.0
    window_ms: int = 10
    min_ms: int = 20

    @property
    def amplitude(self) -> float:
        """Threshold as an amplitude, 0..1."""
        return float(10 ** (self.threshold_dbfs / 20))


AUDIBLE = AudibleRule()


@dataclass(frozen=True, slots=True)
class AudibleSpan:
    """Stretch of audible sound, by sample positions, both inclusive."""

    first: int
    last: int


def is_loud(samples: np.ndarray, rule: AudibleRule = AUDIBLE) -> bool:
    """Return whether the RMS of a whole piece reaches the threshold; meant for a single packet.

    samples: float32, (samples,), in [-1, 1].

    Raises:
        ShapeError: not one-dimensional floating point.
    """
    _check(samples)
    return samples.size > 0 and float(np.vdot(samples, samples)) >= rule.amplitude**2 * samples.size


def is_loud_pcm16(pcm: bytes, rule: AudibleRule = AUDIBLE) -> bool:
    """Return the same for a packet of 16-bit PCM; called fifty times a second for each call."""
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float32)
    return samples.size > 0 and float(np.vdot(samples, samples)) >= (
        (rule.amplitude * PCM_FULL_SCALE) ** 2 * samples.size
    )


def audible_spans(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> list[AudibleSpan]:
    """Return every audible stretch, in order.

    samples: float32, (samples,), in [-1, 1].

    Raises:
        ShapeError: not one-dimensional floating point.
    """
    spans: list[AudibleSpan] = []
    AudibleMeter(rate_hz, rule, spans.append).feed(samples, last=True)
    return spans


def first_audible(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> int | None:
    """Return the position of the first audible sample, or None in silence."""
    spans = audible_spans(samples, rate_hz, rule)
    return spans[0].first if spans else None


def last_audible(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> int | None:
    """Return the position of the last audible sample, or None in silence."""
    spans = audible_spans(samples, rate_hz, rule)
    return spans[-1].last if spans else None


class AudibleMeter:
    """Meter of the audible edges of a stream that arrives in pieces.

    Args:
        rate_hz: rate of the stream.
        rule: rule for an audible sound.
        on_span: called with every audible stretch when it has ended.
    """

    def __init__(
        self, rate_hz: int, rule: AudibleRule = AUDIBLE, on_span: Callable[[AudibleSpan], None] | None = None
    ) -> None:
        self._amplitude = rule.amplitude
        self._window = rate_hz * rule.window_ms // 1000
        self._min_run = rate_hz * rule.min_ms // 1000
        self._on_span = on_span
        # The last samples, which windows of the next piece begin with, and their energy.
        self._tail = np.zeros(self._window - 1, dtype=np.float32)
        self._tail_energy = 0.0
        self._loud_energy = rule.amplitude**2 * self._window
        self._seen = 0
        # Current run of loud windows: its length, and the edges of the sound in it.
        self._run = 0
        self._run_first = 0
        self._run_last = 0
        self._first: int | None = None
        self._last: int | None = None

    @property
    def first_audible(self) -> int | None:
        """Position of the first audible sample of the stream; None before there is one."""
        return self._first

    @property
    def last_audible(self) -> int | None:
        """Position of the last audible sample of the stream so far; None before there is one."""
        return self._last

    @property
    def sounding(self) -> bool:
        """True when the newest sample belongs to an audible stretch or ends within a window after one."""
        return self._run >= self._min_run

    @property
    def samples_seen(self) -> int:
        """Length of the stream so far."""
        return self._seen

    def feed(self, samples: np.ndarray, *, last: bool = False) -> bool:
        """Process the next piece; return True when it moved ``last_audible``.

        samples: float32, (samples,), in [-1, 1].
        last: the stream ends here.

        Raises:
            ShapeError: not one-dimensional floating point.
        """
        _check(samples)
        before = self._last
        if not self._run:
            energy = self._tail_energy + float(np.vdot(samples, samples))
            if energy < QUIETER * self._loud_energy:
                # The whole piece is too quiet for one loud window: most of every call is silence.
                self._remember(samples)
                return False
        heard = np.concatenate((self._tail, samples), dtype=np.float64)
        sums = np.zeros(heard.size + 1)
        np.cumsum(heard * heard, out=sums[1:])
        loud = sums[self._window :] - sums[: -self._window] >= self._loud_energy
        if self._run and samples.size and not loud[0]:
            self._end_run()
        for start, end in _runs(loud):
            self._extend_run(heard, start, end)
            if end < loud.size:
                self._end_run()
        self._remember(samples)
        if last:
            self._end_run()
        return self._last != before

    def _remember(self, samples: np.ndarray) -> None:
        kept = self._window - 1
        if samples.size < kept:
            samples_kept = np.concatenate((self._tail[samples.size :], samples))
        else:
            samples_kept = samples[samples.size - kept :].copy()
        self._tail = samples_kept
        self._tail_energy = float(np.vdot(samples_kept, samples_kept))
        self._seen += samples.size

    def _extend_run(self, heard: np.ndarray, start: int, end: int) -> None:
        """Extend the run by the loud windows ``start`` to ``end``; window n is ``heard[n : n + window]``."""
        origin = self._seen - self._window + 1
        if self._run == 0:
            self._run_first = origin + start + int(self._over(heard[start : start + self._window])[0])
        self._run_last = origin + end - 1 + int(self._over(heard[end - 1 : end - 1 + self._window])[-1])
        self._run += end - start
        if self._run >= self._min_run:
            self._first = self._run_first if self._first is None else self._first
            self._last = self._run_last

    def _over(self, window: np.ndarray) -> np.ndarray:
        """Return the positions in a loud window that reach the threshold; the loudest does, except for
        rounding.
        """
        magnitude = np.abs(window)
        return np.flatnonzero(magnitude >= min(self._amplitude, float(magnitude.max())))

    def _end_run(self) -> None:
        if self._run >= self._min_run and self._on_span is not None:
            self._on_span(AudibleSpan(self._run_first, self._run_last))
        self._run = 0


def _runs(loud: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each run of True."""
    count = np.count_nonzero(loud)
    if count == loud.size:
        # Most pieces of speech.
        yield from [(0, loud.size)] if count else []
    elif count:
        flips = np.flatnonzero(np.diff(np.concatenate(([False], loud, [False])).view(np.int8)))
        yield from zip(flips[::2].tolist(), flips[1::2].tolist(), strict=True)


def _check(samples: np.ndarray) -> None:
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise ShapeError(f"expected floating point (samples,), got {samples.dtype} {samples.shape}")
