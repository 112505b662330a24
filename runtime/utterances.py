"""Asyncio interface of an engine that takes utterances, independent of where the engine runs.

Inputs: audio of many callers, appended without waiting. Outputs: partial results and one failure by callback,
final results as futures, all on the loop. A stream that failed is over; its owner opens another. Child
processes, threads and engines in place implement it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from parley.core.errors import EngineError

T = TypeVar("T")


class UtteranceStream(Protocol[T]):
    """Stream of one call to an engine, used on the loop. No method waits for the engine."""

    @property
    def failure(self) -> EngineError | None:
        """Reason for which the stream is over; None while it works."""
        ...

    @property
    def dropped_ms(self) -> int:
        """Duration of audio lost because the engine was too slow."""
        ...

    @property
    def waiting_ms(self) -> int:
        """Duration of audio that the engine has not processed yet."""
        ...

    def start(self) -> None:
        """Begin an utterance; an open one is discarded. Raises EngineError when the stream has failed.

        An engine without room for it fails the stream with EngineBusyError, at once or later.
        """
        ...

    def feed(self, pcm: bytes) -> None:
        """Append 16-bit mono audio at the engine's rate. Has no effect outside an utterance."""
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
    """Engine that can be used from the loop: one child, several children, or an engine in place."""

    @property
    def rate_hz(self) -> int: ...

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[T]:
        """Return a stream for one call; both callbacks run on the loop, ``on_failure`` at most once.

        Raises EngineError when no engine becomes ready by the deadline.
        """
        ...
