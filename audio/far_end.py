"""Record of playback with its times: the reference of the echo canceller.

Playout reports each piece when it leaves, with the time of the session's clock. Consecutive pieces are joined
without a seam, however late the loop was. A pause longer than ``gap_ms`` becomes silence of that length. The
last ``keep_ms`` are kept. A reader requests places on the same axis (samples since the clock's zero), also
between samples and at a pace of its own. Delay and drift of the two clocks are removed in this way.

``NearAxis`` places the microphone's stream, which has no times except those of its arrivals, on that axis. It
does so by the count of samples, because arrivals are late at random. The count is corrected where it is ahead
of the arrivals (it began with pieces that were late). It is set anew when arrivals have moved away from it
(audio was lost, or a device was disconnected).
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from parley.audio.resample import FineReader
from parley.core.errors import ShapeError

US_PER_S = 1_000_000


class FarEnd:
    """Most recent playback. Used by one thread at a time.

    Args:
        rate_hz: rate of the pieces and of what is read.
        keep_ms: duration that is kept.
        gap_ms: a piece that comes this much later than the end of the previous one does not follow it
            directly.
    """

    def __init__(self, rate_hz: int, *, keep_ms: int = 2_000, gap_ms: int = 40) -> None:
        self._rate_hz = rate_hz
        self._gap = rate_hz * gap_ms // 1000
        self._size = rate_hz * keep_ms // 1000
        # Twice the size: it is moved to the front occasionally, so that the kept audio is contiguous.
        self._kept = np.zeros(2 * self._size, dtype=np.float32)
        self._used = 0
        self._end: int | None = None
        self._fine = FineReader()

    @property
    def end(self) -> int | None:
        """Place after the last sample that was played; None before any."""
        return self._end

    def played(self, samples: np.ndarray, at_us: int) -> None:
        """Record a piece that leaves at ``at_us``.

        samples: float32, (samples,), in [-1, 1].

        Raises:
            ShapeError: not one-dimensional.
        """
        if samples.ndim != 1:
            raise ShapeError(f"expected (samples,), got {samples.shape}")
        place = at_us * self._rate_hz // US_PER_S
        if self._end is None:
            self._end = place
        missing = place - self._end
        if missing > self._gap:
            self._append(np.zeros(min(missing, self._size), dtype=np.float32))
            self._end = place
        self._append(samples[-self._size :])
        self._end += len(samples)

    def read(self, place: float, count: int, step: float = 1.0) -> np.ndarray:
        """Return float32, (count,), from ``place`` on, every ``step``; silence where nothing was played or
        kept.
        """
        if step == 1.0 and place == int(place):
            return self._span(int(place), count)
        half = self._fine.half
        first = int(np.floor(place)) - half
        known = self._span(first, int(np.ceil(count * step)) + 2 * half + 2)
        if not known.any():
            return np.zeros(count, dtype=np.float32)
        return self._fine.read(known, place - first, step, count)

    def _append(self, samples: np.ndarray) -> None:
        if self._used + len(samples) > len(self._kept):
            keep = min(self._used, self._size)
            self._kept[:keep] = self._kept[self._used - keep : self._used]
            self._used = keep
        self._kept[self._used : self._used + len(samples)] = samples
        self._used += len(samples)

    def _span(self, first: int, count: int) -> np.ndarray:
        span = np.zeros(count, dtype=np.float32)
        if self._end is None:
            return span
        begins = self._end - self._used
        low, high = max(first, begins), min(first + count, self._end)
        if low < high:
            span[low - first : high - first] = self._kept[low - begins : high - begins]
        return span


@dataclass(frozen=True, slots=True)
class Arrival:
    """Arrival of a piece of the microphone.

    Attributes:
        place: place of its first sample.
        earlier: number of samples by which the count was ahead. The correction applies from this piece on,
            which still follows the previous one: that one was placed too far ahead as well.
        parted: it does not follow the previous piece.
    """

    place: int
    earlier: int = 0
    parted: bool = False


class NearAxis:
    """Position of the microphone's frames on the axis of the session's clock.

    Args:
        rate_hz: rate of the frames.
        parted_ms: lateness of arrivals relative to the count at which the count is corrected.
        ahead_ms: lead of the count over the arrivals that is allowed. A frame cannot come before it was
            recorded: a frame placed ahead has its reference in the future, where nothing was played yet.
        window: number of arrivals that are compared; the least late of them was hardly late at all.
    """

    def __init__(self, rate_hz: int, *, parted_ms: int = 60, ahead_ms: int = 5, window: int = 50) -> None:
        self._rate_hz = rate_hz
        self._ahead = rate_hz * ahead_ms // 1000
        self._parted = rate_hz * parted_ms // 1000
        self._lateness: deque[int] = deque(maxlen=window)
        self._next: int | None = None

    def arrived(self, samples: int, at_us: int) -> Arrival:
        """Record the arrival of a piece whose last sample was just recorded; return its place."""
        place = at_us * self._rate_hz // US_PER_S - samples
        if self._next is None:
            self._next = place
        self._lateness.append(place - self._next)
        full = len(self._lateness) == self._lateness.maxlen
        off = min(self._lateness)
        parted = full and off > self._parted
        earlier = -off if off < -self._ahead else 0
        if parted or earlier:
            self._next += off
            self._lateness.clear()
        first = self._next
        self._next += samples
        return Arrival(first, earlier, parted)
