"""The caller's audio as one stream without gaps: pieces with positions in, 16-bit PCM at 8 kHz out.

A piece that the phone network lost shows as a jump of the positions. Up to ``CONCEALED_MS`` of a gap are
filled from both sides (``audio.concealment``), a longer gap at its beginning alone. A recogniser and the turn
logic count in samples, so an unfilled gap would shorten words and pauses. A piece whose position lies before
the end of the stream has already come, and is left out.

Positions are trusted as far as they are plausible; the caller's audio is passed on in any case. A jump of
less than a packet is no gap, because clocks are rounded. A jump of more than ``LONGEST_HOLE_MS`` in either
direction is not a position of this call. Neither are ``MOST_REPEATED_MS`` of pieces that had all come
already: the positions stand still or begin anew. Counting then goes on from there, and positions are ignored
until they have been continuous for ``TRUSTED_MS``.

Pure. Nothing is held back here: the stream comes over TCP, in order, so waiting would recover no late piece.
"""

from collections import deque

import numpy as np

from parley.audio import g711
from parley.audio.concealment import HISTORY_MS, conceal, fade_out
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.protocols.twilio_media import PACKET_MS, RATE_HZ

SAMPLES_PER_MS = RATE_HZ // 1000
CONCEALED_MS, LONGEST_HOLE_MS = 60, 1_000
HISTORY, LAST_PIECES = HISTORY_MS * SAMPLES_PER_MS, -(-HISTORY_MS // PACKET_MS)
MOST_REPEATED_MS, TRUSTED_MS = 100, 1_000


class CallerLine:
    """Audio of one caller.

    Attributes:
        heard_ms: length of the call's audio, gaps included.
        filled_ms: length of the gaps filled.
        repeated_ms: length of the pieces left out because they had already come.
        resynchronised: number of times that positions were implausible, and counting went on from there.
    """

    def __init__(self) -> None:
        self._next_ms: int | None = None
        # The newest pieces, which fill a gap.
        self._pieces: deque[np.ndarray] = deque([np.zeros(0, np.int16)], maxlen=LAST_PIECES)
        # Time repeated lately; time left until positions are trusted again.
        self._again_ms = self._doubted_ms = 0
        self.heard_ms = self.filled_ms = self.repeated_ms = self.resynchronised = 0

    def hear(self, mu_law: bytes, at_ms: int) -> bytes:
        """Return the next piece, preceded by the filler of the gap before it."""
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
        """Set the position of the next piece: by the samples, so that roundings do not add up unseen."""
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
    """Return the length of phone PCM in milliseconds."""
    return len(pcm) // (PCM_BYTES_PER_SAMPLE * SAMPLES_PER_MS)
