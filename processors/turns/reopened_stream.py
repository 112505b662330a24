"""Stream of an engine that a call can do without: it is opened again when it ends.

Input: an engine of the process. Output: its stream, or None while there is none, and one call of ``on_lost``
when a stream has failed. The object owns one task, from a temporary failure until a stream is open again or
the engine reports a permanent failure; ``close`` cancels it.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from loguru import logger

from parley.core.errors import EngineError
from parley.models.stt import Transcript

# Pause before a dead engine is tried again; while it loads, opening a stream waits for it.
REOPEN_S = 2.0


class ClosableStream(Protocol):
    """Stream that can be released."""

    def close(self) -> None:
        """Release the stream."""
        ...


StreamT = TypeVar("StreamT", bound=ClosableStream)
StreamT_co = TypeVar("StreamT_co", bound=ClosableStream, covariant=True)


class StreamingEngine(Protocol[StreamT_co]):
    """Engine that opens streams."""

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> StreamT_co:
        """Open a stream. Raises EngineError when there is none."""
        ...


class ReopenedStream(Generic[StreamT]):
    """Reopened stream of one call.

    Args:
        engine: shared by all calls; its owner starts and closes it.
        lost: function that the call loses, for the log.
        on_lost: called when a stream has failed.
    """

    def __init__(self, engine: StreamingEngine[StreamT], *, lost: str, on_lost: Callable[[], None]) -> None:
        self._engine = engine
        self._lost = lost
        self._on_lost = on_lost
        self._task: asyncio.Task[None] | None = None
        self.stream: StreamT | None = None

    async def open(self) -> None:
        """Open a stream; log a failure and continue without one."""
        try:
            self.stream = await self._engine.open_stream(_ignore, self._on_failure)
        except EngineError as error:
            logger.warning(f"{self._lost} in this call: {error}")

    def close(self) -> None:
        """Release the stream, and stop reopening it."""
        if self._task is not None:
            self._task.cancel()
        # The owner has this object, so that a reference back is a cycle. A closed stream reports nothing.
        self._on_lost = _ignore_loss
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()

    def _on_failure(self, error: EngineError) -> None:
        logger.warning(f"{self._lost} in a call: {error}")
        self.stream = None
        self._on_lost()
        if error.retryable and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._reopen(), name="reopened_stream")

    async def _reopen(self) -> None:
        while self.stream is None:
            try:
                self.stream = await self._engine.open_stream(_ignore, self._on_failure)
            except EngineError as error:
                if not error.retryable:
                    logger.warning(f"{self._lost} in a call any more: {error}")
                    return
                await asyncio.sleep(REOPEN_S)


def _ignore_loss() -> None:
    """Ignore the loss of a stream that its owner has closed."""


def _ignore(_partial: Transcript) -> None:
    """Ignore a partial result: only whole voices are sent."""
