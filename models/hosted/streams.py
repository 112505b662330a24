"""Streams of engines that run in workers: how long they are waited for, and how one is opened.

A stream is a conversation with a worker, with a lease of its own. Several workers may do (a pool): one that
does not take the stream is told to whoever places them, and the next one is asked, all within one deadline.
"""

import time
from typing import Protocol

from loguru import logger
from pydantic import Field

from core.errors import AgentError, CapacityError, EngineBusyError, EngineError
from core.strict_model import StrictModel
from models.hosted.link import ConversationLink
from models.hosted.worker import Leasing
from runtime.engine_hosting.messages import EngineMessage


class StreamLimits(StrictModel):
    """How long a worker is waited for."""

    open_timeout_s: float = Field(1, gt=0, le=60, description="longest wait for a stream")
    request_timeout_s: float = Field(
        3,
        gt=0,
        le=60,
        description="longest wait for what becomes of a piece of audio, and for the next piece of speech",
    )


class StreamLeasing(Leasing, Protocol):
    """Places streams: a pool, or always the same worker. Thread-safe."""

    def lease(self) -> tuple[str, EngineMessage]:
        """See ``Leasing``.

        Raises:
            EngineBusyError: no worker has a stream left.
            EngineError: no worker is there.
        """
        ...

    def not_taken(self, url: str) -> bool:
        """The worker does not take it: whether another one may."""
        ...


def open_link(leasing: StreamLeasing, limits: StreamLimits, engine: str) -> ConversationLink:
    """A stream of a worker. Blocks.

    Raises:
        EngineBusyError: every worker is full.
        EngineError: none is reached.
    """
    deadline_s = time.monotonic() + limits.open_timeout_s
    refused: EngineError | None = None
    while True:
        try:
            url, first = leasing.lease()
        except EngineError as error:
            # What the last one said tells more than that there is no other.
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
            logger.warning(f"{engine}: {url} does not take a stream, another one is asked: {error}")


def _as_engine_error(error: AgentError, engine: str) -> EngineError:
    if isinstance(error, CapacityError):
        return EngineBusyError(str(error), engine=engine)
    return error if isinstance(error, EngineError) else EngineError(str(error), engine=engine)
