"""Entry of frames from outside into the pipeline of a call: speech, commands, messages for the client.

A call has it before its pipeline exists, and after it has ended. Frames that come at those times are dropped,
because they would have no effect.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from loguru import logger
from pipecat.frames.frames import Frame

# A turn leads to a handful of messages.
MOST_WAITING = 256

QueueFrame = Callable[[Frame], Awaitable[None]]


class PipelineInput:
    """Entry of one pipeline. When it is full, the oldest frame that waits is dropped and logged.

    Owns no task: ``run`` is one of the call's.
    """

    def __init__(self) -> None:
        self._queue_frame: QueueFrame | None = None
        self._waiting: deque[Frame] = deque()
        self._news = asyncio.Event()

    def open(self, queue_frame: QueueFrame) -> None:
        """Begin to pass frames on."""
        self._queue_frame = queue_frame

    def close(self) -> None:
        """Stop passing frames on: the pipeline has ended."""
        self._queue_frame = None
        self._waiting.clear()

    async def queue(self, frame: Frame) -> None:
        """Put a frame into the pipeline, after those that wait."""
        self.put(frame)
        await self.flush()

    def put(self, frame: Frame) -> None:
        """Leave a frame for ``run``; for a subscriber, which may not wait."""
        if self._queue_frame is None:
            return
        if len(self._waiting) == MOST_WAITING:
            logger.warning(
                f"the pipeline accepts no frames, dropped: {type(self._waiting.popleft()).__name__}"
            )
        self._waiting.append(frame)
        self._news.set()

    async def run(self) -> None:
        """Pass on the frames that were left, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Put the frames that wait into the pipeline, in order."""
        while self._waiting and self._queue_frame is not None:
            await self._queue_frame(self._waiting.popleft())
