"""A blocking engine on the loop itself, for engines that cost nothing and for simulated time.

Inputs and outputs are those of ``runtime.utterances``; results are there when the call returns. While the
engine works the loop is blocked, and nothing is dropped. When a call fails, the stream is closed and its
owner is notified at once, inside that call.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, cast

from parley.core.errors import EngineError
from parley.models.stt import Transcript
from parley.runtime.engine_host import BlockingEngine, RequestStream, begin
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType

T = TypeVar("T")


class InPlaceStream(Generic[T]):
    """Stream of one caller of an ``InPlaceEngine``; an ``UtteranceStream``."""

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
        """Answer a question as ``ProcessStream.ask`` does; only for engines that answer questions."""
        answer: asyncio.Future[EngineMessage] = asyncio.get_running_loop().create_future()
        asked = cast(RequestStream, self._stream)
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
                # The stream returns what it borrowed before the owner opens another; a second failure adds no
                # information.
                with suppress(EngineError):
                    self._stream.close()
                self._on_failure(error)
            return None


class InPlaceEngine(Generic[T]):
    """Blocking engine that is called on the loop itself: for engines that cost nothing, and for simulated
    time.

    Args:
        engine: the engine; each of its calls blocks the loop.
        accept: converts a result of the engine for the callers.
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
        """Open the stream of one caller, as ``UtteranceEngine.open_stream`` does."""
        return InPlaceStream(self._engine, self._accept, on_partial, on_failure)


def as_transcript(result: object) -> Transcript:
    """Return a recogniser's result as what it is; nothing is decoded in this process."""
    assert isinstance(result, Transcript)
    return result
