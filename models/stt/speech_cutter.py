"""Cut one channel of a recording into pieces of speech; silence is left out.

Input: 16-bit PCM in blocks of any size. Output: pieces with their places. Windows of 32 ms are judged by the
voice activity detector (``models.vad``), and not judged in digital silence (``models.vad.meter``). A piece
begins with two voiced windows and includes the 200 ms before them, since a first consonant is soft. It ends
in a pause of ``PAUSE_WINDOWS``, or in a shorter one once it is long. A piece without such a pause is cut at
``MOST_WINDOWS`` where its last 2 s are quietest.

The limits of length are those of the live recogniser's lines (``models.stt.moonshine_tiny``). Pure, apart
from the network.
"""

from dataclasses import dataclass

import numpy as np

from parley.core.media import pcm16_to_float
from parley.models.stt.voice import (
    QUIET_PROBABILITY,
    RATE_HZ,
    VOICE_PROBABILITY,
    VOICE_WINDOWS,
    WINDOW_BYTES,
    quietest_cut,
)
from parley.models.vad import VoiceActivityDetector
from parley.models.vad.meter import VoiceMeter
from parley.models.vad.silero import WINDOW_SAMPLES, SileroSettings, SileroVad

WINDOW = WINDOW_SAMPLES[RATE_HZ]
# 192 ms before and after a voice.
EDGE_WINDOWS = 6
# 608 ms, 96 ms, 8 s and 12 s.
PAUSE_WINDOWS, SHORT_PAUSE_WINDOWS = 19, 3
LONG_WINDOWS, MOST_WINDOWS = 250, 375
CUT_RANGE_MS = 2_000
# A window below is silent whatever the detector says: dither has -90 dB, a quiet room on a bad line -65.
SILENT_DB = -66.0


@dataclass(frozen=True, slots=True, eq=False)
class CutPiece:
    """Piece of speech.

    Attributes:
        start: its first sample in the channel.
        pcm: 16-bit PCM, whole windows.
        voiced: one flag per window.
    """

    start: int
    pcm: bytes
    voiced: bytes

    @property
    def samples(self) -> np.ndarray:
        """Its audio: float32, (samples,), in [-1, 1)."""
        return pcm16_to_float(self.pcm)


class SpeechCutter:
    """Cutter of one channel.

    Args:
        detector: at ``RATE_HZ``, with windows of 32 ms; shared by the cutters of a process.
        pause_windows: pause that ends a piece.
        edge_windows: silence that is kept around a voice.
    """

    def __init__(
        self,
        detector: VoiceActivityDetector,
        *,
        pause_windows: int = PAUSE_WINDOWS,
        edge_windows: int = EDGE_WINDOWS,
    ) -> None:
        self._meter = VoiceMeter(detector.open_stream(), WINDOW, rate_hz=RATE_HZ, least_db=SILENT_DB)
        self._pause_windows, self._edge_windows = pause_windows, edge_windows
        self._rest = b""
        # Windows before a piece, or of the open one: audio and flags, from the window ``_first``.
        self._pcm = bytearray()
        self._voiced = bytearray()
        self._first = 0
        self._is_open = False
        # Windows in a row: loud enough to begin, quiet enough to end.
        self._loud = self._quiet = 0

    def feed(self, pcm: bytes) -> list[CutPiece]:
        """Take audio; return the pieces that are complete."""
        data = self._rest + pcm
        whole = len(data) // WINDOW_BYTES * WINDOW_BYTES
        self._rest = data[whole:]
        pieces: list[CutPiece] = []
        for number, (probability, _) in enumerate(self._meter.measure(data[:whole])):
            self._pcm += data[number * WINDOW_BYTES : (number + 1) * WINDOW_BYTES]
            self._voiced.append(probability >= QUIET_PROBABILITY)
            self._loud = self._loud + 1 if probability >= VOICE_PROBABILITY else 0
            self._quiet = 0 if self._voiced[-1] else self._quiet + 1
            if not self._is_open:
                self._wait()
            elif (piece := self._end()) is not None:
                pieces.append(piece)
        return pieces

    def finish(self) -> list[CutPiece]:
        """Return the rest: the channel is over."""
        pieces = self.feed(bytes(-len(self._rest) % WINDOW_BYTES)) if self._rest else []
        if self._is_open and any(self._voiced):
            pieces.append(self._take(self._voiced_end()))
        return pieces

    def _wait(self) -> None:
        """Begin a piece at a voice; until then keep only the windows before one."""
        if self._loud >= VOICE_WINDOWS:
            self._is_open = True
            return
        self._drop(len(self._voiced) - self._edge_windows - VOICE_WINDOWS + 1)

    def _end(self) -> CutPiece | None:
        length = len(self._voiced)
        pause = SHORT_PAUSE_WINDOWS if length >= LONG_WINDOWS else self._pause_windows
        if self._quiet >= pause:
            self._is_open = False
            # After a cut the rest may be silence.
            return self._take(self._voiced_end()) if any(self._voiced) else None
        if length >= MOST_WINDOWS:
            cut, _ = quietest_cut(bytes(self._pcm), CUT_RANGE_MS)
            return self._take(max(1, cut // WINDOW_BYTES))
        return None

    def _voiced_end(self) -> int:
        """Return the number of windows up to the edge after the last voice."""
        last = self._voiced.rfind(1)
        return min(len(self._voiced), last + 1 + min(self._edge_windows, max(1, self._quiet)))

    def _take(self, windows: int) -> CutPiece:
        piece = CutPiece(
            self._first * WINDOW, bytes(self._pcm[: windows * WINDOW_BYTES]), bytes(self._voiced[:windows])
        )
        self._drop(windows)
        return piece

    def _drop(self, windows: int) -> None:
        if windows > 0:
            del self._pcm[: windows * WINDOW_BYTES], self._voiced[:windows]
            self._first += windows


def detector() -> SileroVad:
    """Return the detector that cutters share."""
    return SileroVad(SileroSettings(rate_hz=RATE_HZ))
