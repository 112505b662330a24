"""A conversation typed in the terminal: the deployment's language model, guard and context, no audio.

Lines come in, answers are printed as they stream; end of input ends the conversation after the last answer.
The reader is a task of its own because a terminal blocks; a question is asked when the answer before it is
complete.
"""

import asyncio
import sys
from typing import TextIO

from pipecat.frames.frames import (
    EndFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from configs.deployment import Deployment
from pipelines.answering import Answering, plan_answering

ANSWER_TIMEOUT_S = 60


class Printer(FrameProcessor):
    """Writes the answer as it comes and tells when it is complete."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(enable_direct_mode=True)
        self._out = out
        self.answered = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self._out.write(frame.text)
            self._out.flush()
        elif isinstance(frame, LLMFullResponseEndFrame):
            self._out.write("\n")
            self._out.flush()
            self.answered.set()
        await self.push_frame(frame, direction)


async def talk_in_terminal(
    deployment: Deployment, source: TextIO = sys.stdin, out: TextIO = sys.stdout
) -> int:
    """Answer lines until the input ends. Returns the exit status."""
    answering = await Answering.load(deployment, await asyncio.to_thread(plan_answering, deployment))
    try:
        context = LLMContext()
        user, assistant = LLMContextAggregatorPair(context)
        printer = Printer(out)
        pipeline = Pipeline([user, *await answering.build(), printer, assistant])
        worker = PipelineWorker(
            pipeline, enable_turn_tracking=False, enable_rtvi=False, idle_timeout_secs=None
        )
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        out.write(f"{deployment.bot.greeting}\n")
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(_ask(worker, printer, source, out), name="terminal")
            await runner.run()
            asking.cancel()
    finally:
        await answering.close()
    return 0


async def _ask(worker: PipelineWorker, printer: Printer, source: TextIO, out: TextIO) -> None:
    interactive = source.isatty()
    while True:
        if interactive:
            out.write("> ")
            out.flush()
        line = await asyncio.to_thread(source.readline)
        if not line:
            await worker.queue_frame(EndFrame())
            return
        if not line.strip():
            continue
        printer.answered.clear()
        message: LLMContextMessage = {"role": "user", "content": line.strip()}
        await worker.queue_frame(LLMMessagesAppendFrame(messages=[message], run_llm=True))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await printer.answered.wait()
