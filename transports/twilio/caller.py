"""What a caller says, as one stream without holes: pieces with their places in, 16-bit PCM at 8 kHz out.

A piece that the telephone network lost is a jump of the places. Up to ``CONCEALED_MS`` of it are filled from
both sides (``audio.concealment``), a longer hole at its beginning alone. A recogniser and the turns count in
samples, so a hole that is not filled makes a word shorter and a pause too. A piece that is early was there
already, and is left out.

Places are believed as far as they can be true; whatever they are, the caller is heard. Less than a packet is
no hole: clocks are rounded. More than ``LONGEST_HOLE_MS`` either way is no place in this call, and
``MOST_REPEATED_MS`` of pieces that were all there already are none: places that stand still or begin anew.
Counting goes on from there, and places count for nothing until they have gone on as they should for
``TRUSTED_MS``.

Pure. Nothing waits here: the stream comes over TCP, in order, and a piece that is late is late for everybody.
"""

from collections import deque

import numpy as np

from audio import g711
from audio.concealment import HISTORY_MS, conceal, fade_out
from core.media import PCM_BYTES_PER_SAMPLE
from protocols.twilio_media import PACKET_MS, RATE_HZ

SAMPLES_PER_MS = RATE_HZ // 1000
CONCEALED_MS, LONGEST_HOLE_MS = 60, 1_000
HISTORY, LAST_PIECES = HISTORY_MS * SAMPLES_PER_MS, -(-HISTORY_MS // PACKET_MS)
MOST_REPEATED_MS, TRUSTED_MS = 100, 1_000


class CallerLine:
    """One caller.

    Attributes:
        heard_ms: of the call, holes included.
        filled_ms: of it that never came.
        repeated_ms: that came and were there already.
        resynchronised: how often places were none, and counting went on from there.
    """

    def __init__(self) -> None:
        self._next_ms: int | None = None
        # The newest: looked at where there is a hole.
        self._pieces: deque[np.ndarray] = deque([np.zeros(0, np.int16)], maxlen=LAST_PIECES)
        # Repeated lately; what is left until places are believed again.
        self._again_ms = self._doubted_ms = 0
        self.heard_ms = self.filled_ms = self.repeated_ms = self.resynchronised = 0

    def hear(self, mu_law: bytes, at_ms: int) -> bytes:
        """The next piece, behind what fills the hole in front of it."""
        pcm = g711.decode(mu_law, g711.Law.MU)
        long_ms = len(pcm) // SAMPLES_PER_MS
        early_ms = 0 if self._next_ms is None else self._next_ms - at_ms
        if self._doubted_ms:
            self._doubted_ms = (
                TRUSTED_MS if abs(early_ms) >= PACKET_MS else max(0, self._doubted_ms - long_ms)
            )
            early_ms = 0
            self._next_ms = at_ms
        elif abs(early_ms) > LONGEST_HOLE_MS or self._again_ms >= MOST_REPEATED_MS:
            self._doubted_ms = TRUSTED_MS
            self.resynchronised += 1
            early_ms = self._again_ms = 0
            self._next_ms = at_ms
        filler = np.zeros(0, np.int16)
        if early_ms >= PACKET_MS:
            over_ms = min(early_ms, long_ms)
            pcm = pcm[over_ms * SAMPLES_PER_MS :]
            self.repeated_ms += over_ms
            self._again_ms += over_ms
        else:
            self._again_ms = max(0, self._again_ms - long_ms)
            if early_ms <= -PACKET_MS:
                filler = self._filler(-early_ms, pcm)
                self.filled_ms += len(filler) // SAMPLES_PER_MS
        self._count(at_ms, long_ms, early_ms)
        whole = np.concatenate((filler, pcm)) if len(filler) else pcm
        self._pieces.append(whole[-HISTORY:])
        self.heard_ms += len(whole) // SAMPLES_PER_MS
        return whole.astype("<i2").tobytes()

    def _count(self, at_ms: int, long_ms: int, early_ms: int) -> None:
        """Where the next piece belongs: by the samples, so that roundings do not add up unseen."""
        if self._next_ms is None:
            self._next_ms = at_ms
        if abs(early_ms) < PACKET_MS:
            self._next_ms += long_ms
        else:
            self._next_ms = max(self._next_ms, at_ms + long_ms)

    def _before(self) -> np.ndarray:
        return np.concatenate(self._pieces)[-HISTORY:]

    def _filler(self, long_ms: int, behind: np.ndarray) -> np.ndarray:
        filler = np.zeros(long_ms * SAMPLES_PER_MS, np.int16)
        filled = min(long_ms, CONCEALED_MS) * SAMPLES_PER_MS
        before = self._before().astype(np.float32)
        if long_ms <= CONCEALED_MS:
            sound = conceal(before, behind.astype(np.float32), filled, rate_hz=RATE_HZ)
        else:
            sound = fade_out(before, filled, rate_hz=RATE_HZ)
        filler[:filled] = np.clip(sound, -32_768, 32_767).astype(np.int16)
        return filler


def pcm_ms(pcm: bytes) -> int:
    """How long PCM of a telephone is."""
    return len(pcm) // (PCM_BYTES_PER_SAMPLE * SAMPLES_PER_MS)
