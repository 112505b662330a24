"""Two live sides of a call as stereo in blocks of equal length, for someone who listens while it lasts.

Input: pieces of either side, as the network delivers them. Output: one block of both for each ``BLOCK_MS``; a
side that is silent is silence in it.

A side that was silent begins when it has ``LEAD_MS``, or when nothing more has come since the last block (a
short sound). Later pieces may therefore be late by ``LEAD_MS`` less a block without a gap. A side of which
more than ``MOST_MS`` wait loses the oldest. After a stall of the network its backlog is there at once: what
has waited needlessly for ``CATCH_UP_BLOCKS``, while more came all the time, is left out, so that both sides
are together again. Pure.
"""

import numpy as np

from parley.audio.resample import Resampler
from parley.core.media import float_to_pcm16, ms_to_samples, pcm16_to_float

BLOCK_MS = 100
LEAD_MS = 200
# A transport may report a second of the bot's audio at once.
MOST_MS = 2_000
CATCH_UP_BLOCKS = 15


class LiveStereo:
    """Both sides of one call; 0 is the left one.

    Args:
        rate_hz: rate of the blocks.
    """

    def __init__(self, rate_hz: int) -> None:
        self._sides = (_Side(rate_hz), _Side(rate_hz))

    def feed(self, side: int, pcm: bytes, rate_hz: int) -> None:
        """Add a piece of 16-bit mono PCM of one side."""
        self._sides[side].feed(pcm, rate_hz)

    def clear(self) -> None:
        """Drop what waits of both sides."""
        for side in self._sides:
            side.clear()

    def take(self) -> bytes:
        """Return the next block: 16-bit, little-endian, both sides interleaved."""
        return float_to_pcm16(np.stack([side.take() for side in self._sides], axis=1).ravel())


class _Side:
    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._block, self._lead, self._most = (
            ms_to_samples(ms, rate_hz) for ms in (BLOCK_MS, LEAD_MS, MOST_MS)
        )
        self._resampler: Resampler | None = None
        self._from_hz = 0
        self._waiting = np.zeros(0, dtype=np.float32)
        self._plays, self._grew = False, False
        # Least that was left after each block since the last look, their number, and that of those in which
        # something came.
        self._least, self._blocks, self._fed = self._most, 0, 0

    def feed(self, pcm: bytes, rate_hz: int) -> None:
        if self._resampler is None or rate_hz != self._from_hz:
            self._resampler, self._from_hz = Resampler(rate_hz, self._rate_hz), rate_hz
        made = self._resampler.feed(pcm16_to_float(pcm))
        self._waiting = np.concatenate((self._waiting, made))[-self._most :]
        self._grew = True

    def clear(self) -> None:
        self._waiting, self._plays = self._waiting[:0], False

    def take(self) -> np.ndarray:
        """Return the next block, float32, (samples,)."""
        self._plays = self._plays or len(self._waiting) >= self._lead or not self._grew
        self._fed += self._grew
        self._grew = False
        block = np.zeros(self._block, dtype=np.float32)
        if self._plays:
            taken, self._waiting = self._waiting[: self._block], self._waiting[self._block :]
            block[: len(taken)] = taken
            # After a gap, what comes next has its lead again.
            self._plays = len(taken) == self._block
        self._catch_up()
        return block

    def _catch_up(self) -> None:
        self._least, self._blocks = min(self._least, len(self._waiting)), self._blocks + 1
        if self._blocks < CATCH_UP_BLOCKS:
            return
        needless = self._least - self._lead
        # What came in one long piece has to wait.
        if needless > 0 and self._fed == self._blocks:
            self._waiting = self._waiting[needless:]
        self._least, self._blocks, self._fed = self._most, 0, 0
