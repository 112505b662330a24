"""Streams of engines that run in workers: their deadlines, and how they are opened.

A stream is a conversation with a worker, with a lease of its own. Several workers may be available (a pool).
When one refuses the stream, the pool is notified, and the next one is tried, all within one deadline.
"""

import time
from typing import Protocol

from loguru import logger
from pydantic import Field

from parley.core.errors import AgentError, CapacityError, EngineBusyError, EngineError
from parley.core.strict_model import StrictModel
from parley.models.hosted.link import ConversationLink
from parley.models.hosted.worker import Leasing
from parley.runtime.engine_hosting.messages import EngineMessage


class StreamLimits(StrictModel):
    """Deadlines for a worker."""

    open_timeout_s: float = Field(1, gt=0, le=60, description="longest wait for a stream")
    request_timeout_s: float = Field(
        3,
        gt=0,
        le=60,
        description="longest wait for the result of a piece of audio, and for the next piece of speech",
    )


class StreamLeasing(Leasing, Protocol):
    """Placement of streams: a pool, or always the same worker. Thread-safe."""

    def lease(self) -> tuple[str, EngineMessage]:
        """Return the address and the first message, as ``Leasing.lease``.

        Raises:
            EngineBusyError: no worker has capacity for a stream.
            EngineError: no worker is available.
        """
        ...

    def not_taken(self, url: str) -> bool:
        """Report that a worker refused the stream; return whether another one may accept it."""
        ...


def open_link(leasing: StreamLeasing, limits: StreamLimits, engine: str) -> ConversationLink:
    """Open a stream on a worker. Blocks.

    Raises:
        EngineBusyError: every worker is full.
        EngineError: no worker is reached.
    """
    deadline_s = time.monotonic() + limits.open_timeout_s
    refused: EngineError | None = None
    while True:
        try:
            url, first = leasing.lease()
        except EngineError as error:
            # The last refusal is more informative than the absence of another worker.
            raise refused or error from error
        left_s = max(0.05, deadline_s - time.monotonic())
        try:
            return ConversationLink(
                url, first, open_s=left_s, write_s=limits.request_timeout_s, engine=engine
            )
        except AgentError as error:
            refused = _as_engine_error(error, engine)
            if not leasing.not_taken(url) or time.monotonic() >= deadline_s:
                raise refused from error
            logger.warning(f"{engine}: {url} accepts no stream, trying another worker: {error}")


def _as_engine_error(error: AgentError, engine: str) -> EngineError:
    if isinstance(error, CapacityError):
        return EngineBusyError(str(error), engine=engine)
    return error if isinstance(error, EngineError) else EngineError(str(error), engine=engine)
