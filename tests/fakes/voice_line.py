"""Pipeline with a service voice alone, without a fallback."""

import numpy as np
from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame, TTSStoppedFrame
from pipecat.pipeline.worker import PipelineParams
from pipecat.processors.frame_processor import FrameProcessor

from tests.fakes.service_line import ServiceLine


class VoiceLine(ServiceLine):
    """Call with a voice alone.

    Args:
        service: the voice.
        rate_hz: rate of the pipeline.
    """

    def __init__(self, service: FrameProcessor, *, rate_hz: int = 24_000) -> None:
        super().__init__(service, PipelineParams(audio_out_sample_rate=rate_hz, enable_usage_metrics=True))
        self.rate_hz = rate_hz

    async def says(self, text: str) -> None:
        """Say a text, and wait for its end."""
        count = len(self.heard.of(TTSStoppedFrame)) + 1
        await self.worker.queue_frame(TTSSpeakFrame(text))
        await self.until(TTSStoppedFrame, count)

    def errors(self) -> list[str]:
        """Return the errors, without Pipecat's report of a text without audio."""
        return [error for error in super().errors() if "completed with no audio" not in error]

    def audio(self) -> np.ndarray:
        pieces = self.heard.of(TTSAudioRawFrame)
        assert {piece.sample_rate for piece in pieces} <= {self.rate_hz}
        return np.frombuffer(b"".join(piece.audio for piece in pieces), "<i2")
