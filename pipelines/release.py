"""Break the reference cycles of a call that has ended, so that reference counting frees it.

Input: the runner, the pipeline, the transport and the records of a call whose tasks have ended. Output: no
object of the call is part of a reference cycle. Processors refer to each other, to the handlers of their
events and to the closures that connect them. A full garbage collection would free all of it, but it pauses
every other call while it runs. Codecs, decoder threads and executors of a call that is not freed stay as
well.

Decides which references are cut and in which order. Processors of a pipeline belong to one call, so all their
references are cut. Objects that outlive the pipeline (the connection, the session, the engines) are left as
they are.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport
from pipecat.utils.base_object import BaseObject
from pipecat.workers.runner import WorkerRunner

from parley.pipelines.call import Call
from parley.processors.references import forget
from parley.transports.pipecat_internals import forget_handlers, running_handlers
from parley.transports.release import ReleasesCall

# A handler of the last event may still run: the end of a call does not wait longer for it.
HANDLERS_S = 1.0


async def release_call(
    runner: WorkerRunner, worker: PipelineWorker, transport: BaseTransport, call: Call
) -> None:
    """Cut the references to a call whose pipeline has run to its end. Takes ``HANDLERS_S`` at most."""
    try:
        await release_pipeline(runner, worker, transport)
    finally:
        call.live.close()
        call.client.entry.close()
        forget_handlers(transport)
        if isinstance(transport, ReleasesCall):
            transport.release()


async def release_pipeline(runner: WorkerRunner, worker: PipelineWorker, *others: BaseObject) -> None:
    """Cut the references that a pipeline holds after it has run to its end.

    Args:
        runner: runner of the pipeline.
        worker: worker of the pipeline.
        others: further objects whose handlers may still run; the wait for all handlers is ``HANDLERS_S`` at
            most.
    """
    processors = list(processors_of(worker.pipeline))
    try:
        await _handlers_ended([runner, worker, *others, *processors])
    finally:
        for each in (*processors, worker, runner):
            forget(each)


def processors_of(processor: FrameProcessor) -> Iterator[FrameProcessor]:
    """Yield all processors of a pipeline, including nested pipelines and their processors."""
    yield processor
    for inner in processor.processors:
        yield from processors_of(inner)


async def _handlers_ended(targets: Iterable[BaseObject]) -> None:
    current = asyncio.current_task()
    running: set[asyncio.Task[Any]] = {
        task for target in targets for task in running_handlers(target) if task is not current
    }
    if running:
        await asyncio.wait(running, timeout=HANDLERS_S)
