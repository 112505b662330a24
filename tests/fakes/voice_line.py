"""Pipeline with a service voice alone, without a fallback."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
from pipecat.frames.frames import ErrorFrame, Frame, TTSAudioRawFrame, TTSSpeakFrame, TTSStoppedFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from tests.fakes.paced_output import Collector


class VoiceLine:
    """Call with a voice.

    Args:
        service: the voice.
        rate_hz: rate of the pipeline.
    """

    def __init__(self, service: FrameProcessor, *, rate_hz: int = 24_000) -> None:
        self.service, self.rate_hz = service, rate_hz
        self.upstream, self.heard = Collector(FrameDirection.UPSTREAM), Collector(FrameDirection.DOWNSTREAM)
        self.worker = PipelineWorker(
            Pipeline([self.upstream, service, self.heard]),
            params=PipelineParams(audio_out_sample_rate=rate_hz, enable_usage_metrics=True),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

    async def says(self, text: str) -> None:
        """Say a text, and wait for its end."""
        count = len(self.heard.of(TTSStoppedFrame)) + 1
        await self.worker.queue_frame(TTSSpeakFrame(text))
        await self.until(TTSStoppedFrame, count)

    async def until(self, kind: type[Frame], count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.heard.of(kind)) < count:
                await asyncio.sleep(0.005)

    async def hold(self, script: Callable[[], Awaitable[None]]) -> None:
        """Run the pipeline until the script is over."""
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)

        async def run_script() -> None:
            try:
                await script()
            finally:
                await self.worker.cancel()

        async with asyncio.timeout(30):
            await asyncio.gather(runner.run(), run_script())

    def errors(self) -> list[str]:
        """Return the errors, without Pipecat's report of a text without audio."""
        found = [frame.error for frame in self.upstream.of(ErrorFrame)]
        return [error for error in found if "completed with no audio" not in error]

    def audio(self) -> np.ndarray:
        pieces = self.heard.of(TTSAudioRawFrame)
        assert {piece.sample_rate for piece in pieces} <= {self.rate_hz}
        return np.frombuffer(b"".join(piece.audio for piece in pieces), "<i2")
