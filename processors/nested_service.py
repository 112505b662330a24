"""Service of Pipecat that runs apart from the pipeline of its call.

A service in a pipeline takes the call with it: a connection that hangs holds the start of all stages, and an
error is reported when its frames have passed. ``NestedService`` gives a service a small pipeline of its own,
on the tasks of the call. Its owner opens it, sends it frames, receives its output and its errors, and closes
it when it has failed. Every step has a deadline, so a service that hangs holds nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from loguru import logger
from pipecat.clocks.base_clock import BaseClock
from pipecat.frames.frames import ErrorFrame, Frame, StartFrame
from pipecat.pipeline.pipeline import Pipeline, PipelineSink, PipelineSource
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor, FrameProcessorSetup

from parley.core.errors import EngineError
from parley.processors.pipecat_internals import report_lost_connections
from parley.processors.references import forget

# A provider accepts a connection within 0.5 s, DNS and TLS included. A caller has another engine long before
# this deadline, which only ends an attempt that hangs.
OPEN_S = 3.0
# A WebSocket that the other side does not close is dropped by Pipecat after 2 s.
CLOSE_S = 3.0


class NestedService:
    """Service of a vendor on its own.

    Args:
        name: name of its row, for errors.
        service: the service, not yet set up. It reports a lost connection at once, and does not reconnect.
        on_output: receives what the service pushes downstream.
        on_error: receives every error that it reports, as an exception; ``retryable`` is False for one that
            will recur.
    """

    def __init__(
        self,
        name: str,
        service: FrameProcessor,
        *,
        on_output: Callable[[Frame], Awaitable[None]],
        on_error: Callable[[EngineError], None],
    ) -> None:
        report_lost_connections(service)
        self._name = name
        self._on_output, self._on_error = on_output, on_error
        self._pipeline = Pipeline(
            [service],
            source=PipelineSource(self._take_upstream, name=f"{name}::source"),
            sink=PipelineSink(self._take_downstream, name=f"{name}::sink"),
        )

    async def open(self, setup: FrameProcessorSetup, *, clock: BaseClock | None = None) -> None:
        """Set the service up, which connects it, and start it.

        Args:
            setup: setup of the owner's pipeline.
            clock: clock of the service; None for that of the owner's pipeline.

        Raises:
            EngineError: it took longer than ``OPEN_S``. A refused connection is reported to ``on_error``.
        """
        own = replace(setup, clock=clock or setup.clock, observer=None, enable_metrics=False)
        try:
            async with asyncio.timeout(OPEN_S):
                await self._pipeline.setup(own)
                await self._pipeline.queue_frame(StartFrame())
        except TimeoutError:
            raise EngineError(f"no connection within {OPEN_S:g} s", engine=self._name) from None

    async def send(self, frame: Frame) -> None:
        """Send a frame to the service; it is processed later, in order."""
        await self._pipeline.queue_frame(frame)

    async def close(self) -> None:
        """End the connection and the tasks of the service, and free it. It is not used any more."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pipeline.cleanup()
        except TimeoutError:
            logger.warning(f"{self._name}: the connection was not closed within {CLOSE_S:g} s")
        finally:
            for each in (*self._pipeline.processors, self._pipeline):
                forget(each)

    async def _take_upstream(self, frame: Frame, _direction: FrameDirection) -> None:
        if isinstance(frame, ErrorFrame):
            permanent = frame.category is not None and frame.category.is_permanent
            self._on_error(EngineError(frame.error, engine=self._name, retryable=not permanent))

    async def _take_downstream(self, frame: Frame, _direction: FrameDirection) -> None:
        await self._on_output(frame)
