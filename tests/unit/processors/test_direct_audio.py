"""Caller's audio that is handed on by calls, among processors that know nothing of it."""

import asyncio
from typing import Any

from pipecat.frames.frames import ErrorFrame, Frame, InputAudioRawFrame, TextFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

from parley.processors.direct_audio import DirectAudio
from parley.processors.turns.audio_stop import AudioStop
from parley.transports.direct_input import DirectAudioInput


class Ear(DirectAudio):
    """Takes audio and passes it on; fails at empty audio."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.taken: list[bytes] = []

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        if not frame.audio:
            raise ValueError("no audio")
        self.taken.append(frame.audio)
        await self.pass_audio(frame)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)


class Plain(FrameProcessor):
    """Processor of Pipecat's kind, with a queue; keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.news = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame | TextFrame):
            self.frames.append(frame)
            self.news.set()
        await self.push_frame(frame, direction)


class Watcher(BaseObserver):
    """Keeps the frames that observers see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Frame] = []

    async def on_push_frame(self, data: FramePushed) -> None:
        self.seen.append(data.frame)


def piece(audio: bytes) -> InputAudioRawFrame:
    return InputAudioRawFrame(audio=audio, sample_rate=16_000, num_channels=1)


async def carried(
    stages: list[FrameProcessor], audio: list[bytes], until: asyncio.Event | None = None
) -> tuple[list[ErrorFrame], list[Frame]]:
    """Bring audio through stages; return the errors that were reported, and what observers saw."""
    source = DirectAudioInput(TransportParams(audio_in_enabled=True))
    watcher = Watcher()
    worker = PipelineWorker(
        Pipeline([source, *stages]), observers=[watcher], cancel_on_idle_timeout=False, enable_rtvi=False
    )
    started, errors = asyncio.Event(), list[ErrorFrame]()

    @worker.event_handler("on_pipeline_started")
    async def on_started(_worker: Any, _frame: Frame) -> None:
        started.set()

    @worker.event_handler("on_pipeline_error")
    async def on_error(_worker: Any, frame: ErrorFrame) -> None:
        errors.append(frame)

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    async with asyncio.timeout(20):
        await started.wait()
        for pcm in audio:
            await source.push_audio_frame(piece(pcm))
        if until is not None:
            await until.wait()
        await worker.stop_when_done()
        await running
    return errors, watcher.seen


async def test_audio_reaches_every_stage_in_order_and_no_observer():
    ears, plain = [Ear(), Ear()], Plain()
    audio = [bytes([number, 0]) for number in range(1, 20)]
    _errors, seen = await carried([*ears, plain], audio, plain.news)
    assert ears[0].taken == ears[1].taken == audio
    assert [frame.audio for frame in plain.frames if isinstance(frame, InputAudioRawFrame)] == audio
    # The plain processor pushes it in Pipecat's way.
    shown = {id(frame) for frame in seen if isinstance(frame, InputAudioRawFrame)}
    assert shown <= {id(frame) for frame in plain.frames}


async def test_a_stage_that_stops_audio_passes_everything_else():
    ear, plain = Ear(), Plain()
    stop = AudioStop()
    _errors, seen = await carried([ear, stop, plain], [b"\1\0"])
    assert ear.taken == [b"\1\0"] and plain.frames == []
    assert not any(isinstance(frame, InputAudioRawFrame) for frame in seen)


async def test_an_error_is_reported_by_its_stage_and_the_next_piece_is_taken():
    ears = [Ear(), Ear()]
    errors, _seen = await carried(list(ears), [b"\1\0", b"", b"\2\0"])
    assert [error.processor for error in errors] == [ears[0]]
    assert "no audio" in errors[0].error
    assert ears[1].taken == [b"\1\0", b"\2\0"]


async def test_audio_that_goes_upstream_is_a_frame_like_any_other():
    ear = Ear()
    await ear.queue_frame(piece(b"\1\0"), FrameDirection.UPSTREAM)
    assert ear.taken == []
