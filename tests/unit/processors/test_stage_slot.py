"""Stages that are put into a place while a call goes on."""

from pipecat.frames.frames import Frame, InputAudioRawFrame, VADUserStartedSpeakingFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.processors.direct_audio import DirectAudio
from parley.processors.stage_slot import StageSlot
from tests.fakes.pipeline_run import run_pipeline


class Listener(DirectAudio, FrameProcessor):
    """Stage that takes audio past the queues, as recognisers do, and notes what comes in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[str] = []

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        self.came.append(frame.audio[:1].decode())

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame):
            self.came.append("voice")
        await self.push_frame(frame, direction)


def audio(letter: str) -> InputAudioRawFrame:
    return InputAudioRawFrame(letter.encode() * 640, 16_000, 1)


async def test_audio_after_the_report_of_a_voice_does_not_overtake_it():
    slot, listener = StageSlot("place"), Listener()
    frames = [audio("a"), VADUserStartedSpeakingFrame(start_secs=0.128), *(audio("b") for _ in range(200))]

    async def script() -> None:
        # Between the place and the listener is a stage with a queue.
        await slot.open([FrameProcessorThatPasses(), listener], first=lambda: frames)

    await run_pipeline(PipelineWorker(Pipeline([slot])), script)
    assert listener.came == ["a", "voice", *["b"] * 200]


class FrameProcessorThatPasses(DirectAudio, FrameProcessor):
    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        await self.pass_audio(frame)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
