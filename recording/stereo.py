"""Record a call as a stereo WAV: the caller left, the bot right, on one time line.

Pieces are placed by their time from the start of the call, in any order within ``WINDOW_MS``; gaps are
silence. Older audio is written out, so memory does not grow with the call. ``settle`` takes it from the time
line, on the thread that places pieces. ``write`` writes it to the disk and blocks; it may run on any thread.
A late write, even after ``close``, finds nothing left to do.
"""

import threading
import wave
from collections import deque
from enum import IntEnum
from pathlib import Path

import numpy as np

from parley.core.errors import MediaError
from parley.core.media import ms_to_samples

WINDOW_MS = 10_000


class Side(IntEnum):
    """The channels of a recording."""

    CALLER = 0
    BOT = 1


class StereoRecording:
    """Writer of one WAV file.

    Args:
        path: created or overwritten.
        rate_hz: of the file and of every piece.
    """

    def __init__(self, path: Path, *, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._path = path
        # Opened here and not by ``wave``, which tries again to close a file that failed to close.
        self._raw = path.open("wb")
        self._file = wave.open(self._raw, "wb")
        self._file.setnchannels(2)
        self._file.setsampwidth(2)
        self._file.setframerate(rate_hz)
        self._settled_samples = 0
        # Settled audio on its way to the file, oldest first. The lock is held while it is written.
        self._settled: deque[bytes] = deque()
        self._writing = threading.Lock()
        self._open = np.zeros((ms_to_samples(2 * WINDOW_MS, rate_hz), 2), dtype="<i2")
        self._end = 0

    @property
    def end_samples(self) -> int:
        """Length so far, in samples."""
        return self._settled_samples + self._end

    def place(self, side: Side, at_samples: int, pcm: bytes) -> None:
        """Place a piece at its position. The part that lies before settled audio is dropped."""
        samples = np.frombuffer(pcm, dtype="<i2")
        start = at_samples - self._settled_samples
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

    def settle(self) -> None:
        """Queue the audio that is older than the window for ``write``."""
        settled = self._end - ms_to_samples(WINDOW_MS, self.rate_hz)
        if settled > 0:
            self._take(settled)

    def write(self) -> None:
        """Write the settled audio to the disk. Blocks; may be called from any thread.

        Raises:
            MediaError: the file cannot be written (a full disk).
        """
        with self._writing:
            try:
                while self._settled:
                    self._file.writeframes(self._settled.popleft())
            except OSError as error:
                raise MediaError(f"cannot write {self._path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Write the rest and close the file. Blocks.

        Raises:
            MediaError: as ``write`` does.
        """
        self._take(self._end)
        try:
            self.write()
        finally:
            self._close_file()

    def _close_file(self) -> None:
        try:
            try:
                self._file.close()
            finally:
                self._raw.close()
        except OSError as error:
            raise MediaError(f"cannot write {self._path}: {error.strerror or error}") from error

    def _take(self, samples: int) -> None:
        self._settled.append(self._open[:samples].tobytes())
        rest = self._open[samples : self._end].copy()
        self._open[: len(rest)] = rest
        self._open[len(rest) : self._end] = 0
        self._settled_samples += samples
        self._end = len(rest)
