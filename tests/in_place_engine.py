"""A blocking engine on the loop itself, for engines that cost nothing and for simulated time.

In and out: as ``runtime.utterances`` says; results are there when the call returns. Slow: the loop waits, and
nothing is dropped. Failed: the stream is closed and its owner told at once, inside the call that failed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, cast

from core.errors import EngineError
from runtime.engine_host import AskedStream, BlockingEngine, begin
from runtime.engine_hosting.messages import EngineMessage, MessageType

T = TypeVar("T")


class InPlaceStream(Generic[T]):
    """One caller of an ``InPlaceEngine``; see ``UtteranceStream``."""

    dropped_ms = 0
    waiting_ms = 0

    def __init__(
        self,
        engine: BlockingEngine,
        accept: Callable[[object], T],
        on_partial: Callable[[T], None],
        on_failure: Callable[[EngineError], None],
    ) -> None:
        self.failure: EngineError | None = None
        self._stream = engine.open_stream()
        self._accept = accept
        self._on_partial = on_partial
        self._on_failure = on_failure
        self._open = False

    def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._open = True
        self._guard(lambda: begin(self._stream))

    def feed(self, pcm: bytes) -> None:
        if not self._open:
            return
        partial = self._guard(lambda: self._stream.feed(pcm))
        if partial is not None:
            self._on_partial(self._accept(partial))

    def finish(self) -> "asyncio.Future[T]":
        final: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        result = self._guard(self._stream.finish) if self._open else None
        self._open = False
        if result is None:
            closed = EngineError("no utterance is open", engine="in place", retryable=False)
            final.set_exception(self.failure or closed)
        else:
            final.set_result(self._accept(result))
        return final

    def discard(self) -> None:
        self._open = False
        self._guard(self._stream.discard)

    def ask(self, question: EngineMessage) -> "asyncio.Future[EngineMessage]":
        """See ``ProcessStream.ask``; only of an engine that answers questions."""
        answer: asyncio.Future[EngineMessage] = asyncio.get_running_loop().create_future()
        asked = cast(AskedStream, self._stream)
        found = self._guard(lambda: asked.ask(question)) if self.failure is None else None
        if isinstance(found, tuple):
            answer.set_result(EngineMessage(MessageType.DONE, 0, *found))
        else:
            closed = EngineError("nothing was answered", engine="in place", retryable=False)
            answer.set_exception(self.failure or closed)
        return answer

    def close(self) -> None:
        self._open = False
        self._stream.close()

    def _guard(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except EngineError as error:
            self._open = False
            if self.failure is None:
                self.failure = error
                # What it borrowed goes back before the owner opens another; that it fails again is no news.
                with suppress(EngineError):
                    self._stream.close()
                self._on_failure(error)
            return None


class InPlaceEngine(Generic[T]):
    """A blocking engine called on the loop itself: for engines that cost nothing, and for simulated time.

    Args:
        engine: the engine; each of its calls holds up the loop.
        accept: its result to what the callers get.
    """

    def __init__(self, engine: BlockingEngine, accept: Callable[[object], T]) -> None:
        self._engine = engine
        self._accept = accept

    @property
    def rate_hz(self) -> int:
        return self._engine.rate_hz

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> InPlaceStream[T]:
        """See ``UtteranceEngine.open_stream``."""
        return InPlaceStream(self._engine, self._accept, on_partial, on_failure)
