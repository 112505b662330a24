"""Voice activity: how likely is it that this window holds a voice?

The engine holds the weights and is shared; a stream holds the recurrent state of one caller.
"""

from typing import Protocol

import numpy as np

from core.registry import Registry, Row


class VoiceActivityStream(Protocol):
    """Recurrent state of one caller."""

    def probability(self, window: np.ndarray) -> float:
        """Probability of voice, 0..1.

        window: float32, (window_samples,), in [-1, 1].
        Raises ShapeError for another length.
        """
        ...

    def reset(self) -> None:
        """Forget what was heard: the next window starts a new stream."""
        ...


class VoiceActivityDetector(Protocol):
    """Shared weights. Thread-safe."""

    rate_hz: int
    window_samples: int

    def open_stream(self) -> VoiceActivityStream: ...


VAD: Registry[VoiceActivityDetector] = Registry(
    "vad", {"silero": Row("models.vad.silero:SileroVad", "Silero ONNX from the Pipecat wheel")}
)
