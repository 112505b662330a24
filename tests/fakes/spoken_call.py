"""Calls that speak what a test gives them, without a language model."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.pipeline.worker import PipelineWorker

from tests import virtual_time
from tests.fakes.pipeline_run import run_pipeline


class SpokenCall:
    """A pipeline that speaks replies.

    Args:
        worker: runs the pipeline.
    """

    def __init__(self, worker: PipelineWorker) -> None:
        self.worker = worker

    async def says(self, *pieces: str) -> None:
        """Give the pipeline a whole reply, in pieces."""
        await self.worker.queue_frame(LLMFullResponseStartFrame())
        for piece in pieces:
            await self.worker.queue_frame(LLMTextFrame(piece))
        await self.worker.queue_frame(LLMFullResponseEndFrame())

    async def interrupts(self) -> None:
        await self.worker.queue_frame(InterruptionFrame())


CallT = TypeVar("CallT", bound=SpokenCall)


def hold_call(make: Callable[[], CallT], scenario: Callable[[CallT], Awaitable[None]]) -> CallT:
    """Hold a call on virtual time, from the start of its pipeline to the end of a scenario; return it."""

    async def run() -> CallT:
        call = make()
        await run_pipeline(call.worker, lambda: scenario(call))
        return call

    return virtual_time.run(run())
