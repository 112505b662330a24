"""Echo control: the caller's voice without the bot's.

The engine holds rates and frame lengths, a stream holds one caller's state. A stream takes two aligned
frames, the microphone's and what was played just before, and returns what is not echo.
``audio.echo_alignment`` finds the frame that was played just before. Turn-taking sees only the result.
"""

from typing import Protocol

import numpy as np

from parley.core.registry import Registry, Row


class EchoStream(Protocol):
    """Stream of one caller. Not thread-safe, but not bound to a thread either."""

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        """Return the next frame without echo and noise: float32, (frame_samples,).

        near: float32, (frame_samples,), in [-1, 1]: the microphone.
        far: float32, (frame_samples,), in [-1, 1]: what was played, a little before it reaches the
        microphone.
        Raises ShapeError for another length, EngineError when the engine fails.
        """
        ...

    def close(self) -> None:
        """Release the resources of the stream. It is not used again."""
        ...


class EchoCanceller(Protocol):
    """Engine that opens echo streams. Thread-safe."""

    rate_hz: int
    frame_samples: int

    def open_stream(self) -> EchoStream:
        """Return a stream for a new caller, without any state."""
        ...

    def suppressor(self) -> "EchoCanceller":
        """Return a canceller with noise suppression only, for callers who talk over the bot."""
        ...


ECHO: Registry[EchoCanceller] = Registry(
    "echo",
    {"webrtc": Row("parley.models.echo.webrtc:WebRtcEcho", "WebRTC's AEC3, noise suppression and high pass")},
)
