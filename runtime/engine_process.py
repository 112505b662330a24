"""A blocking stream engine in a child process, as asyncio sees it.

In: utterances of audio from many calls. Out: partial results by callback, final results as futures, all on
the loop. An engine that hears no utterances is asked: bytes in, bytes out (``ProcessStream.ask``). An engine
that holds the interpreter lock, or that may crash, lives in a child that was started clean (no fork of this
process), runs at lower priority than media pacing and gets no secrets from the environment.

Owners: an ``EngineProcess`` owns its child and one task that reads from it, and ends both in ``close``. Slow:
audio that the child has not taken waits here, in pieces; beyond ``backlog_ms`` the oldest is dropped and
counted. Busy: a final result comes late, by ``late_timeout_s`` at most. Hung: it has a deadline; a child
that is silent for as long is killed, and so is one that gives no sign, uses no processor and waits for none
and for no disk for ``hung_ms`` (it is pinged all the time; a busy machine is no reason). Dead:
everything pending fails with ``EngineError``, the streams are over, the child is started again at once, with
growing pauses when it keeps dying, and new streams work. Settings that were right once are not blamed: only
an engine that never loaded is given up. Full: the stream whose utterance found no room fails with
``EngineBusyError``. The parent dies: the child sees the end of its socket and leaves.
"""

import asyncio
import json
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from core.errors import AgentError, ConfigError, EngineBusyError, EngineError
from core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from runtime.engine_host import RECEIVE_BYTES, TAKEN, FrameReader, Kind, WireFrame, encode
from runtime.work_rate import WorkRate

T = TypeVar("T")

# An engine that refused an utterance counts as full for so long: after that, somebody may have finished.
FULL_S = 1.0
# Behind the deadline of an answer: what has come meanwhile is read first.
GRACE_S = 0.1
# A child counts as hung after so many looks at it, in which it gave no sign and neither used a processor nor
# waited for one or for a disk. Looks are counted and not the clock: while this loop stands, no sign of a
# child can be noticed.
HUNG_LOOKS = 4
# What a child may know of our environment. Keys of services are not in it.
PASSED_ENVIRONMENT = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PATH",
    "TMPDIR",
    "XDG_CACHE_HOME",
)
# What else a process needs that runs a large model on a device.
PASSED_TO_MODELS = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_MODULES_CACHE",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
)


