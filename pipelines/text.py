"""A conversation typed in the terminal: the deployment's language model, guard and context, no audio.

Lines come in, answers are printed as they stream; end of input ends the conversation after the last answer.
A question is asked when the answer before it is complete; one that takes longer than its deadline is given up
in one line, and the conversation goes on.

The reader is a task of its own, and the loop tells it when there is something to read: a thread that waits
for a terminal cannot be ended, and would hold up the end of the process.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import TextIO

from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
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
from core.errors import ConfigError
from pipelines.answering import Answering, plan_answering

ANSWER_TIMEOUT_S = 60.0
READ_BYTES = 65_536


class Printer(FrameProcessor):
    """Writes the answer as it comes and tells when it is complete, or when it was given up.

    Attributes:
        answered: the answer is complete.
        interrupted: the model was told to stop, and nothing of its answer comes any more.
    """

    def __init__(self, out: TextIO) -> None:
        super().__init__(enable_direct_mode=True)
        self._out = out
        self._in_line = False
        self.answered = asyncio.Event()
        self.interrupted = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self._in_line = True
            self._out.write(frame.text)
            self._out.flush()
        elif isinstance(frame, LLMFullResponseEndFrame):
            self._end_line()
            self.answered.set()
        elif isinstance(frame, InterruptionFrame):
            self.interrupted.set()
        await self.push_frame(frame, direction)

    def say(self, line: str) -> None:
        """Write a line that is no answer."""
        self._end_line()
        self._out.write(f"{line}\n")
        self._out.flush()

    def _end_line(self) -> None:
        if self._in_line:
            self._in_line = False
            self._out.write("\n")
            self._out.flush()


async def talk_in_terminal(
    deployment: Deployment,
    source: TextIO | None = None,
    out: TextIO | None = None,
    *,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
) -> int:
    """Answer lines until the input ends.

    Args:
        deployment: who answers.
        source: default: standard input. A terminal, a pipe or a file; read as UTF-8 from its descriptor.
        out: default: standard output.
        answer_timeout_s: longest wait for the end of an answer.

    Returns:
        The exit status.

    Raises:
        ConfigError: see ``plan_answering``; or there is no standard input.
    """
    source, out = source or sys.stdin, out or sys.stdout
    if source is None or out is None:
        raise ConfigError("--mode text needs standard input and output, and one of them is closed")
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
        out.flush()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(_ask(worker, printer, source, out, answer_timeout_s), name="terminal")
            await runner.run()
            asking.cancel()
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            # Pipecat's runner takes a cancellation (Ctrl-C) as the end of the conversation and keeps it.
            raise asyncio.CancelledError
    finally:
        await answering.close()
    return 0


async def _ask(
    worker: PipelineWorker, printer: Printer, source: TextIO, out: TextIO, answer_timeout_s: float
) -> None:
    def prompt() -> None:
        if source.isatty():
            out.write("> ")
            out.flush()

    prompt()
    async for line in _lines(source.fileno()):
        if line:
            printer.answered.clear()
            message: LLMContextMessage = {"role": "user", "content": line}
            await worker.queue_frame(LLMMessagesAppendFrame(messages=[message], run_llm=True))
            try:
                async with asyncio.timeout(answer_timeout_s):
                    await printer.answered.wait()
            except TimeoutError:
                # What the model still says would be taken for the next answer.
                printer.interrupted.clear()
                await worker.queue_frame(InterruptionFrame())
                await printer.interrupted.wait()
                printer.say(f"No answer within {answer_timeout_s:g} s.")
        prompt()
    await worker.queue_frame(EndFrame())


async def _lines(descriptor: int) -> AsyncIterator[str]:
    """Lines without surrounding white space, as they come; the last one may lack its line end."""
    rest = b""
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, READ_BYTES)
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").strip()
        if not data:
            if rest:
                yield rest.decode(errors="replace").strip()
            return


async def _readable(descriptor: int) -> None:
    """Return when reading does not block."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        # Files and /dev/null: always ready, so that epoll does not take them.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
