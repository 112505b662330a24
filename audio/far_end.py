"""What was played, and when: the reference of the echo canceller.

Playout tells each piece at the moment when it leaves, with the time of the session's clock. Pieces that
follow each other are joined without a seam, however late the loop was; where nothing was played for longer
than ``gap_ms`` there is silence of that length. The last ``keep_ms`` are kept. A reader asks for places on
the same axis (samples since the clock's zero), also between samples and at a pace of its own: that is how
delay and drift of the two clocks are taken out.

``NearAxis`` puts the microphone's stream, which has no times but those of its arrivals, on that axis: by its
count of samples, because arrivals are late by chance. The count is put right where it is ahead of the
arrivals (it began with pieces that were late), and anew when arrivals have parted from it (audio was lost, or
a device was away).
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from audio.resample import FineReader
from core.errors import ShapeError

US_PER_S = 1_000_000


class FarEnd:
    """The last of what was played. One thread at a time.

    Args:
        rate_hz: of the pieces and of what is read.
        keep_ms: how much is kept.
        gap_ms: a piece that comes so much later than the end of the one before does not follow it directly.
    """

    def __init__(self, rate_hz: int, *, keep_ms: int = 2_000, gap_ms: int = 40) -> None:
        self._rate_hz = rate_hz
        self._gap = rate_hz * gap_ms // 1000
        self._size = rate_hz * keep_ms // 1000
        # Twice the size: it is moved to the front once in a while, so that what is kept lies in one piece.
        self._kept = np.zeros(2 * self._size, dtype=np.float32)
        self._used = 0
        self._end: int | None = None
        self._fine = FineReader()

    @property
    def end(self) -> int | None:
        """The place behind the last sample that was played; None before any."""
        return self._end

    def played(self, samples: np.ndarray, at_us: int) -> None:
        """A piece leaves at ``at_us``.

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
        """float32, (count,), from ``place`` on, every ``step``; silence where nothing was played or kept."""
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
    """A piece of the microphone.

    Attributes:
        place: of its first sample.
        earlier: the count was ahead by so many samples. It is put right from this piece on, which follows the
            piece before: that one lay too far ahead, too.
        parted: it does not follow the piece before.
    """

    place: int
    earlier: int = 0
    parted: bool = False


class NearAxis:
    """Where the frames of the microphone lie on the axis of the session's clock.

    Args:
        rate_hz: of the frames.
        parted_ms: arrivals may be later than the count by so much before the count is corrected.
        ahead_ms: the count may be ahead of them by so much. A frame does not come before it was recorded:
            what is ahead has its reference in the future, where nothing was played yet.
        window: so many arrivals are looked at: the least late of them was hardly late at all.
    """

    def __init__(self, rate_hz: int, *, parted_ms: int = 60, ahead_ms: int = 5, window: int = 50) -> None:
        self._rate_hz = rate_hz
        self._ahead = rate_hz * ahead_ms // 1000
        self._parted = rate_hz * parted_ms // 1000
        self._lateness: deque[int] = deque(maxlen=window)
        self._next: int | None = None

    def arrived(self, samples: int, at_us: int) -> Arrival:
        """A piece of so many samples arrived, whose last was just recorded."""
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
