"""What a caller says, as one stream without holes: pieces with their places in, 16-bit PCM at 8 kHz out.

A piece that the telephone network lost is a jump of the places. It is filled as receivers do it: the last
piece again, softer each time, and silence behind ``CONCEALED_MS`` (ITU-T G.711, appendix I, without its
search for a pitch). A recogniser and the turns count in samples, so a hole that is not filled makes a word
shorter and a pause too. A jump of more than ``LONGEST_HOLE_MS`` is a call that was held: so much silence
and no more.

What overlaps what was there is left out: a piece that comes twice is heard once. Pure. Nothing waits here:
the stream comes over TCP, in order, and a piece that is late is late for everybody.
"""

import numpy as np

from audio import g711
from core.media import PCM_BYTES_PER_SAMPLE
from protocols.twilio_media import RATE_HZ

SAMPLES_PER_MS = RATE_HZ // 1000
CONCEALED_MS, LONGEST_HOLE_MS = 60, 1_000
# Of each piece that is heard again.
SOFTER = 0.5


class CallerLine:
    """One caller.

    Attributes:
        heard_ms: of the call, holes included.
        filled_ms: of it that never came.
        repeated_ms: that came and were there already.
    """

    def __init__(self) -> None:
        self._next_ms: int | None = None
        self._last = np.zeros(0, np.float32)
        self.heard_ms = self.filled_ms = self.repeated_ms = 0

    def hear(self, mu_law: bytes, at_ms: int) -> bytes:
        """The next piece, behind what fills the hole in front of it."""
        pcm = g711.decode(mu_law, g711.Law.MU)
        long_ms = len(pcm) // SAMPLES_PER_MS
        if self._next_ms is None:
            self._next_ms = at_ms
        early_ms = self._next_ms - at_ms
        filler = np.zeros(0, np.int16)
        if early_ms > 0:
            over_ms = min(early_ms, long_ms)
            pcm = pcm[over_ms * SAMPLES_PER_MS :]
            self.repeated_ms += over_ms
        elif early_ms < 0:
            filler = self._filler(min(-early_ms, LONGEST_HOLE_MS))
            self.filled_ms += len(filler) // SAMPLES_PER_MS
        self._next_ms = max(self._next_ms, at_ms + long_ms)
        if len(pcm):
            self._last = pcm[-20 * SAMPLES_PER_MS :].astype(np.float32)
        whole = np.concatenate((filler, pcm)) if len(filler) else pcm
        self.heard_ms += len(whole) // SAMPLES_PER_MS
        return whole.astype("<i2").tobytes()

    def _filler(self, long_ms: int) -> np.ndarray:
        samples = long_ms * SAMPLES_PER_MS
        filler = np.zeros(samples, np.int16)
        again, gain, place = self._last, 1.0, 0
        while len(again) and place < min(samples, CONCEALED_MS * SAMPLES_PER_MS):
            piece = again[: samples - place] * np.linspace(gain, gain * SOFTER, len(again))[: samples - place]
            filler[place : place + len(piece)] = piece.astype(np.int16)
            place += len(piece)
            gain *= SOFTER
        return filler


def pcm_ms(pcm: bytes) -> int:
    """How long PCM of a telephone is."""
    return len(pcm) // (PCM_BYTES_PER_SAMPLE * SAMPLES_PER_MS)
