"""Voice detection for recognisers that hallucinate: finds voices, and places for cuts.

Input: 16 kHz audio of an utterance. The turn's voice activity detector opened it, but a door or a cough opens
one too, and such a recogniser transcribes it as "thank you". One Silero network serves all utterances of an
engine; each has its own state. It runs until the first voice is detected and costs nothing afterwards. For a
recogniser that skips pauses it runs to the end (0.3 % of a core while the caller speaks).
"""

import numpy as np

from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, pcm16_to_float
from parley.models.vad.silero import WINDOW_SAMPLES, SileroSettings, SileroVad

RATE_HZ = 16_000
# Less strict than the threshold that opens an utterance (0.7 over 128 ms). Two windows of 32 ms in a row: a
# click is not a voice.
VOICE_PROBABILITY = 0.5
VOICE_WINDOWS = 2
# Below it a window is quiet: a final consonant lies between the two.
QUIET_PROBABILITY = 0.3
CUT_FRAME_MS = 40
WINDOW_BYTES = WINDOW_SAMPLES[RATE_HZ] * PCM_BYTES_PER_SAMPLE


class VoiceFilter:
    """Factory of voice detectors with a shared network. Thread-safe.

    Args:
        follows: process each utterance to its end, for ``UtteranceVoice.voiced``.
    """

    def __init__(self, *, follows: bool = False) -> None:
        self._vad = SileroVad(SileroSettings(rate_hz=RATE_HZ))
        self._follows = follows

    def open(self) -> "UtteranceVoice":
        """Return a detector for one utterance."""
        return UtteranceVoice(self._vad, follows=self._follows)


class UtteranceVoice:
    """Voice detector of one utterance. Not thread-safe.

    Attributes:
        heard: true once a voice was detected.
        voiced: one flag per window of ``WINDOW_BYTES`` since the utterance began, where the filter follows: 1
            for a voice and its edges, 0 for quiet.
    """

    def __init__(self, vad: SileroVad, *, follows: bool = False) -> None:
        self.heard = False
        self.voiced = bytearray()
        self._follows = follows
        self._stream = vad.open_stream()
        self._window_bytes = WINDOW_BYTES
        self._rest = bytearray()
        self._in_a_row = 0

    def hear(self, pcm: bytes) -> bool:
        """Process the next piece of 16-bit mono PCM (whole samples); return whether there was a voice
        so far.
        """
        if self.heard and not self._follows:
            return True
        self._rest += pcm
        while len(self._rest) >= self._window_bytes and (self._follows or not self.heard):
            window = pcm16_to_float(bytes(self._rest[: self._window_bytes]))
            del self._rest[: self._window_bytes]
            probability = self._stream.probability(window)
            if self._follows:
                self.voiced.append(probability >= QUIET_PROBABILITY)
            self._in_a_row = self._in_a_row + 1 if probability >= VOICE_PROBABILITY else 0
            self.heard = self.heard or self._in_a_row >= VOICE_WINDOWS
        return self.heard


def quietest_cut(pcm: bytes, range_ms: int) -> tuple[int, float]:
    """Return the best place to cut 16-bit mono PCM within its last ``range_ms``.

    Returns:
        Number of bytes before the middle of the quietest 40 ms, and the mean square of these, relative to
            full scale. All bytes, and 1.0, when the audio is shorter than 40 ms.
    """
    frame = ms_to_samples(CUT_FRAME_MS, RATE_HZ)
    samples = pcm16_to_float(pcm)
    frames = min(len(samples), ms_to_samples(range_ms, RATE_HZ)) // frame
    if not frames:
        return len(pcm), 1.0
    begin = len(samples) - frames * frame
    power = np.square(samples[begin:].reshape(frames, frame)).mean(axis=1)
    # The last of equal frames: the remainder is then short.
    quietest = frames - 1 - int(power[::-1].argmin())
    return (begin + quietest * frame + frame // 2) * PCM_BYTES_PER_SAMPLE, float(power[quietest])
