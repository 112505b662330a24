"""Where a signal can be heard: the one definition of an audible edge, used on recordings and on live audio.

Audible is a run of at least ``min_hops`` hops of ``hop_ms`` whose RMS reaches ``threshold_dbfs`` (0 dBFS is a
full scale square wave). The defaults, 2 hops of 10 ms at -45 dBFS, lie 20 dB below quiet speech and above the
faint noise that speech synthesis puts in front of the first sound; the second hop keeps a click from counting
as speech. Inside the first and the last hop of a run the edge is the outermost sample that itself reaches the
threshold, so an edge is wrong by less than one hop: a sound whose onset falls into a hop that stays below the
threshold as a whole starts in the next.

``audible_spans`` works on a whole recording, ``AudibleMeter`` on a stream in pieces of any size; both give
the same edges for the same samples.
"""

from dataclasses import dataclass

import numpy as np

from core.errors import ShapeError


@dataclass(frozen=True, slots=True)
class AudibleRule:
    """What counts as audible.

    Attributes:
        threshold_dbfs: RMS of a hop from which on it is loud.
        hop_ms: length of a hop.
        min_hops: consecutive loud hops that make a sound.
    """

    threshold_dbfs: float = -45.0
    hop_ms: int = 10
    min_hops: int = 2

    @property
    def amplitude(self) -> float:
        """The threshold as an amplitude, 0..1."""
        return float(10 ** (self.threshold_dbfs / 20))

    def hop_samples(self, rate_hz: int) -> int:
        """Samples of one hop at ``rate_hz``."""
        return rate_hz * self.hop_ms // 1000


AUDIBLE = AudibleRule()


@dataclass(frozen=True, slots=True)
class AudibleSpan:
    """A stretch of audible sound, by sample positions; both ends belong to it."""

    first: int
    last: int


def loud_hops(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> np.ndarray:
    """Which hops reach the threshold: bool, (hops,). The last hop may be short and is judged by the samples
    it has.

    samples: float32, (samples,), in [-1, 1].

    Raises:
        ShapeError: not one-dimensional floating point.
    """
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise ShapeError(f"expected floating point (samples,), got {samples.dtype} {samples.shape}")
    if samples.size == 0:
        return np.zeros(0, dtype=bool)
    starts = np.arange(0, samples.size, rule.hop_samples(rate_hz))
    energy = np.add.reduceat(samples.astype(np.float64) ** 2, starts)
    lengths = np.diff(np.append(starts, samples.size))
    return energy / lengths >= rule.amplitude**2


def audible_spans(samples: np.ndarray, rate_hz: int, rule: AudibleRule = AUDIBLE) -> list[AudibleSpan]:
    """Every audible stretch, in order; stretches apart by one quiet hop are two.

    samples: float32, (samples,), in [-1, 1].

    Raises:
        ShapeError: not one-dimensional floating point.
    """
    loud = loud_hops(samples, rate_hz, rule)
    flips = np.flatnonzero(np.diff(np.concatenate(([False], loud, [False])).astype(np.int8)))
    hop = rule.hop_samples(rate_hz)
    spans = []
    for start, end in zip(flips[::2], flips[1::2], strict=True):
        if end - start < rule.min_hops:
            continue
        head = np.abs(samples[start * hop : (start + 1) * hop]) >= rule.amplitude
        tail = np.abs(samples[(end - 1) * hop : end * hop]) >= rule.amplitude
        spans.append(
            AudibleSpan(
                int(start * hop + np.argmax(head)),
                int((end - 1) * hop + tail.size - 1 - np.argmax(tail[::-1])),
            )
        )
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

    A sound is known once ``min_hops`` hops of it are complete; samples of an unfinished hop wait for the next
    piece.

    Args:
        rate_hz: rate of the stream.
        rule: what counts as audible.
    """

    def __init__(self, rate_hz: int, rule: AudibleRule = AUDIBLE) -> None:
        self._rule = rule
        self._hop = rule.hop_samples(rate_hz)
        self._rest = np.zeros(0, dtype=np.float32)
        self._hops_seen = 0
        self._run_hops = 0
        self._run_first = 0
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
        """Whether the newest complete hop belongs to an audible stretch."""
        return self._run_hops >= self._rule.min_hops

    @property
    def samples_judged(self) -> int:
        """Samples in complete hops."""
        return self._hops_seen * self._hop

    def feed(self, samples: np.ndarray) -> bool:
        """Take the next piece; True when it moved ``last_audible``.

        samples: float32, (samples,), in [-1, 1].

        Raises:
            ShapeError: not one-dimensional floating point.
        """
        if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
            raise ShapeError(f"expected floating point (samples,), got {samples.dtype} {samples.shape}")
        before = self._last
        pending = np.concatenate((self._rest, samples))
        whole = pending.size // self._hop
        for hop in pending[: whole * self._hop].reshape(whole, self._hop):
            self._judge(hop)
        self._rest = pending[whole * self._hop :]
        return self._last != before

    def _judge(self, hop: np.ndarray) -> None:
        start = self._hops_seen * self._hop
        self._hops_seen += 1
        wide = hop.astype(np.float64)
        if wide @ wide / self._hop < self._rule.amplitude**2:
            self._run_hops = 0
            return
        over = np.flatnonzero(np.abs(hop) >= self._rule.amplitude)
        if self._run_hops == 0:
            self._run_first = start + int(over[0])
        self._run_hops += 1
        if self._run_hops >= self._rule.min_hops:
            self._first = self._run_first if self._first is None else self._first
            self._last = start + int(over[-1])
