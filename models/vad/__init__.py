"""Voice activity: probability that a window of audio holds a voice.

The engine holds the weights and is shared; a stream holds the recurrent state of one caller.
"""

from typing import Protocol

import numpy as np

from parley.core.registry import Registry, Row


class VoiceActivityStream(Protocol):
    """Voice activity of one caller, with its recurrent state."""

    def probability(self, window: np.ndarray) -> float:
        """Return the probability of voice, 0..1.

        window: float32, (window_samples,), in [-1, 1].
        Raises ShapeError for another length.
        """
        ...

    def reset(self) -> None:
        """Reset the state: the next window starts a new stream."""
        ...


class VoiceActivityDetector(Protocol):
    """Detector with shared weights. Thread-safe."""

    rate_hz: int
    window_samples: int

    def open_stream(self) -> VoiceActivityStream: ...


VAD: Registry[VoiceActivityDetector] = Registry(
    "vad", {"silero": Row("parley.models.vad.silero:SileroVad", "Silero ONNX from the Pipecat wheel")}
)
