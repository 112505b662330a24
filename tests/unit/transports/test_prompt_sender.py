"""Steps of the event loop that an output takes to write its audio, on virtual time."""

import asyncio
from typing import Any

from pipecat.frames.frames import OutputAudioRawFrame, StartFrame, TTSAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams

from parley.transports.interruptible_output import InterruptibleOutput
from tests import virtual_time
from tests.fakes.pipeline_run import run_pipeline

RATE_HZ, CHUNK_MS, CHUNKS = 16_000, 40, 50


class Output(InterruptibleOutput):
    """Output with room for every chunk at once, or one that never takes any."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        super().__init__(
            TransportParams(
                audio_out_enabled=True,
                audio_out_sample_rate=RATE_HZ,
                audio_out_10ms_chunks=CHUNK_MS // 10,
                audio_out_write_timeout_secs=1.0,
                audio_out_end_silence_secs=0,
            )
        )
        self._is_stuck = is_stuck
        self.all_written = asyncio.Event()
        self.chunks = 0
        self.errors: list[str] = []

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        if self._is_stuck:
            await asyncio.sleep(3_600)
        await asyncio.sleep(0)
        self.chunks += 1
        if self.chunks == CHUNKS:
            self.all_written.set()
        return True

    async def push_error(self, error_msg: str, *arguments: Any, **options: Any) -> None:
        self.errors.append(error_msg)


class StockOutput(Output):
    """The same with Pipecat's own writer."""

    def __init__(self) -> None:
        super().__init__()
        self._media_senders: dict[str | None, BaseOutputTransport.MediaSender] = {}


def spoken(kind: type[Output], **options: Any) -> tuple[Output, int]:
    """Speak; return the output and the number of the loop's steps until all chunks were written."""

    async def scenario() -> tuple[Output, int]:
        output, steps = kind(**options), 0
        worker = PipelineWorker(
            Pipeline([output]),
            params=PipelineParams(audio_out_sample_rate=RATE_HZ),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

        async def script() -> None:
            nonlocal steps
            audio = bytes(RATE_HZ * CHUNK_MS // 1000 * 2 * CHUNKS)
            await worker.queue_frame(TTSAudioRawFrame(audio, RATE_HZ, 1))
            if options:
                await asyncio.sleep(5)
            while not options and not output.all_written.is_set():
                steps += 1
                await asyncio.sleep(0)

        await run_pipeline(worker, script)
        return output, steps

    return virtual_time.run(scenario())


def test_a_chunk_takes_few_steps_of_the_loop():
    output, steps = spoken(Output)
    _, stock_steps = spoken(StockOutput)
    assert output.chunks == CHUNKS
    # One step is that of the output, and a few are at the beginning.
    assert steps <= 2 * CHUNKS
    assert stock_steps >= 2 * steps


def test_a_peer_that_does_not_read_is_reported_and_not_waited_for():
    output, _ = spoken(Output, is_stuck=True)
    assert output.chunks == 0
    assert len(output.errors) >= 1 and "does not read" in output.errors[0]
