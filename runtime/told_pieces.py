"""What a thread makes piece by piece, for a loop that may leave at any moment.

In: a job of an executor, which is told what to stop on and whom to tell. Out: its pieces in order; an error
that it tells is raised here. Whoever closes the generator stops the job, which looks at ``stopped`` as often
as it makes a piece. A loop that has ended takes nothing, and the job goes on to its own end.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor, Future
from contextlib import suppress

from core.errors import AgentError

# A piece, an error, or None at the end.
Tell = Callable[[str | AgentError | None], None]


async def told_pieces(
    executor: Executor, job: Callable[[threading.Event, Tell], object]
) -> AsyncGenerator[str, None]:
    """Pieces of text, as the job tells them.

    Args:
        executor: runs the job.
        job: given what is set when nobody wants more, and whom to tell; tells None or an error at its end.

    Raises:
        AgentError: that the job told.
        Exception: that it ended with.
    """
    loop = asyncio.get_running_loop()
    # As many as an answer may have tokens: the thread is never held up by a slow reader.
    pieces: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
    stopped = threading.Event()

    def tell(piece: str | AgentError | None) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    def ended(future: Future[object]) -> None:
        """Behind all that it told: nobody waits for one that told no end."""
        error = None if future.cancelled() else future.exception()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(pieces.put_nowait, error)

    working = executor.submit(job, stopped, tell)
    working.add_done_callback(ended)
    try:
        while (piece := await pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        stopped.set()
        working.cancel()
