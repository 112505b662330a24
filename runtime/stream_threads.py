"""Asyncio interface to a blocking engine whose calls wait for a remote peer: a thread for each stream.

Inputs and outputs: as in ``runtime.utterances``. For engines that do not hold the interpreter lock, because
their work is done in a worker, behind a socket. The thread of a stream makes one call at a time; audio that
it has not taken waits here.

Owners: a stream owns its thread, which is a daemon and ends with ``close`` or with a failure. Slow: audio
waits and is handed over in larger pieces; beyond ``backlog_ms`` the oldest is dropped and counted. Hung: a
final result has a deadline, and so must every call of such an engine. Dead: everything pending fails with
``EngineError``, the stream is over, and its owner opens another.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from loguru import logger
from pydantic import Field

from parley.core.errors import AgentError, EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.runtime.engine_host import BlockingEngine, BlockingStream
from parley.runtime.engine_thread import EngineThread

T = TypeVar("T")


class StreamThreadSettings(StrictModel):
    """Deadlines and bounds of one stream."""

    request_timeout_s: float = Field(default=4, gt=0, le=60, description="longest wait for a final result")
    piece_ms: int = Field(default=40, ge=10, le=500, description="least audio that is handed over at a time")
    most_ms: int = Field(
        default=400, ge=40, le=10_000, description="most audio that is handed over at a time"
    )
    backlog_ms: int = Field(
        default=30_000, ge=500, le=300_000, description="audio kept while the engine is slow"
    )


@dataclass(slots=True, eq=False)
class _Utterance(Generic[T]):
    """Utterance with the audio that the thread has not taken yet."""

    audio: bytearray = field(default_factory=bytearray)
    is_begun: bool = False
    is_discarded: bool = False
    final: "asyncio.Future[T] | None" = None
    deadline: asyncio.TimerHandle | None = None


class ThreadStream(Generic[T]):
    """Stream of one call on a ``StreamThreads``; implements ``UtteranceStream``."""

    def __init__(
        self,
        stream: BlockingStream,
        thread: EngineThread,
        engine: "StreamThreads[T]",
        on_partial: Callable[[T], None],
        on_failure: Callable[[EngineError], None],
    ) -> None:
        self.failure: EngineError | None = None
        self._stream = stream
        self._thread = thread
        self._engine = engine
        self._limits = engine.limits
        self._on_partial = on_partial
        self._on_failure = on_failure
        # Utterances that the thread has not finished, oldest first; the open one is last.
        self._utterances: deque[_Utterance[T]] = deque()
        self._open: _Utterance[T] | None = None
        self._is_calling = False
        self._dropped_bytes = 0

    @property
    def dropped_ms(self) -> int:
        return samples_to_ms(self._dropped_bytes // PCM_BYTES_PER_SAMPLE, self._engine.rate_hz)

    @property
    def waiting_ms(self) -> int:
        waiting = sum(len(utterance.audio) for utterance in self._utterances)
        return samples_to_ms(waiting // PCM_BYTES_PER_SAMPLE, self._engine.rate_hz)

    def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.discard()
        self._open = _Utterance()
        self._utterances.append(self._open)
        self._pump()

    def feed(self, pcm: bytes) -> None:
        if self._open is None:
            return
        audio = self._open.audio
        audio += pcm
        overflow = len(audio) - self._bytes(self._limits.backlog_ms)
        if overflow > 0:
            overflow += overflow % PCM_BYTES_PER_SAMPLE
            del audio[:overflow]
            self._dropped_bytes += overflow
        self._pump()

    def finish(self) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        final: asyncio.Future[T] = loop.create_future()
        utterance, self._open = self._open, None
        if utterance is None:
            closed = EngineError("no utterance is open", engine=self._engine.name, retryable=False)
            final.set_exception(self.failure or closed)
            return final
        utterance.final = final
        utterance.deadline = loop.call_later(self._limits.request_timeout_s, self._expire, final)
        self._pump()
        return final

    def discard(self) -> None:
        utterance, self._open = self._open, None
        if utterance is not None:
            utterance.is_discarded = True
            utterance.audio.clear()
            self._pump()

    def close(self) -> None:
        if self.failure is None:
            self._end(EngineError("the stream was closed", engine=self._engine.name, retryable=False))

    def _pump(self) -> None:
        """Start the thread's next call, unless one is running."""
        if self._is_calling or self.failure is not None:
            return
        while self._utterances:
            utterance = self._utterances[0]
            if utterance.is_discarded:
                self._utterances.popleft()
                if utterance.is_begun:
                    self._call(self._stream.discard)
                    return
            elif not utterance.is_begun:
                utterance.is_begun = True
                self._call(self._stream.start)
                return
            elif self._has_piece(utterance):
                self._hand_over(utterance)
                return
            elif utterance.final is not None:
                self._call(self._stream.finish, self._settle)
                return
            else:
                return

    def _has_piece(self, utterance: _Utterance[T]) -> bool:
        least = 1 if utterance.final is not None else self._bytes(self._limits.piece_ms)
        return len(utterance.audio) >= least

    def _hand_over(self, utterance: _Utterance[T]) -> None:
        count = min(len(utterance.audio), self._bytes(self._limits.most_ms))
        pcm = bytes(utterance.audio[:count])
        del utterance.audio[:count]

        def on_result(partial: object) -> None:
            if partial is not None and utterance is self._open:
                self._on_partial(cast(T, partial))

        self._call(lambda: self._stream.feed(pcm), on_result)

    def _call(
        self, call: Callable[[], object], on_result: Callable[[object], None] = lambda _result: None
    ) -> None:
        self._is_calling = True
        loop = asyncio.get_running_loop()

        def done(called: "Future[object]") -> None:
            # The loop of a call that is over may be closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._returned, called, on_result)

        self._thread.submit(call).add_done_callback(done)

    def _returned(self, called: "Future[object]", on_result: Callable[[object], None]) -> None:
        self._is_calling = False
        if self.failure is not None:
            return
        error = called.exception()
        if error is not None:
            self._fail(self._engine.translated(error))
            return
        on_result(called.result())
        self._pump()

    def _settle(self, result: object) -> None:
        """Resolve the oldest utterance with its final result."""
        utterance = self._utterances.popleft()
        if utterance.deadline is not None:
            utterance.deadline.cancel()
        if utterance.final is not None and not utterance.final.done():
            utterance.final.set_result(cast(T, result))

    def _expire(self, final: "asyncio.Future[T]") -> None:
        if not final.done():
            limit_s = self._limits.request_timeout_s
            self._fail(EngineError(f"no result within {limit_s:g} s", engine=self._engine.name))

    def _fail(self, error: EngineError) -> None:
        if self.failure is None:
            self._end(error)
            self._on_failure(error)

    def _end(self, error: EngineError) -> None:
        self.failure = error
        self._open = None
        utterances, self._utterances = self._utterances, deque()
        for utterance in utterances:
            if utterance.deadline is not None:
                utterance.deadline.cancel()
            if utterance.final is not None and not utterance.final.done():
                utterance.final.set_exception(error)
        # Queued after the call that is running; borrowed resources are returned then.
        self._thread.submit(self._stream.close)
        self._thread.shutdown(wait=False)

    def _bytes(self, duration_ms: int) -> int:
        return ms_to_samples(duration_ms, self._engine.rate_hz) * PCM_BYTES_PER_SAMPLE


