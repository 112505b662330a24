"""Stream text produced in a worker thread to an async consumer that may stop iterating at any time.

Input: a job for an executor, which receives a stop event and a callback. Output: its pieces in order; an
error that the job passes to the callback is raised in the consumer. Closing the generator sets the stop
event, which the job checks as often as it makes a piece. When the loop has ended, pieces are dropped and the
job runs to its end.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor, Future
from contextlib import suppress

from parley.core.errors import AgentError

# Takes a piece, an error, or None at the end.
Emit = Callable[[str | AgentError | None], None]


async def stream_from_thread(
    executor: Executor, job: Callable[[threading.Event, Emit], object]
) -> AsyncGenerator[str, None]:
    """Yield the pieces of text that the job passes to its callback.

    Args:
        executor: runs the job.
        job: called with the stop event and the callback; calls it with None or an error at its end.

    Raises:
        AgentError: the error that the job passed to the callback.
        Exception: the error that the job raised.
    """
    loop = asyncio.get_running_loop()
    # Unbounded; an answer has a bounded number of tokens, and a slow reader never blocks the thread.
    pieces: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
    stopped = threading.Event()

    def deliver(piece: str | AgentError | None) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    def ended(future: Future[object]) -> None:
        """Mark the end after all pieces, so that the consumer does not wait for a job that marked none."""
        error = None if future.cancelled() else future.exception()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(pieces.put_nowait, error)

    working = executor.submit(job, stopped, deliver)
    working.add_done_callback(ended)
    try:
        while (piece := await pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        stopped.set()
        working.cancel()
