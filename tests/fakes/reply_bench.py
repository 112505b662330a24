"""A pipeline of a language model and a recorder after it, which keeps what reaches the voice, with times."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pipecat.frames.frames import (
    CancelFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.observers.base_observer import BaseObserver
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker, ProcessorUnusablePolicy
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner


class Ear(FrameProcessor):
    """Recorder in the place of the voice."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[tuple[int, Frame]] = []
        self.ends = 0
        self.changed = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            self.frames.append((int(asyncio.get_running_loop().time() * 1000), frame))
            self.ends += isinstance(frame, LLMFullResponseEndFrame)
            self.changed.set()
        await self.push_frame(frame, direction)


class ReplyBench:
    """Pipeline around a language model: ``async with ReplyBench(guard.processors) as bench``."""

    def __init__(
        self,
        processors: Sequence[FrameProcessor],
        *,
        metrics: bool = False,
        usage: bool = False,
        observers: Sequence[BaseObserver] = (),
        after: Sequence[FrameProcessor] = (),
    ) -> None:
        self.ear = Ear()
        self.errors: list[ErrorFrame] = []
        self.asked_ms = 0
        self._heard_before = 0
        self.worker = PipelineWorker(
            Pipeline([*processors, self.ear, *after]),
            params=PipelineParams(enable_metrics=metrics, enable_usage_metrics=usage),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
            observers=list(observers),
            processor_unusable_policy=ProcessorUnusablePolicy.END,
        )
        self._started = asyncio.Event()

        @self.worker.event_handler("on_pipeline_started")
        async def on_started(worker: PipelineWorker, frame: Frame) -> None:
            self._started.set()

        @self.worker.event_handler("on_pipeline_error")
        async def on_error(worker: PipelineWorker, frame: ErrorFrame) -> None:
            self.errors.append(frame)

    async def __aenter__(self) -> Self:
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)
        self._running = asyncio.create_task(runner.run())
        async with asyncio.timeout(5):
            await self._started.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.worker.queue_frame(CancelFrame())
        async with asyncio.timeout(5):
            await self._running

    async def ask(self, context: LLMContext | str, *, speculation: bool = False) -> None:
        """Queue a question at the head of the pipeline."""
        if isinstance(context, str):
            context = LLMContext([{"role": "user", "content": context}])
        self.asked_ms = self.now_ms()
        self._heard_before = len(self.ear.frames)
        await self.worker.queue_frame(LLMContextFrame(context, speculation=speculation))

    async def interrupt(self) -> None:
        """Interrupt the reply as a caller does."""
        await self.worker.queue_frame(InterruptionFrame())

    async def until(self, ends: int, *, within_s: float = 30) -> None:
        """Wait until ``ends`` answers have ended."""
        async with asyncio.timeout(within_s):
            while self.ear.ends < ends:
                self.ear.changed.clear()
                await self.ear.changed.wait()

    async def answer(self, question: LLMContext | str) -> str:
        """Send a question, wait for the end, and return the text of the answer."""
        ends, seen = self.ear.ends, len(self.ear.frames)
        await self.ask(question)
        await self.until(ends + 1)
        return "".join(f.text for _, f in self.ear.frames[seen:] if isinstance(f, LLMTextFrame))

    @staticmethod
    def now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(f.text for _, f in self.ear.frames if isinstance(f, LLMTextFrame))

    @property
    def pairs(self) -> str:
        """Starts and ends in order, as ``<`` and ``>``."""
        marks = {LLMFullResponseStartFrame: "<", LLMFullResponseEndFrame: ">"}
        return "".join(marks.get(type(frame), "") for _, frame in self.ear.frames)

    def gaps_ms(self) -> list[int]:
        """Return the silences of the last answer in ms: before the first text, and between texts."""
        times = [t for t, f in self.ear.frames[self._heard_before :] if isinstance(f, LLMTextFrame)]
        return [b - a for a, b in zip([self.asked_ms, *times], times, strict=False)]
