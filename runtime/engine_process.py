"""Asyncio interface to a blocking stream engine in a child process.

Inputs: utterances of audio from many calls. Outputs: partial results by callback and final results as
futures, all on the loop. Other work of an engine is requested through ``ProcessStream.ask``. An engine that
holds the interpreter lock, or that may crash, runs in a child. The child is started clean (no fork of this
process), runs at lower priority than media pacing and gets no secrets from the environment.

Owners: an ``EngineProcess`` owns its child (``runtime.engine_hosting.child``) and ends it in ``close``. Slow:
audio that the child has not taken waits here, in pieces; beyond ``backlog_ms`` the oldest is dropped and
counted. Busy: a final result comes late, by ``late_timeout_s`` at most. Hung: a result has a deadline, and a
child that is silent for as long is killed. Dead: everything pending fails with ``EngineError`` and the
streams end; the child is started again, and new streams work. Full: the stream whose utterance found no room
fails with ``EngineBusyError``. Death of the parent: the child sees the end of its socket and exits.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from parley.core.errors import ConfigError, EngineBusyError, EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from parley.protocols.facts import to_facts
from parley.runtime.engine_hosting.child import ChildSettings, EngineChild
from parley.runtime.engine_hosting.messages import (
    AudioTaken,
    EngineFailure,
    EngineMessage,
    EngineSpec,
    MessageType,
)
from parley.runtime.work_rate import WorkRate

T = TypeVar("T")

# An engine that refused an utterance counts as full for this long; by then another call may have finished.
FULL_S = 1.0
# Added to the deadline of an answer, so that data that has arrived meanwhile is read first.
GRACE_S = 0.1


class EngineProcessSettings(ChildSettings):
    """Deadlines and bounds of one child and its streams."""

    nice: int = Field(
        default=5,
        ge=0,
        le=19,
        description="added to the niceness of the child process, so that audio pacing has priority",
    )
    request_timeout_s: float = Field(default=4, gt=0, le=60, description="longest wait for a final result")
    late_timeout_s: float = Field(
        default=20,
        gt=0,
        le=300,
        description="the same while the child process is working and reports progress: when many callers "
        "speak at once, decoding is late, and a restart would make it later",
    )
    piece_ms: int = Field(default=40, ge=10, le=500, description="least audio that is sent at a time")
    in_flight_ms: int = Field(
        default=400,
        ge=40,
        le=10_000,
        description="audio of one stream that is with the child process at a time",
    )
    backlog_ms: int = Field(
        default=30_000,
        ge=500,
        le=300_000,
        description="audio of one stream kept while the child process is slow",
    )


class _Question(NamedTuple):
    """Pending answer of a stream.

    Attributes:
        future: receives the answer or the failure.
        deadline: timer that fails the future.
        is_final: the answer is the final result of an utterance.
    """

    future: "asyncio.Future[Any]"
    deadline: asyncio.TimerHandle
    is_final: bool


class ProcessStream(Generic[T]):
    """Stream of one call on an ``EngineProcess``; implements ``UtteranceStream``."""

    def __init__(
        self,
        process: "EngineProcess[T]",
        number: int,
        on_partial: Callable[[T], None],
        on_failure: Callable[[EngineError], None],
    ) -> None:
        limits = process.limits
        self.failure: EngineError | None = None
        self._process = process
        self._number = number
        self._on_partial = on_partial
        self._on_failure = on_failure
        self._utterance = 0
        self._open = False
        self._waiting = bytearray()
        self._in_flight_bytes = 0
        self._dropped_bytes = 0
        # Number of the newest utterance or question.
        self._newest = 0
        self._pending: dict[int, _Question] = {}
        self._piece_bytes = self._bytes(limits.piece_ms)
        self._window_bytes = self._bytes(limits.in_flight_ms)
        self._backlog_bytes = self._bytes(limits.backlog_ms)

    @property
    def is_open(self) -> bool:
        """True while an utterance is under way or its result is pending."""
        return self._open or any(question.is_final for question in self._pending.values())

    @property
    def dropped_ms(self) -> int:
        return samples_to_ms(self._dropped_bytes // PCM_BYTES_PER_SAMPLE, self._process.rate_hz)

    @property
    def waiting_ms(self) -> int:
        waiting_bytes = len(self._waiting) + self._in_flight_bytes
        return samples_to_ms(waiting_bytes // PCM_BYTES_PER_SAMPLE, self._process.rate_hz)

    def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._open:
            self.discard()
        self._utterance = self._newest = self._newest + 1
        self._open = True
        self._send(MessageType.START)

    def feed(self, pcm: bytes) -> None:
        if not self._open:
            return
        self._waiting += pcm
        overflow = len(self._waiting) - self._backlog_bytes
        if overflow > 0:
            overflow += overflow % PCM_BYTES_PER_SAMPLE
            del self._waiting[:overflow]
            self._dropped_bytes += overflow
        self._pump()

    def finish(self) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        final: asyncio.Future[T] = loop.create_future()
        if self.failure is not None or not self._open:
            final.set_exception(self.failure or self._process.error("no utterance is open", retryable=False))
            return final
        self._open = False
        if self._waiting:
            self._transmit(len(self._waiting))
        self._send(MessageType.FINISH)
        self._expect(self._utterance, final, is_final=True)
        return final

    def discard(self) -> None:
        if not self._open:
            return
        self._open = False
        self._waiting.clear()
        self._send(MessageType.DISCARD)

    def ask(self, question: EngineMessage) -> "asyncio.Future[EngineMessage]":
        """Send a question to the engine's side of the stream; the stream assigns its number.

        Questions are answered in order. The future fails with EngineError when no answer comes in time or the
        stream is over.
        """
        answer: asyncio.Future[EngineMessage] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            answer.set_exception(self.failure)
            return answer
        self._newest += 1
        numbered = EngineMessage(question.type, self._newest, question.facts, question.payload)
        self._process.send(numbered, self._number)
        self._expect(self._newest, answer, is_final=False)
        return answer

    def close(self) -> None:
        if self.failure is None:
            self._send(MessageType.RELEASE)
            self._end(self._process.error("the stream was closed", retryable=False))
        self._process.forget(self._number)

    def fail(self, error: EngineError) -> None:
        """End the stream on behalf of the process: pending results fail, the owner is notified once."""
        if self.failure is not None:
            return
        self._end(error)
        self._on_failure(error)

    def take(self, message: EngineMessage) -> None:
        """Handle a message of the child for this stream.

        Raises:
            EngineError: the result cannot be decoded.
        """
        match message.type:
            case MessageType.TAKEN:
                taken = AudioTaken(**message.facts)
                self._in_flight_bytes -= taken.size_bytes
                samples = taken.size_bytes // PCM_BYTES_PER_SAMPLE
                self._process.work.took(samples_to_ms(samples, self._process.rate_hz), taken.work_us / 1000)
                self._pump()
            case MessageType.PIECE:
                partial = self._process.decode(message.facts)
                if self._open and message.number == self._utterance:
                    self._on_partial(partial)
            case MessageType.DONE if message.number in self._pending:
                question = self._pending[message.number]
                result = self._process.decode(message.facts) if question.is_final else message
                del self._pending[message.number]
                question.deadline.cancel()
                if not question.future.done():
                    question.future.set_result(result)

    def _expect(self, number: int, future: "asyncio.Future[Any]", *, is_final: bool) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = self._process.limits.request_timeout_s
        deadline = loop.call_later(timeout_s, self._expire, future, loop.time())
        self._pending[number] = _Question(future, deadline, is_final)

    def _end(self, error: EngineError) -> None:
        self.failure = error
        self._open = False
        self._waiting.clear()
        pending, self._pending = self._pending, {}
        for question in pending.values():
            question.deadline.cancel()
            if not question.future.done():
                question.future.set_exception(error)

    def _expire(self, final: "asyncio.Future[Any]", asked_s: float, is_last: bool = False) -> None:
        if final.done():
            return
        loop, limits = asyncio.get_running_loop(), self._process.limits
        waited_s = loop.time() - asked_s
        if self._process.gives_signs and waited_s + limits.request_timeout_s <= limits.late_timeout_s:
            loop.call_later(limits.request_timeout_s, self._expire, final, asked_s)
            return
        if not is_last:
            # After a block of the loop, timers run before the answers that have already arrived.
            loop.call_later(GRACE_S, self._expire, final, asked_s, True)
            return
        error = self._process.error(f"no result within {max(waited_s, limits.request_timeout_s):.1f} s")
        final.set_exception(error)
        self._process.suspect()
        self.fail(error)
        # If the child is alive, it releases the stream as well.
        self._send(MessageType.RELEASE)
        self._process.forget(self._number)

    def _pump(self) -> None:
        if not self._open:
            return
        room = self._window_bytes - self._in_flight_bytes
        if room < self._piece_bytes:
            if self._waiting:
                self._process.suspect()
            return
        if len(self._waiting) >= self._piece_bytes:
            self._transmit(min(len(self._waiting), room))

    def _transmit(self, count: int) -> None:
        count -= count % PCM_BYTES_PER_SAMPLE
        self._send(MessageType.AUDIO, bytes(self._waiting[:count]))
        del self._waiting[:count]
        self._in_flight_bytes += count

    def _send(self, type_: MessageType, payload: bytes = b"") -> None:
        self._process.send(EngineMessage(type_, self._utterance, payload=payload), self._number)

    def _bytes(self, duration_ms: int) -> int:
        return ms_to_samples(duration_ms, self._process.rate_hz) * PCM_BYTES_PER_SAMPLE


class EngineProcess(EngineChild, Generic[T]):
    """Child process with one engine, restarted when it dies.

    Args:
        factory: ``"package.module:Attribute"`` of the engine, called in the child with ``settings``.
        settings: the engine's own settings, sent as JSON; None calls the factory without arguments.
        decode: converts the fields of the engine's result dataclass to the result that callers get.
        limits: deadlines and bounds.
        name: the engine's registry name, for errors and logs.

    Attributes:
        work: time that the engine works on a second of audio.
    """

    def __init__(
        self,
        factory: str,
        settings: BaseModel | None,
        *,
        decode: Callable[[Mapping[str, object]], T],
        limits: EngineProcessSettings | None = None,
        name: str = "engine",
    ) -> None:
        self.limits = limits or EngineProcessSettings()
        super().__init__(
            (sys.executable, "-P", "-m", "parley.runtime.engine_host", str(self.limits.nice)),
            to_facts(EngineSpec.of(factory, settings)),
            limits=self.limits,
            name=name,
            on_message=self._on_stream_message,
            on_end=lambda: self._fail_streams(self.error("the engine process ended")),
        )
        self.work = WorkRate()
        self._decode = decode
        self._streams: dict[int, ProcessStream[T]] = {}
        self._next_number = 1
        self._last_refusal_s: float | None = None

    @property
    def rate_hz(self) -> int:
        """Sample rate that the engine expects; 0 before ``start``."""
        return int(self.loaded.get("rate_hz", 0))

    @property
    def is_full(self) -> bool:
        """True when the engine refused an utterance for lack of room within the last ``FULL_S``."""
        refused_s = self._last_refusal_s
        return refused_s is not None and asyncio.get_running_loop().time() - refused_s < FULL_S

    @property
    def load(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    @property
    def utterances(self) -> int:
        """Number of streams with an utterance whose result is pending."""
        return sum(stream.is_open for stream in self._streams.values())

    @property
    def gives_signs(self) -> bool:
        """True when the child has written something within about the time that an answer may take."""
        quiet_s = asyncio.get_running_loop().time() - self.last_sign_s
        return quiet_s < self.limits.request_timeout_s * 0.9

    async def wait_ready(self) -> None:
        """Wait until a stream works, also during a restart. Raises EngineError."""
        try:
            await super().wait_ready()
        except ConfigError as error:
            # Wrong settings found at a restart are not an error of the settings of a call.
            raise self.error(str(error), retryable=False) from error

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> ProcessStream[T]:
        """Open a stream as ``UtteranceEngine.open_stream``. Waits for a restart that is under way."""
        await self.wait_ready()
        return self._opened(on_partial, on_failure)

    def open_now(self, on_failure: Callable[[EngineError], None]) -> ProcessStream[T]:
        """Return a stream that is used for questions only.

        Raises:
            EngineError: the engine is not ready.
        """
        if not self.is_ready:
            raise self.error("the engine is not ready")
        return self._opened(lambda _: None, on_failure)

    def _opened(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> ProcessStream[T]:
        stream = ProcessStream(self, self._next_number, on_partial, on_failure)
        self._streams[self._next_number] = stream
        self.send(EngineMessage(MessageType.OPEN), self._next_number)
        self._next_number += 1
        return stream

    async def close(self) -> None:
        """End the child and its task within ``close_timeout_s``. Open streams fail."""
        await super().close()
        self._fail_streams(self.error("the engine was closed", retryable=False))

    def decode(self, fields: Mapping[str, object]) -> T:
        """Return the decoded result of the engine.

        Raises:
            EngineError: the fields cannot be decoded.
        """
        try:
            return self._decode(fields)
        except (KeyError, TypeError, ValueError) as error:
            raise self.error(f"unreadable result: {error}", retryable=False) from error

    def forget(self, number: int) -> None:
        """Drop a stream that was closed."""
        self._streams.pop(number, None)

    def suspect(self) -> None:
        """Kill the child when it has been silent for as long as a result may take.

        One late result is not enough: a busy child that answers others is left alone.
        """
        # The tolerance of a tenth covers the moment between sending a question and arming its deadline.
        self.kill_if_silent(self.limits.request_timeout_s * 0.9)

    def _on_stream_message(self, number: int, message: EngineMessage) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if message.type is not MessageType.FAILED:
            try:
                stream.take(message)
            except EngineError as error:
                stream.fail(error)
                self.forget(number)
            return
        failure = EngineFailure.read(message.facts).error(self.name, prefix=f"{self.name}: ")
        if isinstance(failure, EngineBusyError):
            self._last_refusal_s = asyncio.get_running_loop().time()
        # A call cannot fix the configuration, so it gets every failure as an EngineError.
        if not isinstance(failure, EngineError):
            failure = self.error(str(failure), retryable=False)
        stream.fail(failure)
        self.forget(number)

    def _fail_streams(self, error: EngineError) -> None:
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.fail(error)
