"""Where a signal can be heard: the one definition of an audible edge, used on recordings and on live audio.

A signal is audible while its RMS over the last ``window_ms`` stays at or above ``threshold_dbfs`` (0 dBFS is
a full scale square wave), if it does so for at least ``min_ms``. The window slides sample by sample, so the
edges of a sound do not depend on where it lies in a recording: fixed hops moved the soft first sound of
"from" by up to 35 ms. The defaults, 20 ms at -45 dBFS over 10 ms, lie 20 dB below quiet speech and above the
faint noise that speech synthesis puts in front of the first sound; a click shorter than the window is not
audible. The first edge is the first sample in the first loud window that itself reaches the threshold, the
last edge the last such sample in the last loud window, so an edge is wrong by less than one window.

``audible_spans`` works on a whole recording, ``AudibleMeter`` on a stream in pieces of any size; both give
the same edges for the same samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.errors import ShapeError
from core.media import PCM_FULL_SCALE


@dataclass(frozen=True, slots=True)
class AudibleRule:
    """What counts as audible.

    Attributes:
        threshold_dbfs: RMS of a window from which on it is loud.
        window_ms: length of the window.
        min_ms: how long the windows have to stay loud.
    """

    threshold_dbfs: float = -45.0
    window_ms: int = 10
    min_ms: int = 20

    @property
    def amplitude(self) -> float:
        """The threshold as an amplitude, 0..1."""
        return float(10 ** (self.threshold_dbfs / 20))


AUDIBLE = AudibleRule()


@dataclass(frozen=True, slots=True)
class AudibleSpan:
    """A stretch of audible sound, by sample positions; both ends belong to it."""

    first: int
    last: int


def is_loud(samples: np.ndarray, rule: AudibleRule = AUDIBLE) -> bool:
    """Whether the RMS of a piece as a whole reaches the threshold: for a single packet.

    samples: float32, (samples,), in [-1, 1].

    Raises:
        ShapeError: not one-dimensional floating point.
    """
    _check(samples)
    return samples.size > 0 and float(np.vdot(samples, samples)) >= rule.amplitude**2 * samples.size


def is_loud_pcm16(pcm: bytes, rule: AudibleRule = AUDIBLE) -> bool:
    """The same for a packet of 16-bit PCM, fifty times a second for each call."""
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float32)
    return samples.size > 0 and float(np.vdot(samples, samples)) >= (
        (rule.amplitude * PCM_FULL_SCALE) ** 2 * samples.size
    )


def audible_spans(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> list[AudibleSpan]:
    """Every audible stretch, in order.

    samples: float32, (samples,), in [-1, 1].

    Raises:
        ShapeError: not one-dimensional floating point.
    """
    spans: list[AudibleSpan] = []
    AudibleMeter(rate_hz, rule, spans.append).feed(samples, last=True)
    return spans


def first_audible(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> int | None:
    """Position of the first audible sample, or None in silence."""
    spans = audible_spans(samples, rate_hz, rule)
    return spans[0].first if spans else None


def last_audible(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> int | None:
    """Position of the last audible sample, or None in silence."""
    spans = audible_spans(samples, rate_hz, rule)
    return spans[-1].last if spans else None


class AudibleMeter:
    """The edges of a stream that arrives in pieces.

    Args:
        rate_hz: rate of the stream.
        rule: what counts as audible.
        on_span: takes every audible stretch when it has ended.
    """

    def __init__(
        self, rate_hz: int, rule: AudibleRule = AUDIBLE, on_span: Callable[[AudibleSpan], None] | None = None
    ) -> None:
        self._amplitude = rule.amplitude
        self._window = rate_hz * rule.window_ms // 1000
        self._min_run = rate_hz * rule.min_ms // 1000
        self._on_span = on_span
        self._tail = np.zeros(self._window - 1, dtype=np.float64)
        self._seen = 0
        # The run of loud windows that is not over: its length, and the edges of the sound in it.
        self._run = 0
        self._run_first = 0
        self._run_last = 0
        self._first: int | None = None
        self._last: int | None = None

    @property
    def first_audible(self) -> int | None:
        """Position of the first audible sample of the stream, or None so far."""
        return self._first

    @property
    def last_audible(self) -> int | None:
        """Position of the last audible sample of the stream, or None so far."""
        return self._last

    @property
    def sounding(self) -> bool:
        """Whether the newest sample belongs to an audible stretch or ends within a window behind one."""
        return self._run >= self._min_run

    @property
    def samples_seen(self) -> int:
        """Length of the stream so far."""
        return self._seen

    def feed(self, samples: np.ndarray, *, last: bool = False) -> bool:
        """Take the next piece; True when it moved ``last_audible``.

        samples: float32, (samples,), in [-1, 1].
        last: the stream ends here.

        Raises:
            ShapeError: not one-dimensional floating point.
        """
        _check(samples)
        before = self._last
        heard = np.concatenate((self._tail, samples))
        if not self._run and float(np.vdot(heard, heard)) < self._amplitude**2 * self._window:
            # All of it together is too quiet for one loud window: most of every call is silence.
            self._remember(heard, samples.size)
            return False
        energy = np.concatenate(([0.0], np.cumsum(heard * heard)))
        loud = (energy[self._window :] - energy[: -self._window]) / self._window >= self._amplitude**2
        flips = np.flatnonzero(np.diff(np.concatenate(([False], loud, [False])).astype(np.int8)))
        if self._run and not (loud.size and loud[0]) and samples.size:
            self._end_run()
        for start, end in zip(flips[::2], flips[1::2], strict=True):
            self._extend_run(heard, int(start), int(end))
            if end < loud.size:
                self._end_run()
        self._remember(heard, samples.size)
        if last:
            self._end_run()
        return self._last != before

    def _remember(self, heard: np.ndarray, new_samples: int) -> None:
        self._tail = heard[heard.size - self._window + 1 :]
        self._seen += new_samples

    def _extend_run(self, heard: np.ndarray, start: int, end: int) -> None:
        """Windows ``start`` to ``end`` of this piece are loud; window n is ``heard[n : n + window]``."""
        origin = self._seen - self._window + 1
        if self._run == 0:
            self._run_first = origin + start + int(self._over(heard[start : start + self._window])[0])
        self._run_last = origin + end - 1 + int(self._over(heard[end - 1 : end - 1 + self._window])[-1])
        self._run += end - start
        if self._run >= self._min_run:
            self._first = self._run_first if self._first is None else self._first
            self._last = self._run_last

    def _over(self, window: np.ndarray) -> np.ndarray:
        """Where a loud window itself reaches the threshold; its loudest does, but for rounding."""
        magnitude = np.abs(window)
        return np.flatnonzero(magnitude >= min(self._amplitude, float(magnitude.max())))

    def _end_run(self) -> None:
        if self._run >= self._min_run and self._on_span is not None:
            self._on_span(AudibleSpan(self._run_first, self._run_last))
        self._run = 0


def _check(samples: np.ndarray) -> None:
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise ShapeError(f"expected floating point (samples,), got {samples.dtype} {samples.shape}")
