"""A call as a stereo WAV: the caller left, the bot right, on one time line.

Pieces are placed by their time from the start of the call, in any order within ``WINDOW_MS``; what nobody
placed is silence. Older audio is written out, so memory does not grow with the call. Not thread-safe;
``flush`` blocks on the disk: call it in a thread.
"""

import wave
from enum import IntEnum
from pathlib import Path

import numpy as np

from core.media import ms_to_samples

WINDOW_MS = 10_000


class Side(IntEnum):
    """The channels of a recording."""

    CALLER = 0
    BOT = 1


class StereoRecording:
    """Writes one WAV file.

    Args:
        path: created or overwritten.
        rate_hz: of the file and of every piece.
    """

    def __init__(self, path: Path, *, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._file = wave.open(str(path), "wb")
        self._file.setnchannels(2)
        self._file.setsampwidth(2)
        self._file.setframerate(rate_hz)
        self._written = 0
        self._open = np.zeros((ms_to_samples(2 * WINDOW_MS, rate_hz), 2), dtype="<i2")
        self._end = 0

    @property
    def end_samples(self) -> int:
        """Length so far."""
        return self._written + self._end

    def place(self, side: Side, at_samples: int, pcm: bytes) -> None:
        """Put a piece at its position; the part that lies before what is already written is dropped."""
        samples = np.frombuffer(pcm, dtype="<i2")
        start = at_samples - self._written
        if start < 0:
            samples = samples[-start:]
            start = 0
        if not len(samples):
            return
        needed = start + len(samples)
        if needed > len(self._open):
            grown = np.zeros((max(needed, 2 * len(self._open)), 2), dtype="<i2")
            grown[: self._end] = self._open[: self._end]
            self._open = grown
        self._open[start:needed, side] = samples
        self._end = max(self._end, needed)

    def flush(self) -> None:
        """Write out what is older than the window."""
        settled = self._end - ms_to_samples(WINDOW_MS, self.rate_hz)
        if settled > 0:
            self._write(settled)

    def _write(self, samples: int) -> None:
        self._file.writeframes(self._open[:samples].tobytes())
        rest = self._open[samples : self._end].copy()
        self._open[: len(rest)] = rest
        self._open[len(rest) : self._end] = 0
        self._written += samples
        self._end = len(rest)

    def close(self) -> None:
        """Write the rest and close the file."""
        self._write(self._end)
        self._file.close()
