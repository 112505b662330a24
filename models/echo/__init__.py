"""Echo control: the caller's voice without the bot's.

The engine knows rates and frame lengths, a stream holds one caller's state. A stream is given two aligned
frames: what the microphone recorded and what was played just before, and gives back what is not echo. Finding
out which frame was played just before is ``audio.echo_alignment``'s; who decides about turns sees only the
result.
"""

from typing import Protocol

import numpy as np

from core.registry import Registry, Row


class EchoStream(Protocol):
    """One caller. Not thread-safe, but not bound to a thread either."""

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        """The next frame without echo and noise: float32, (frame_samples,).

        near: float32, (frame_samples,), in [-1, 1]: the microphone.
        far: the same: what was played, a little before it is heard.
        Raises ShapeError for another length, EngineError when the engine fails.
        """
        ...

    def close(self) -> None:
        """Release what the stream holds. It is not used again."""
        ...


class EchoCanceller(Protocol):
    """What streams are made of. Thread-safe."""

    rate_hz: int
    frame_samples: int

    def open_stream(self) -> EchoStream:
        """A new caller; nothing was played, nothing heard."""
        ...

    def suppressor(self) -> "EchoCanceller":
        """The same, without echo cancellation: what a caller is heard through who talks over the bot."""
        ...


ECHO: Registry[EchoCanceller] = Registry(
    "echo",
    {"webrtc": Row("models.echo.webrtc:WebRtcEcho", "WebRTC's AEC3, noise suppression and high pass")},
)
