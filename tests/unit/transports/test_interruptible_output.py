"""Silence from the moment of an interruption, on virtual time."""

import asyncio

import pytest
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.transports.webrtc.audio_track import PacedAudioTrack
from tests import virtual_time
from tests.fakes.pipeline_run import run_pipeline
from tests.fakes.track_output import RATE_HZ, TrackOutput


class Output(TrackOutput):
    """Output that keeps the audio that leaves."""

    def __init__(self) -> None:
        self.left: list[bytes] = []
        super().__init__(self.left.append)


class SlowListener(FrameProcessor):
    """Processor that delays an interruption, in the task of the sender, and counts later frames."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.chunks = 0
        self.chunks_after: int | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            self.chunks_after = 0
            await asyncio.sleep(0.2)
        elif isinstance(frame, TTSAudioRawFrame):
            self.chunks += 1
            if self.chunks_after is not None:
                self.chunks_after += 1
        await self.push_frame(frame, direction)


def interrupt(*, interruptible: bool) -> tuple[int, int, SlowListener]:
    """Speak a second, interrupt after 300 ms.

    Returns the number of packets at the interruption and at the end, and the listener.
    """

    async def scenario() -> tuple[int, int, SlowListener]:
        output, listener = Output(), SlowListener()
        worker = PipelineWorker(
            Pipeline([output, listener]),
            params=PipelineParams(audio_out_sample_rate=RATE_HZ),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

        async def script() -> int:
            for _ in range(25):
                frame = TTSAudioRawFrame(b"\1\1" * (RATE_HZ // 25), RATE_HZ, 1)
                frame.interruptible = interruptible
                await worker.queue_frame(frame)
            await asyncio.sleep(0.3)
            before = len(output.left)
            await worker.queue_frame(InterruptionFrame())
            await asyncio.sleep(1.5)
            return before

        before = await run_pipeline(worker, script)
        return before, len(output.left), listener

    return virtual_time.run(scenario())


def test_no_more_audio_leaves_while_an_interruption_is_handled():
    before, after, listener = interrupt(interruptible=True)
    assert before in (14, 15, 16)
    assert after - before <= 1
    assert listener.chunks_after == 0


def test_speech_that_may_not_be_interrupted_loses_nothing():
    _, after, listener = interrupt(interruptible=False)
    assert after == 50
    assert listener.chunks == 25


@pytest.mark.parametrize("wait", [True, False])
def test_a_write_says_whether_its_audio_will_be_sent(wait):
    async def scenario() -> bool:
        track = PacedAudioTrack(RATE_HZ, lead_ms=60)
        writing = asyncio.create_task(track.write(b"\1\1" * (RATE_HZ // 5)))
        await asyncio.sleep(0)
        if wait:
            for _ in range(10):
                await track.recv()
        else:
            track.clear()
        return await writing

    assert virtual_time.run(scenario()) is wait
