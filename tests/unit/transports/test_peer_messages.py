"""The way of a browser's message through the pipeline."""

import asyncio
from contextlib import suppress
from typing import Any

from pipecat.frames.frames import Frame, InputTransportMessageFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

from parley.runtime.event_stream import CallEvents
from parley.transports.webrtc.transport import PacedWebRTCInput
from tests.fakes.browser_connection import connected_client


class Recorder(FrameProcessor):
    """Processor that records the messages of a peer."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[InputTransportMessageFrame] = []
        self.changed = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputTransportMessageFrame):
            self.seen.append(frame)
            self.changed.set()
        await self.push_frame(frame, direction)


async def test_a_message_goes_to_its_one_reader_and_its_text_into_no_log():
    above, below = Recorder(), Recorder()
    params = TransportParams(audio_in_enabled=True)
    transport = PacedWebRTCInput(await connected_client(), params, vanish_ms=60_000, events=CallEvents())
    worker = PipelineWorker(Pipeline([above, transport, below]))
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    message: dict[str, Any] = {
        "label": "rtvi-ai",
        "type": "client-message",
        "id": "1",
        "data": {"d": "x" * 60_000},
    }
    try:
        async with asyncio.timeout(5):
            await transport.push_app_message(message)
            await above.changed.wait()
    finally:
        await runner.cancel()
        with suppress(asyncio.CancelledError):
            await running
    [frame] = above.seen
    assert frame.message == message and len(str(frame)) < 100
    assert below.seen == []
