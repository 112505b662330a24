"""What the loop sees of an engine that takes utterances, wherever the engine runs.

In: audio of many callers, appended without waiting. Out: partial results and one failure by callback, final
results as futures, all on the loop. A stream that failed is over; its owner opens another. The child process
and the engine in place both offer this.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from core.errors import EngineError

T = TypeVar("T")


class UtteranceStream(Protocol[T]):
    """One caller of an engine, on the loop. Nothing here waits for the engine."""

    @property
    def failure(self) -> EngineError | None:
        """Why the stream is over, None while it works."""
        ...

    @property
    def dropped_ms(self) -> int:
        """Audio lost because the engine was too slow."""
        ...

    @property
    def waiting_ms(self) -> int:
        """Audio that the engine has not worked through."""
        ...

    def start(self) -> None:
        """Begin an utterance; an open one is discarded. Raises EngineError when the stream has failed.

        An engine without room for it fails the stream with EngineBusyError, at once or later.
        """
        ...

    def feed(self, pcm: bytes) -> None:
        """Append 16-bit mono audio at the engine's rate. Nothing happens outside an utterance."""
        ...

    def finish(self) -> "asyncio.Future[T]":
        """End the utterance. The future holds the final result, or EngineError by the deadline."""
        ...

    def discard(self) -> None:
        """End the utterance without a result."""
        ...

    def close(self) -> None:
        """Release the stream. Pending results fail."""
        ...


class UtteranceEngine(Protocol[T]):
    """An engine that serves the loop: a child, several, or one in place."""

    @property
    def rate_hz(self) -> int: ...

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[T]:
        """A stream for one caller; both callbacks run on the loop, ``on_failure`` at most once.

        Raises EngineError when no engine becomes ready by the deadline.
        """
        ...
