"""Place in a pipeline whose stages are replaced while the call goes on.

The stages of a place are a small pipeline of their own. Frames that reach the place in either direction go
through it, and what it pushes leaves the place. ``open`` puts stages in, which connects them; ``shut`` takes
them out at once: nothing of theirs leaves any more, and later frames wait for the next stages, in order.

A place without stages passes the beginning and the end of the call on, so that neither depends on a service
that hangs in its connection. Of the frames that wait at most ``MOST_HELD`` are kept, the newest. The caller's
speech is not among them: ``keep`` has it, and gives back the part that the next stages need.

The place owns no task; its owner's task opens stages, and closes those that were taken out, with a deadline
for each. Stages that are in it at the end of the call end with it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    StartFrame,
    SystemFrame,
)
from pipecat.observers.base_observer import BaseObserver, FrameProcessed, FramePushed, ProcessorSetUp
from pipecat.pipeline.pipeline import Pipeline, PipelineSink, PipelineSource
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor, FrameProcessorSetup

from parley.core.errors import EngineError
from parley.processors.direct_audio import DirectAudio
from parley.processors.nested_service import CLOSE_S, OPEN_S
from parley.processors.references import forget

# A turn leads to a handful of frames, and a place is empty for some seconds at most.
MOST_HELD = 256


@dataclass
class _PassedFrame(SystemFrame):
    """Mark that reaches the end of new stages after the frame before it."""

    passed: asyncio.Event = field(default_factory=asyncio.Event)


class _Stages:
    """Stages of a place, as a pipeline."""

    def __init__(
        self,
        place: "StageSlot",
        processors: Sequence[FrameProcessor],
        on_error: Callable[[ErrorFrame], None] | None,
    ) -> None:
        self._place = place
        self._on_error = on_error
        self.started = asyncio.Event()
        self.pipeline = Pipeline(
            list(processors),
            source=PipelineSource(self._leave_upstream, name=f"{place}::source"),
            sink=PipelineSink(self._leave_downstream, name=f"{place}::sink"),
        )

    async def _leave_upstream(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, ErrorFrame) and self._on_error is not None:
            self._on_error(frame)
        else:
            await self._place.leave(self, frame, direction)

    async def _leave_downstream(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, StartFrame):
            # The place has passed it on.
            self.started.set()
        elif isinstance(frame, _PassedFrame):
            frame.passed.set()
        else:
            await self._place.leave(self, frame, direction)

    async def take(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        """Pass a frame through; return from one that is no audio when all stages have it.

        Audio does not wait in the queues of the stages. So seconds of it would overtake the report of the
        voice that they belong to, and a recogniser keeps less than a second of audio without a voice.
        """
        await self.pipeline.queue_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM and not isinstance(frame, InputAudioRawFrame):
            mark = _PassedFrame()
            await self.pipeline.queue_frame(mark)
            await mark.passed.wait()


class StageSlot(DirectAudio, FrameProcessor):
    """Place of replaceable stages.

    Args:
        name: name of the place, for the log.
        keep: receives every frame from upstream as it comes, and returns True for one that it keeps for the
            next stages; must not block. None: nothing is kept.
    """

    def __init__(self, name: str, *, keep: Callable[[Frame], bool] | None = None) -> None:
        super().__init__(enable_direct_mode=True, name=name)
        self._keep = keep
        # Kept frames are on their way to new stages: all later ones wait for them.
        self._holds_all = False
        self._taken: FrameProcessorSetup | None = None
        self._start: StartFrame | None = None
        self._is_started = asyncio.Event()
        # Stages that take frames, and those that are being opened.
        self._stages: _Stages | None = None
        self._opening: _Stages | None = None
        self._held: deque[tuple[Frame, FrameDirection]] = deque()

    @property
    def processors(self) -> list[FrameProcessor]:
        """Stages that are in the place."""
        return [each.pipeline for each in (self._stages, self._opening) if each is not None]

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own
        await super().setup(setup)
        self._taken = setup

    async def cleanup(self) -> None:
        """End the stages with the call."""
        await super().cleanup()
        for each in (self._stages, self._opening):
            if each is not None:
                await each.pipeline.cleanup()

    async def open(
        self,
        processors: Sequence[FrameProcessor],
        *,
        first: Callable[[], Iterable[Frame]] = tuple,
        unseen: Sequence[FrameProcessor] = (),
        on_error: Callable[[ErrorFrame], None] | None = None,
    ) -> None:
        """Put stages into the place, when the call has begun: set them up, start them, pass frames to them.

        Args:
            processors: new stages, in order.
            first: returns the frames that they receive before all others.
            unseen: those of them whose frames no observer is shown (``Stages``).
            on_error: receives what they report as an error; None: it leaves the place upstream.

        Raises:
            EngineError: they are not set up within ``OPEN_S``.
        """
        await self._is_started.wait()
        assert self._taken is not None and self._start is not None
        stages = self._opening = _Stages(self, processors, on_error)
        try:
            async with asyncio.timeout(OPEN_S):
                observer = self._taken.observer
                if observer is not None and unseen:
                    observer = _SeenFrames(observer, unseen)
                await stages.pipeline.setup(replace(self._taken, observer=observer))
                await stages.pipeline.queue_frame(self._start)
                await stages.started.wait()
        except TimeoutError:
            raise EngineError(f"no connection within {OPEN_S:g} s", engine=self.name) from None
        self._holds_all = True
        try:
            async with asyncio.timeout(OPEN_S):
                for frame in first():
                    await stages.take(frame)
                while self._held:
                    await stages.take(*self._held.popleft())
        except TimeoutError:
            raise EngineError(f"no frame passes within {OPEN_S:g} s", engine=self.name) from None
        finally:
            self._holds_all = False
        self._opening, self._stages = None, stages

    async def send(self, frame: Frame) -> None:
        """Send a frame to the stages that are in the place; without stages it is dropped."""
        if self._stages is not None:
            await self._stages.pipeline.queue_frame(frame)

    def shut(self) -> "ShutStages":
        """Take the stages out; the caller closes them."""
        found = [each for each in (self._stages, self._opening) if each is not None]
        self._stages = self._opening = None
        return ShutStages(self.name, [each.pipeline for each in found])

    async def leave(self, stages: _Stages, frame: Frame, direction: FrameDirection) -> None:
        """Pass on what stages push, unless they have been taken out."""
        if stages is self._stages or stages is self._opening:
            await self.push_frame(frame, direction)

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        """Pass the caller's audio to the stages."""
        if self._keep is not None:
            self._keep(frame)
        if self._stages is not None:
            await self._stages.pipeline.queue_frame(frame)
        elif self._holds_all:
            self._hold(frame, FrameDirection.DOWNSTREAM)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass a frame to the stages, or keep it for the next ones."""
        await super().process_frame(frame, direction)
        is_downstream = direction is FrameDirection.DOWNSTREAM
        is_kept = is_downstream and self._keep is not None and self._keep(frame)
        if isinstance(frame, StartFrame):
            self._start = frame
            await self.push_frame(frame, direction)
            self._is_started.set()
        elif self._stages is not None:
            await self._stages.pipeline.queue_frame(frame, direction)
        elif not is_downstream or isinstance(frame, (EndFrame, CancelFrame)):
            await self.push_frame(frame, direction)
        elif not is_kept or self._holds_all:
            self._hold(frame, direction)

    def _hold(self, frame: Frame, direction: FrameDirection) -> None:
        if len(self._held) == MOST_HELD:
            dropped, _ = self._held.popleft()
            logger.warning(f"{self}: too many frames wait, dropped: {type(dropped).__name__}")
        self._held.append((frame, direction))


class _SeenFrames(BaseObserver):
    """Observer that is not shown the frames of some processors.

    Args:
        observer: receives all others.
        unseen: the processors.
    """

    def __init__(self, observer: BaseObserver, unseen: Sequence[FrameProcessor]) -> None:
        super().__init__()
        self._seen_by, self._unseen = observer, frozenset(unseen)

    async def on_push_frame(self, data: FramePushed) -> None:
        if data.source not in self._unseen:
            await self._seen_by.on_push_frame(data)

    async def on_process_frame(self, data: FrameProcessed) -> None:
        if data.processor not in self._unseen:
            await self._seen_by.on_process_frame(data)

    async def on_processor_setup(self, data: ProcessorSetUp) -> None:
        await self._seen_by.on_processor_setup(data)


class ShutStages:
    """Stages that were taken out of their place and still hold a connection.

    Args:
        name: name of the place.
        pipelines: the stages.
    """

    def __init__(self, name: str, pipelines: Sequence[Pipeline]) -> None:
        self._name, self._pipelines = name, pipelines

    async def close(self) -> None:
        """End their tasks and connections, and free them."""
        for pipeline in self._pipelines:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await pipeline.cleanup()
            except TimeoutError:
                logger.warning(f"{self._name}: the stages were not closed within {CLOSE_S:g} s")
            finally:
                for each in (*pipeline.processors, pipeline):
                    forget(each)
