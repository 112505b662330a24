"""Pipelines with one service, a recogniser or a voice, without a fallback."""

import asyncio
from collections.abc import Awaitable, Callable

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.evals.harness.services.cloud_recognisers import WORD_MS
from parley.processors.perception.owed_words import WordsOwedFrame
from tests.fakes.paced_output import Collector
from tests.voices import silence, tone

RATE_HZ = 16_000
# Silence after which a voice counts as over.
END_MS = 200
PIECE_BYTES = 640
_BYTES_PER_MS = RATE_HZ // 1000 * 2


class ServiceLine:
    """Pipeline with a service.

    Args:
        service: the recogniser or voice.
        params: of the pipeline.
    """

    def __init__(self, service: FrameProcessor, params: PipelineParams) -> None:
        self.service = service
        self.upstream, self.heard = Collector(FrameDirection.UPSTREAM), Collector(FrameDirection.DOWNSTREAM)
        self.worker = PipelineWorker(
            Pipeline([self.upstream, service, self.heard]),
            params=params,
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

    async def until(self, kind: type[Frame], count: int, *, upstream: bool = False) -> None:
        """Wait until frames of a kind have passed."""
        collector = self.upstream if upstream else self.heard
        async with asyncio.timeout(10):
            while len(collector.of(kind)) < count:
                await asyncio.sleep(0.005)

    async def hold(self, script: Callable[[], Awaitable[None]], *, ends: bool = False) -> None:
        """Run the pipeline until the script is over, and end or cancel it then."""
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)

        async def run_script() -> None:
            try:
                await script()
            finally:
                await self.worker.queue_frame(EndFrame() if ends else CancelFrame())

        async with asyncio.timeout(30):
            await asyncio.gather(runner.run(), run_script())

    def errors(self) -> list[str]:
        return [frame.error for frame in self.upstream.of(ErrorFrame)]


class HearingLine(ServiceLine):
    """Call with a recogniser alone."""

    def __init__(self, service: FrameProcessor) -> None:
        super().__init__(service, PipelineParams(audio_in_sample_rate=RATE_HZ, enable_usage_metrics=True))

    async def speaks(self, words: int, *, after_ms: int = 0, onset_ms: int = 0) -> None:
        """Say words after a silence, at once; no audio comes after the end of the voice.

        Args:
            words: number of words.
            after_ms: silence before them.
            onset_ms: sound of the voice before it is noticed.
        """
        voice = tone(words * WORD_MS)
        await self.sends(silence(after_ms) + voice[: onset_ms * _BYTES_PER_MS])
        await self.worker.queue_frame(VADUserStartedSpeakingFrame(start_secs=onset_ms / 1000))
        await self.sends(voice[onset_ms * _BYTES_PER_MS :] + silence(END_MS))
        await self.worker.queue_frame(VADUserStoppedSpeakingFrame(stop_secs=END_MS / 1000))

    async def hold_two_voices(self) -> None:
        """Hold a call with two words after 400 ms, and with two more a second after those are transcribed."""

        async def script() -> None:
            await self.speaks(2, after_ms=400)
            await self.until(TranscriptionFrame, 1)
            await self.speaks(2, after_ms=1_000)
            await self.until(TranscriptionFrame, 2)

        await self.hold(script)

    async def sends(self, pcm: bytes) -> None:
        """Send audio in pieces of 20 ms."""
        for start in range(0, len(pcm), PIECE_BYTES):
            await self.worker.queue_frame(InputAudioRawFrame(pcm[start : start + PIECE_BYTES], RATE_HZ, 1))

    def finals(self) -> list[TranscriptionFrame]:
        return self.heard.of(TranscriptionFrame)

    def texts(self) -> list[str]:
        return [frame.text for frame in self.finals()]

    def order(self) -> list[bool | str]:
        """Return reports of owed words, and the words, in their order."""
        return [
            frame.is_owed if isinstance(frame, WordsOwedFrame) else frame.text
            for _, frame in self.heard.frames
            if isinstance(frame, WordsOwedFrame | TranscriptionFrame)
        ]
