"""Voice activity and level of a caller's windows; the network is not run while the caller is silent.

A window counts as voice only where it is loud enough as well (``turn_taking.voice_gate``). Once a caller has
been far softer than that for ``REST_AFTER_MS``, the network's output cannot matter, and it is not run. In
most calls one side is silent most of the time, and the network is a third of the cost of a silent caller. It
has processed that much quiet by then, so its state is that of a quiet room. Its last ``AGAIN_MS`` are
processed before the first window that is louder.
"""

from collections import deque

import numpy as np

from parley.core.media import pcm16_to_float
from parley.models.vad import VoiceActivityStream

Window = tuple[float, float]

REST_AFTER_MS = 640
# The network detects a soft voice by the audio before it.
AGAIN_MS = 320
# Margin below the level of the softest voice.
SOFTER_DB = 6.0


class VoiceMeter:
    """Meter of one caller. Not thread-safe.

    Args:
        stream: voice activity of the caller.
        window_samples: length of a window.
        rate_hz: rate of the audio.
        least_db: level, dB full scale, below which no voice counts; None: the network always runs.
    """

    def __init__(
        self, stream: VoiceActivityStream, window_samples: int, *, rate_hz: int, least_db: float | None
    ) -> None:
        self._stream = stream
        self._window_samples = window_samples
        self._soft_power = 0.0 if least_db is None else 10 ** ((least_db - SOFTER_DB) / 10)
        self._rests_after = -(-REST_AFTER_MS * rate_hz // (1000 * window_samples))
        self._soft = 0
        self._before: deque[np.ndarray] = deque(maxlen=-(-AGAIN_MS * rate_hz // (1000 * window_samples)))

    def measure(self, pcm: bytes) -> list[Window]:
        """Return the voice probability, 0..1, and the mean power of each window.

        pcm: 16-bit, whole windows.

        Raises:
            EngineError: the network failed.
        """
        windows = pcm16_to_float(pcm).reshape(-1, self._window_samples)
        return [self._one(window, float(np.vdot(window, window)) / window.size) for window in windows]

    def _one(self, window: np.ndarray, power: float) -> Window:
        self._soft = self._soft + 1 if power < self._soft_power else 0
        if self._soft > self._rests_after:
            self._before.append(window)
            return 0.0, power
        while self._before:
            self._stream.probability(self._before.popleft())
        return self._stream.probability(window), power
