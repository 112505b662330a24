"""WebRTC's audio processing module (AEC3, noise suppression, high pass) from the ``livekit`` wheel.

Frames are exactly 10 ms of 16-bit PCM. Both calls block for some tens of microseconds in native code, which
releases the interpreter lock. Gain control stays off: it amplifies residual echo by 16 dB.

AEC3 finds a delay of up to half a second itself and follows an echo path that changes. It finds no longer
delay, which is why the reference is aligned before it.
"""

from typing import Literal

import numpy as np
from livekit.rtc import AudioFrame, AudioProcessingModule
from pydantic import Field

from parley.core.errors import EngineError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, pcm16_to_float
from parley.core.strict_model import StrictModel

FRAME_MS = 10
# Exceptions of the binding when the native library is missing, refuses a call or returns no answer.
FAULTS = (RuntimeError, AssertionError, ImportError)


class WebRtcEchoSettings(StrictModel):
    """Selection of the parts of the module that run."""

    rate_hz: Literal[8_000, 16_000, 32_000, 48_000] = Field(
        default=16_000, description="sample rate of the microphone"
    )
    echo_cancellation: bool = Field(
        default=True, description="AEC3; false: only its noise suppression is used"
    )
    noise_suppression: bool = True
    high_pass: bool = Field(default=True, description="remove frequencies below speech")


class WebRtcEcho:
    """Factory of streams of one configuration. Thread-safe."""

    def __init__(self, settings: WebRtcEchoSettings | None = None) -> None:
        self._settings = settings or WebRtcEchoSettings()
        self.rate_hz: int = self._settings.rate_hz
        self.frame_samples = self.rate_hz * FRAME_MS // 1000

    def open_stream(self) -> "WebRtcEchoStream":
        """Return a stream for a new caller.

        Raises:
            EngineError: the module does not start.
        """
        return WebRtcEchoStream(self._settings)

    def suppressor(self) -> "WebRtcEcho":
        """Return a canceller with noise suppression only."""
        return WebRtcEcho(self._settings.model_copy(update={"echo_cancellation": False}))


class WebRtcEchoStream:
    """Audio processing module of one caller; implements ``EchoStream``."""

    def __init__(self, settings: WebRtcEchoSettings) -> None:
        self._rate_hz = settings.rate_hz
        self._frame = settings.rate_hz * FRAME_MS // 1000
        self._with_echo = settings.echo_cancellation
        try:
            self._module = AudioProcessingModule(
                echo_cancellation=settings.echo_cancellation,
                noise_suppression=settings.noise_suppression,
                high_pass_filter=settings.high_pass,
                auto_gain_control=False,
            )
        except FAULTS as error:
            raise EngineError("the audio processing module failed to start", engine="webrtc") from error

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        """Return the next frame without echo and noise, as ``EchoStream.process``."""
        if near.shape != (self._frame,) or far.shape != (self._frame,):
            raise ShapeError(f"expected ({self._frame},), got {near.shape} and {far.shape}")
        heard = self._audio(near)
        try:
            if self._with_echo:
                self._module.process_reverse_stream(self._audio(far))
            self._module.process_stream(heard)
        except FAULTS as error:
            raise EngineError("the audio processing module failed", engine="webrtc") from error
        return pcm16_to_float(bytes(heard.data))

    def close(self) -> None:
        """Drop the native module, which is freed with its last reference."""
        del self._module

    def _audio(self, samples: np.ndarray) -> AudioFrame:
        pcm = bytearray(float_to_pcm16(samples))
        return AudioFrame(pcm, self._rate_hz, 1, len(pcm) // PCM_BYTES_PER_SAMPLE)