class EngineProcessSettings(BaseModel):
    """Deadlines and bounds of one child."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nice: int = Field(default=5, ge=0, le=19, description="added to the child's niceness: pacing goes first")
    start_timeout_s: float = Field(default=30, gt=0, le=600, description="longest loading of the engine")
    request_timeout_s: float = Field(default=4, gt=0, le=60, description="longest wait for a final result")
    late_timeout_s: float = Field(
        default=20,
        gt=0,
        le=300,
        description="the same while the child works on and gives signs: what many speak at once is decoded "
        "late, and giving up and beginning again would make it later",
    )
    close_timeout_s: float = Field(default=2, gt=0, le=60, description="after it the child is killed")
    piece_ms: int = Field(default=40, ge=10, le=500, description="audio is sent in pieces of at least this")
    in_flight_ms: int = Field(
        default=400, ge=40, le=10_000, description="audio of one stream given to the child at once"
    )
    backlog_ms: int = Field(
        default=30_000, ge=500, le=300_000, description="audio of one stream kept for a slow child"
    )
    hung_ms: int = Field(
        default=1_000,
        ge=100,
        le=60_000,
        description="a child that gives no sign and neither uses nor waits for a processor for so long is "
        "killed (Linux)",
    )
    restart_min_ms: int = Field(
        default=200,
        ge=10,
        le=60_000,
        description="pause before the second restart; the first one is made at once",
    )
    restart_max_ms: int = Field(default=10_000, ge=10, le=600_000, description="pause that grows no more")


class ProcessStream(Generic[T]):
    """One caller of an ``EngineProcess``; see ``UtteranceStream``."""

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
        self._finals: deque[tuple[int, asyncio.Future[T], asyncio.TimerHandle]] = deque()
        self._asked = 0
        self._answers: deque[tuple[int, asyncio.Future[bytes], asyncio.TimerHandle]] = deque()
        self._piece_bytes = self._bytes(limits.piece_ms)
        self._window_bytes = self._bytes(limits.in_flight_ms)
        self._backlog_bytes = self._bytes(limits.backlog_ms)

    @property
    def is_open(self) -> bool:
        """Tell whether an utterance is under way, or its result is not there yet."""
        return self._open or bool(self._finals)

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
        self._utterance += 1
        self._open = True
        self._send(Kind.START)

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
        self._send(Kind.FINISH)
        timeout_s = self._process.limits.request_timeout_s
        deadline = loop.call_later(timeout_s, self._expire, final, loop.time())
        self._finals.append((self._utterance, final, deadline))
        return final

    def discard(self) -> None:
        if not self._open:
            return
        self._open = False
        self._waiting.clear()
        self._send(Kind.DISCARD)

    def ask(self, payload: bytes) -> "asyncio.Future[bytes]":
        """What an engine that is asked answers; questions of a stream are answered in their order.

        The future fails with EngineError: no answer in time, or the stream is over.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        if self.failure is not None:
            answer.set_exception(self.failure)
            return answer
        self._asked += 1
        self._process.send(Kind.ASK, self._number, self._asked, payload)
        timeout_s = self._process.limits.request_timeout_s
        deadline = loop.call_later(timeout_s, self._expire, answer, loop.time())
        self._answers.append((self._asked, answer, deadline))
        return answer

    def close(self) -> None:
        if self.failure is None:
            self._send(Kind.CLOSE)
            self._end(self._process.error("the stream was closed", retryable=False))
        self._process.forget(self._number)

    def fail(self, error: EngineError) -> None:
        """End the stream from the process's side: pending results fail, the owner is told once."""
        if self.failure is not None:
            return
        self._end(error)
        self._on_failure(error)

    def take(self, frame: WireFrame, result: T | None) -> None:
        """A frame of the child for this stream; ``result`` is decoded already."""
        if frame.kind is Kind.TAKEN:
            taken_bytes, work_us = TAKEN.unpack(frame.payload)
            self._in_flight_bytes -= taken_bytes
            samples = taken_bytes // PCM_BYTES_PER_SAMPLE
            self._process.work.took(samples_to_ms(samples, self._process.rate_hz), work_us / 1000)
            self._pump()
        elif frame.kind is Kind.PARTIAL and result is not None:
            if self._open and frame.utterance == self._utterance:
                self._on_partial(result)
        elif frame.kind is Kind.ANSWER:
            while self._answers and self._answers[0][0] <= frame.utterance:
                asked, answer, deadline = self._answers.popleft()
                deadline.cancel()
                if asked == frame.utterance and not answer.done():
                    answer.set_result(frame.payload)
        elif frame.kind is Kind.FINAL and result is not None:
            while self._finals and self._finals[0][0] <= frame.utterance:
                utterance, final, deadline = self._finals.popleft()
                deadline.cancel()
                if utterance == frame.utterance and not final.done():
                    final.set_result(result)

    def _end(self, error: EngineError) -> None:
        self.failure = error
        self._open = False
        self._waiting.clear()
        while self._finals:
            _, final, deadline = self._finals.popleft()
            deadline.cancel()
            if not final.done():
                final.set_exception(error)
        while self._answers:
            _, answer, deadline = self._answers.popleft()
            deadline.cancel()
            if not answer.done():
                answer.set_exception(error)

    def _expire(self, final: "asyncio.Future[Any]", asked_s: float, is_last: bool = False) -> None:
        if final.done():
            return
        loop, limits = asyncio.get_running_loop(), self._process.limits
        waited_s = loop.time() - asked_s
        if self._process.gives_signs and waited_s + limits.request_timeout_s <= limits.late_timeout_s:
            loop.call_later(limits.request_timeout_s, self._expire, final, asked_s)
            return
        if not is_last:
            # A loop that stood still has timers that are due in front of answers that are there.
            loop.call_later(GRACE_S, self._expire, final, asked_s, True)
            return
        error = self._process.error(f"no result within {max(waited_s, limits.request_timeout_s):.1f} s")
        final.set_exception(error)
        self._process.suspect()
        self.fail(error)
        # A child that lives has no more to do with it.
        self._send(Kind.CLOSE)
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
        self._send(Kind.AUDIO, bytes(self._waiting[:count]))
        del self._waiting[:count]
        self._in_flight_bytes += count

    def _send(self, kind: Kind, payload: bytes = b"") -> None:
        self._process.send(kind, self._number, self._utterance, payload)

    def _bytes(self, duration_ms: int) -> int:
        return ms_to_samples(duration_ms, self._process.rate_hz) * PCM_BYTES_PER_SAMPLE


