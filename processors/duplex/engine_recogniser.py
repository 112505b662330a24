"""Audio and pictures for the current engine: the caller's audio at its rate, pictures as it takes them."""

import numpy as np
from pipecat.frames.frames import InputAudioRawFrame, InputImageRawFrame

from parley.audio.resample import Resampler
from parley.core.media import pcm16_to_float
from parley.processors.duplex.camera import Camera, CameraSettings
from parley.processors.duplex.ticker import Ticker


class EngineInput:
    """Input of one call. While there is no engine, it is dropped.

    Args:
        settings: bounds of a picture.

    Attributes:
        camera: reads pictures that come through the pipeline.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._ticker: Ticker | None = None
        self._resampler: Resampler | None = None
        self._heard_hz = self._wanted_hz = 0
        self.camera = Camera(settings)

    def begin(self, ticker: Ticker, rate_hz: int) -> None:
        """Begin the input of an engine that needs this rate."""
        self._ticker, self._wanted_hz, self._heard_hz = ticker, rate_hz, 0

    def end(self) -> None:
        """Drop input from here on."""
        self._ticker = None

    def hear(self, frame: InputAudioRawFrame) -> None:
        """Append audio of the caller."""
        if self._ticker is None:
            return
        if frame.sample_rate != self._heard_hz:
            self._heard_hz, wanted_hz = frame.sample_rate, self._wanted_hz
            self._resampler = None if self._heard_hz == wanted_hz else Resampler(self._heard_hz, wanted_hz)
        audio = pcm16_to_float(frame.audio)
        if self._resampler is not None:
            audio = self._resampler.feed(audio)
        if len(audio):
            self._ticker.hear(audio)

    def see(self, frame: InputImageRawFrame) -> None:
        """Append a picture: raw RGB of no more pixels than an engine takes."""
        if self._ticker is not None and self._ticker.sees:
            width, height = frame.size
            self._ticker.see(np.frombuffer(frame.image, np.uint8).reshape(height, width, 3))

    def look(self, frame: InputImageRawFrame) -> None:
        """Take a picture that the pipeline brings, of any format and size."""
        if self._ticker is not None and self._ticker.sees:
            self.camera.take(frame)

    async def run_camera(self) -> None:
        """Show the pictures that the pipeline brings to the current engine, until cancelled."""
        await self.camera.run(self._show)

    async def unit_begun(self, within_ms: int) -> None:
        """Wait for the beginning of a unit; see ``UnitEars``."""
        if self._ticker is not None:
            await self._ticker.unit_begun(within_ms=within_ms)

    def _show(self, picture: np.ndarray) -> float:
        """Return how long a picture is enough for the current engine, in ms."""
        if self._ticker is None:
            return 0.0
        self._ticker.see(picture)
        return self._ticker.picture_ms