class StreamThreads(Generic[T]):
    """Asyncio interface to a blocking engine with a thread for each stream; implements ``UtteranceEngine``.

    Args:
        engine: engine whose calls wait for a remote peer; its results are passed on unchanged.
        name: name of the engine, for errors.
        limits: deadlines and bounds of a stream.
    """

    def __init__(
        self, engine: BlockingEngine, *, name: str, limits: StreamThreadSettings | None = None
    ) -> None:
        self.name = name
        self.limits = limits or StreamThreadSettings()
        self._engine = engine

    @property
    def rate_hz(self) -> int:
        return self._engine.rate_hz

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> ThreadStream[T]:
        """Open a stream as ``UtteranceEngine.open_stream``."""
        thread = EngineThread(f"{self.name}.stream")
        opening = thread.submit(self._engine.open_stream)
        try:
            stream = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            # A stream that is opened after the cancellation is closed on the thread.
            thread.submit(lambda: opening.result().close())
            thread.shutdown(wait=False)
            raise
        except Exception as error:  # any exception of the engine: the owner requests another stream
            thread.shutdown(wait=False)
            raise self.translated(error) from error
        return ThreadStream(stream, thread, self, on_partial, on_failure)

    def translated(self, error: BaseException) -> EngineError:
        """Return the error to report to the owner of a stream; log an unexpected one."""
        if isinstance(error, EngineError):
            return error
        if not isinstance(error, AgentError):
            logger.opt(exception=error).error(f"{self.name}: the engine raised {type(error).__name__}")
        return EngineError(f"{self.name}: {error}", engine=self.name)
