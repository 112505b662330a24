"""Frames of a call that Pipecat's observers get."""

import asyncio
from typing import Any

from pipecat.frames.frames import Frame, InputAudioRawFrame, OutputAudioRawFrame, TextFrame, TTSAudioRawFrame
from pipecat.observers.base_observer import BaseObserver, FrameProcessed, FramePushed
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.pipelines.lifecycle import call_worker


class PassOn(FrameProcessor):
    """Passes every frame on; keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        await self.push_frame(frame, direction)


class Watcher(BaseObserver):
    """Keeps what it is shown."""

    observe_every_push = True

    def __init__(self) -> None:
        super().__init__()
        self.pushed: list[Frame] = []
        self.processed = 0

    async def on_push_frame(self, data: FramePushed) -> None:
        self.pushed.append(data.frame)

    async def on_process_frame(self, data: FrameProcessed) -> None:
        self.processed += 1


async def test_observers_get_every_push_of_what_is_not_audio():
    stages, watcher = [PassOn() for _ in range(3)], Watcher()
    worker = call_worker(list(stages), output_rate_hz=16_000, unseen=(), rtvi=True)
    worker.add_observer(watcher)
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(_worker: Any, _frame: Frame) -> None:
        started.set()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    text = TextFrame("a word")
    audio = [
        kind(audio=bytes(640), sample_rate=16_000, num_channels=1)
        for kind in (InputAudioRawFrame, OutputAudioRawFrame, TTSAudioRawFrame)
    ]
    async with asyncio.timeout(20):
        await started.wait()
        await worker.queue_frames([*audio, text])
        await worker.stop_when_done()
        await running
    for stage in stages:
        assert [frame for frame in stage.frames if frame in (*audio, text)] == [*audio, text]
    # Into the first stage, and out of each.
    assert sum(frame is text for frame in watcher.pushed) >= 1 + len(stages)
    assert not any(frame in audio for frame in watcher.pushed)
    assert watcher.processed == 0