class EngineProcess(Generic[T]):
    """One child with one engine, restarted when it dies.

    Args:
        factory: ``"package.module:Attribute"`` of the engine, called in the child with ``settings``.
        settings: the engine's own settings, which cross as JSON; None calls the factory without.
        decode: the fields of the engine's result dataclass to what the callers get.
        limits: deadlines and bounds.
        name: the engine's registry name, for errors and logs.

    Attributes:
        work: how long the engine works on a second of audio.
        restarts: how often the child was started again.
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
        self.name = name
        self.restarts = 0
        self.work = WorkRate()
        self._factory = factory
        self._settings = settings
        self._decode = decode
        self._rate_hz = 0
        self._streams: dict[int, ProcessStream[T]] = {}
        self._next_number = 1
        self._ready = asyncio.Event()
        # The last loading failed for a reason that does not pass by itself.
        self._unusable = asyncio.Event()
        # Why the engine did not load the last time.
        self._broken: AgentError | None = None
        self._has_been_ready = False
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._last_sign_s = 0.0
        self._last_refusal_s: float | None = None
        self._oldest_unanswered_s: float | None = None
        self._is_pinged = False
        self._supervisor: asyncio.Task[None] | None = None
        # Callers who wait until the engine is ready; they are told why it never will be.
        self._waiters = 0

    @property
    def rate_hz(self) -> int:
        """Samples per second that the engine wants; known after ``start``."""
        return self._rate_hz

    @property
    def pid(self) -> int | None:
        """The child's process id while there is one."""
        return self._process.pid if self._process else None

    @property
    def is_ready(self) -> bool:
        """Whether a stream opened now works at once."""
        return self._ready.is_set()

    @property
    def is_full(self) -> bool:
        """Whether the engine had no room for an utterance a moment ago."""
        refused_s = self._last_refusal_s
        return refused_s is not None and asyncio.get_running_loop().time() - refused_s < FULL_S

    @property
    def load(self) -> int:
        """Open streams."""
        return len(self._streams)

    @property
    def utterances(self) -> int:
        """Streams with an utterance whose result is not there yet."""
        return sum(stream.is_open for stream in self._streams.values())

    @property
    def gives_signs(self) -> bool:
        """Tell whether the child has written something within the time that an answer may take."""
        quiet_s = asyncio.get_running_loop().time() - self._last_sign_s
        return quiet_s < self.limits.request_timeout_s * 0.9

    async def start(self) -> None:
        """Start the child and wait until its engine is loaded.

        Raises:
            ConfigError: the engine's settings are wrong.
            EngineError: it does not load, or not in time.

        Nothing is left running after either.
        """
        self._supervisor = asyncio.create_task(self._supervise(), name=f"{self.name}.process")
        try:
            await self._wait_ready()
        except BaseException:
            await self.close()
            raise

    async def wait_ready(self) -> None:
        """Wait until a stream works, also during a restart. Raises as ``open_stream``."""
        try:
            await self._wait_ready()
        except ConfigError as error:
            # What a restart found wrong is no news for the settings of a call.
            raise self.error(str(error), retryable=False) from error

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> ProcessStream[T]:
        """See ``UtteranceEngine.open_stream``. During a restart this waits for it."""
        await self.wait_ready()
        return self._opened(on_partial, on_failure)

    def open_now(self, on_failure: Callable[[EngineError], None]) -> ProcessStream[T]:
        """A stream that is only asked.

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
        self.send(Kind.OPEN, self._next_number, 0, b"")
        self._next_number += 1
        return stream

    async def close(self) -> None:
        """End the child and its task within ``close_timeout_s``. Open streams fail."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
        self._fail_streams(self.error("the engine was closed", retryable=False))

    def error(self, message: str, *, retryable: bool = True) -> EngineError:
        """An error that names this engine."""
        return EngineError(f"{self.name}: {message}", engine=self.name, retryable=retryable)

    def send(self, kind: Kind, stream: int, utterance: int, payload: bytes) -> None:
        """Queue a frame for the child; nothing happens without one. The streams bound what is queued."""
        if self._writer is None or self._writer.is_closing():
            return
        if self._oldest_unanswered_s is None:
            self._oldest_unanswered_s = asyncio.get_running_loop().time()
        self._writer.write(encode(kind, stream, utterance, payload))

    def forget(self, number: int) -> None:
        """A stream is closed."""
        self._streams.pop(number, None)

    def suspect(self) -> None:
        """Kill the child when it has given no sign for as long as a result may take.

        One late result is not enough: a busy child that answers others is left alone.
        """
        asked_s = self._oldest_unanswered_s
        if asked_s is None or self._process is None or self._process.returncode is not None:
            return
        quiet_s = asyncio.get_running_loop().time() - max(self._last_sign_s, asked_s)
        # A tenth of tolerance: the deadline that called us was armed a moment after the question was sent.
        if quiet_s >= self.limits.request_timeout_s * 0.9:
            logger.error(f"{self.name}: the engine process gives no sign for {quiet_s:.1f} s: killed")
            self._process.kill()

    async def _wait_ready(self) -> None:
        if self._supervisor is None or self._supervisor.done():
            raise self._broken or self.error("the engine process is not running", retryable=False)
        waiters = {asyncio.ensure_future(each.wait()) for each in (self._ready, self._unusable)}
        self._waiters += 1
        try:
            await asyncio.wait(
                {*waiters, self._supervisor},
                timeout=self.limits.start_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._waiters -= 1
            for waiter in waiters:
                waiter.cancel()
        if not self._ready.is_set():
            raise self._broken or self.error("the engine does not become ready")

    async def _supervise(self) -> None:
        pause_ms, reported = 0, ""
        while True:
            began_s = asyncio.get_running_loop().time()
            try:
                await self._live()
            except (OSError, AgentError, ValueError) as error:
                # Whoever waits gets the final error itself, and says it once.
                is_known = str(error) == reported or (self._unusable.is_set() and self._waiters)
                reported = str(error)
                if not is_known:
                    logger.error(f"{self.name}: engine process failed: {error}")
            if self._is_beyond_repair:
                return
            lived_s = asyncio.get_running_loop().time() - began_s
            if lived_s * 1000 > self.limits.restart_max_ms:
                pause_ms = 0
            self.restarts += 1
            when = f"in {pause_ms} ms" if pause_ms else "at once"
            logger.warning(f"{self.name}: engine process ended, starting it again {when}")
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(max(pause_ms * 2, self.limits.restart_min_ms), self.limits.restart_max_ms)

    @property
    def _is_beyond_repair(self) -> bool:
        # An engine that loaded once will load again: memory or a file may be missing for a while, and a
        # process that gives up leaves every later call without it.
        return self._unusable.is_set() and not self._has_been_ready

    async def _live(self) -> None:
        """One life of the child, from start to end; the child is gone when this returns or raises."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "runtime.engine_host",
                str(theirs.fileno()),
                str(self.limits.nice),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_child_environment(),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        watch: asyncio.Task[None] | None = None
        try:
            reader, self._writer = await asyncio.open_connection(sock=ours)
            self._writer.write(encode(Kind.CONFIGURE, payload=self._configuration()))
            watch = asyncio.create_task(self._watch(self._process), name=f"{self.name}.watch")
            await self._read(reader)
        finally:
            if watch is not None:
                watch.cancel()
            self._ready.clear()
            self._fail_streams(self.error("the engine process ended"))
            await self._reap()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Kill a child that stands: stopped, deadlocked, waiting for what never comes. Until cancelled."""
        looks, self._is_pinged = 0, False
        before: tuple[float, int | None] = (0.0, None)
        while True:
            await asyncio.sleep(self.limits.hung_ms / 1000 / HUNG_LOOKS)
            if not self.is_ready or process.returncode is not None:
                # Loading has a deadline of its own.
                continue
            if not self._is_pinged:
                # Not everything that is sent has an answer.
                self._is_pinged, looks = True, 0
                self.send(Kind.PING, 0, 0, b"")
                continue
            now = self._last_sign_s, processor_ticks(process.pid)
            is_still = now == before and now[1] is not None and not waits_for_processor(process.pid)
            looks = looks + 1 if is_still else 0
            before = now
            if looks >= HUNG_LOOKS:
                logger.error(f"{self.name}: the engine process stands: killed")
                process.kill()
                return

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        async with asyncio.timeout(self.limits.start_timeout_s) as deadline:
            while data := await _read_from(reader):
                self._last_sign_s = asyncio.get_running_loop().time()
                self._oldest_unanswered_s = None
                for frame in frames.feed(data):
                    if frame.kind is Kind.READY:
                        self._rate_hz = json.loads(frame.payload)["rate_hz"]
                        self._broken = None
                        self._unusable.clear()
                        self._has_been_ready = True
                        self._ready.set()
                        deadline.reschedule(None)
                    elif frame.kind is Kind.PONG:
                        self._is_pinged = False
                    elif frame.kind is Kind.BROKEN:
                        self._broken = self._error_of(frame)
                        if not getattr(self._broken, "retryable", False):
                            self._unusable.set()
                        raise self._broken
                    else:
                        self._deliver(frame)

    def _deliver(self, frame: WireFrame) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        if frame.kind is Kind.FAILED:
            error = self._error_of(frame)
            if isinstance(error, EngineBusyError):
                self._last_refusal_s = asyncio.get_running_loop().time()
            # A call cannot mend the configuration: to it, every failure is the engine's.
            stream.fail(error if isinstance(error, EngineError) else self.error(str(error), retryable=False))
            self.forget(frame.stream)
            return
        result: T | None = None
        if frame.kind in (Kind.PARTIAL, Kind.FINAL):
            try:
                result = self._decode(json.loads(frame.payload))
            except (KeyError, TypeError, ValueError) as error:
                stream.fail(self.error(f"a result cannot be read: {error}", retryable=False))
                self.forget(frame.stream)
                return
        stream.take(frame, result)

    def _error_of(self, frame: WireFrame) -> AgentError:
        facts = json.loads(frame.payload)
        message = f"{self.name}: {facts['message']}"
        match facts["class"]:
            case "ConfigError":
                return ConfigError(message)
            case "EngineBusyError":
                return EngineBusyError(message, engine=self.name)
            case _:
                return EngineError(message, engine=self.name, retryable=facts["retryable"])

    def _fail_streams(self, error: EngineError) -> None:
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.fail(error)

    async def _reap(self) -> None:
        """Close the socket, which is the child's sign to leave; kill it at the deadline."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            # A deadline that passes is no error here, and raised while a cancellation passes it would replace
            # it.
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.close_timeout_s):
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _configuration(self) -> bytes:
        settings = self._settings
        kind = None if settings is None else f"{type(settings).__module__}:{type(settings).__qualname__}"
        facts = {
            "factory": self._factory,
            "settings_type": kind,
            "settings": None if settings is None else settings.model_dump_json(),
        }
        return json.dumps(facts).encode()


def waits_for_processor(pid: int) -> bool:
    """Return whether a thread of a process waits for a processor or a disk: neither is a sign of hanging.

    On a busy machine a thread waits for seconds for either of them.
    """
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
        # "D" waits for a disk, or for memory that is swapped in; a kill would have to wait for it too.
        return any(state in ("R", "D") for state in states)
    except OSError:
        # A thread that has just ended: it ran.
        return True


async def _read_from(reader: asyncio.StreamReader) -> bytes:
    """Return what a child wrote; nothing when it has ended."""
    try:
        return await reader.read(RECEIVE_BYTES)
    except ConnectionResetError:
        # It died with something unread, a ping for example: the same end.
        return b""


def processor_ticks(pid: int) -> int | None:
    """Processor time that a process has used, in clock ticks; None where that is not known."""
    try:
        # Fields after the command name, which may itself hold spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])


def _child_environment() -> dict[str, str]:
    environment = {key: os.environ[key] for key in PASSED_ENVIRONMENT if key in os.environ}
    # The child finds the same packages wherever it is started from.
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    return environment
