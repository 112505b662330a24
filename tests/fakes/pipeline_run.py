"""A pipeline that runs while a test queues frames."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pipecat.frames.frames import EndFrame, Frame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.workers.runner import WorkerRunner

ResultT = TypeVar("ResultT")


async def run_pipeline(
    worker: PipelineWorker, script: Callable[[], Awaitable[ResultT]], *, within_s: float = 120
) -> ResultT:
    """Run a script when a pipeline has started, and end the pipeline; return what the script returned."""
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(_worker: PipelineWorker, _frame: Frame) -> None:
        started.set()

    async def run_script() -> ResultT:
        await started.wait()
        result = await script()
        await worker.queue_frame(EndFrame())
        return result

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    async with asyncio.timeout(within_s):
        result, _ = await asyncio.gather(run_script(), runner.run())
    return result
