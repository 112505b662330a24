"""Audio of a caller whose words are not committed yet, kept for the process that has to hear it again.

Input: pieces of 16-bit PCM at 8 kHz, and the begin and the end of turns as the conversation reports them.
Output: the audio that a new conversation process receives first. During a turn all of it is kept, up to
``KEPT_S``; otherwise ``BEFORE_S``, because the begin of a turn is reported late. In a private pause nothing
is kept. Pure.
"""

from collections import deque

import numpy as np

from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.protocols.twilio_media import RATE_HZ

KEPT_S, BEFORE_S = 20.0, 1.0
BYTES_PER_S = RATE_HZ * PCM_BYTES_PER_SAMPLE
# Quieter audio of a caller is noise. The softest of a voice on a phone line is some 10 dB louder.
LOUD_RMS = 10 ** (-44 / 20) * 32_768
# Audio before the first loud piece: a word may begin softly.
ONSET_BYTES = round(0.3 * BYTES_PER_S)


class CallerBuffer:
    """Audio of one caller that is not settled."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        # Place at which the kept audio ends, in the audio that the present process has received.
        self._end_bytes = 0
        self._is_turn = self._is_gap = self._is_private = False

    def hear(self, pcm: bytes) -> None:
        """Add the next piece."""
        self._end_bytes += len(pcm)
        if self._is_private:
            return
        self._pieces.append(pcm)
        self._held_bytes += len(pcm)
        longest_s = KEPT_S if self._is_turn or self._is_gap else BEFORE_S
        while self._held_bytes > longest_s * BYTES_PER_S:
            self._held_bytes -= len(self._pieces.popleft())

    def turn_began(self, at_bytes: int) -> None:
        """Record that a turn began, which was noticed at this place."""
        self._is_turn = True
        self._drop_before(at_bytes - round(BEFORE_S * BYTES_PER_S))

    def turn_settled(self, at_bytes: int) -> None:
        """Record that everything before a place is committed."""
        self._is_turn = False
        self._drop_before(at_bytes)

    def begin_pause(self) -> None:
        """Drop everything, and keep nothing from here on."""
        self._is_private = True
        self._pieces.clear()
        self._held_bytes = 0

    def end_pause(self) -> None:
        """Keep audio again from here on."""
        self._is_private = False

    def begin_gap(self) -> None:
        """Record that no process hears the caller from here on."""
        self._is_gap = True

    def take(self) -> list[bytes]:
        """Return the audio that a new process receives first; places are counted from its beginning."""
        pieces = list(self._pieces) if self._is_turn else _from_voice(list(self._pieces))
        self._is_gap, self._is_turn = False, bool(pieces)
        self._pieces = deque(pieces)
        self._held_bytes = self._end_bytes = sum(map(len, pieces))
        return pieces

    def _drop_before(self, at_bytes: int) -> None:
        while self._pieces and self._end_bytes - self._held_bytes + len(self._pieces[0]) <= at_bytes:
            self._held_bytes -= len(self._pieces.popleft())


def is_loud(pcm: bytes) -> bool:
    """Return whether a piece may be speech."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32)
    return len(samples) > 0 and float(np.sqrt(np.mean(samples**2))) > LOUD_RMS


def _from_voice(pieces: list[bytes]) -> list[bytes]:
    """Return the pieces from shortly before the first loud one; none where all are quiet."""
    first = next((place for place, piece in enumerate(pieces) if is_loud(piece)), None)
    if first is None:
        return []
    before = 0
    while first > 0 and before < ONSET_BYTES:
        first -= 1
        before += len(pieces[first])
    return pieces[first:]
