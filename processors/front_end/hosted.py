"""Pipeline side of a caller's echo control and voice activity in a process of their own.

Inputs: pieces of the microphone and of the played audio. Outputs: pieces of the caller's voice, with the
voice activity of the windows that they complete. The analyzer, which the same audio reaches next, takes those
windows (``measure``). There is one request at a time, each with a deadline.

When the child is dead or hangs, the same requests go at once to the same engines in threads of this process.
The engines first get the last ``KEPT_MS`` of the caller replayed, which initialises the room, the echo and
the voice in progress. The request that failed is repeated, and no audio of the caller is lost. A child that
is ready, the pool's spare or the restarted one, gets the same replay while threads continue to answer, and
takes over when it has caught up. No caller stays in threads, since they take the interpreter from the loop
that paces audio. The exception is a caller with whom ``MOST_CHILDREN`` children died in a row: its audio may
be the cause. A child that lives for ``FORGET_S`` resets that count. When the engines fail in threads too, an
``EngineError`` is raised once, and ``failure`` holds it from there on. ``close`` closes the streams; it may
be called repeatedly.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

from loguru import logger

from parley.core.errors import EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.models.echo.control import MAX_WAITING, EchoControlSettings
from parley.models.front_end import (
    EchoResult,
    FrontEndEngines,
    Played,
    answered_piece,
    answered_windows,
    asked_open,
    asked_piece,
    asked_windows,
)
from parley.models.vad.meter import Window
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import ProcessStream

# Audio of a caller that new engines get replayed: an echo is found in 0.6 s in the median, and a voice
# detector needs less for a voice. A second costs a tenth of a second of a processor.
KEPT_MS = 1_000
# Number of children in a row that may die with this caller, each sooner than that, before it stays in
# threads.
MOST_CHILDREN = 3
FORGET_S = 180.0
# A child with so many waiting requests of one caller does not catch up; another is tried later.
MOST_UNANSWERED = 250
# A child with no more requests than this takes over: it answers in their order. Under load the count never
# reaches zero, since the next request comes before the answer to the last one.
CAUGHT_UP = 3
TRY_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class LocalFrontEnd:
    """Engines in this process.

    Attributes:
        engine: shared by all calls.
        executor: where requests are answered, one thread, which keeps their order; None: on the loop.
    """

    engine: FrontEndEngines
    executor: Executor | None


class _Stream(Protocol):
    """Engine side of one caller: answers requests in their order."""

    def ask(self, question: EngineMessage) -> "asyncio.Future[EngineMessage]": ...

    def close(self) -> None: ...


class _ThreadStream:
    """Engines of one caller in threads of this process."""

    def __init__(self, local: LocalFrontEnd) -> None:
        self._stream = local.engine.open_stream()
        self._executor = local.executor

    def ask(self, question: EngineMessage) -> "asyncio.Future[EngineMessage]":
        loop = asyncio.get_running_loop()
        if self._executor is not None:
            return loop.run_in_executor(self._executor, self._answer, question)
        answer: asyncio.Future[EngineMessage] = loop.create_future()
        try:
            answer.set_result(self._answer(question))
        except EngineError as error:
            answer.set_exception(error)
        return answer

    def close(self) -> None:
        # After any work that a thread still does.
        if self._executor is not None:
            try:
                self._executor.submit(self._stream.close)
                return
            except RuntimeError:
                # The process is ending, and its threads take no more work.
                pass
        self._stream.close()

    def _answer(self, question: EngineMessage) -> EngineMessage:
        return EngineMessage(MessageType.DONE, 0, *self._stream.ask(question))


@dataclass(frozen=True, slots=True)
class _Kept:
    """A piece of the caller, for a replay: 16-bit PCM, its arrival, and the audio played meanwhile."""

    pcm: bytes
    at_us: int = 0
    played: tuple[Played, ...] = ()


@dataclass(slots=True)
class _Candidate:
    """A child that is catching up.

    Attributes:
        stream: stream of this caller.
        unanswered: number of requests without an answer.
    """

    stream: ProcessStream[object]
    unanswered: int = 0

    def ask(self, question: EngineMessage) -> None:
        """Send a request whose answer is not needed."""
        self.unanswered += 1
        self.stream.ask(question).add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[EngineMessage]") -> None:
        self.unanswered -= 1
        if not answer.cancelled():
            # The stream reports the failure.
            answer.exception()


class HostedFrontEnd:
    """Front end of one caller.

    Args:
        pool: children with ``models.front_end.load_front_end``; they may be loading, or dead.
        local: engines that answer while no child does.
        forget_s: a child that served the caller for so long before it died resets the count of dead children.

    Attributes:
        rate_hz: sample rate of the microphone.
        failure: the error after which no request is answered; None before.
    """

    def __init__(self, pool: EnginePool[object], local: LocalFrontEnd, *, forget_s: float = FORGET_S) -> None:
        self.rate_hz = local.engine.rate_hz
        self.failure: EngineError | None = None
        self._pool, self._local = pool, local
        self._is_over = False
        self._echo: EchoControlSettings | None = None
        self._delay_ms: float | None = None
        self._played: deque[Played] = deque(maxlen=MAX_WAITING)
        # Taken before the next piece is requested.
        self._windows: deque[Window] = deque()
        self._kept: deque[_Kept] = deque()
        self._kept_bytes = self._forgotten_bytes = 0
        self._kept_limit = ms_to_samples(KEPT_MS, self.rate_hz) * PCM_BYTES_PER_SAMPLE
        self._children_lost, self._forget_s = 0, forget_s
        self._candidate: _Candidate | None = None
        self._try_at_s = 0.0
        # Loop time since when a child answers.
        self._hosted_since_s = asyncio.get_running_loop().time()
        self._stream: _Stream = pool.open_now(lambda _: None) if pool.is_ready else _ThreadStream(local)

    @property
    def is_in_threads(self) -> bool:
        """Return whether threads of this process answer."""
        return isinstance(self._stream, _ThreadStream)

    async def open_echo(self, settings: EchoControlSettings) -> None:
        """Open echo control for this caller, before its first piece.

        Raises:
            EngineError: the engine does not start; the stream is over.
        """
        await self._ask(asked_open(settings))
        self._echo = settings

    def played(self, pcm: bytes, rate_hz: int, at_us: int) -> None:
        """Register 16-bit PCM that leaves for the loudspeaker at ``at_us``. Any thread may call it."""
        self._played.append((pcm, rate_hz, at_us))

    async def process(self, pcm: bytes, at_us: int, *, wants_cancelled: bool) -> EchoResult:
        """Return the frames that ``pcm`` completes, without the echo.

        Raises:
            EngineError: the engine failed, here as well as in its process.
        """
        played = []
        while self._played:
            played.append(self._played.popleft())
        asked = asked_piece(pcm, at_us, played, wants_cancelled=wants_cancelled)
        piece = answered_piece(await self._ask(asked, _Kept(pcm, at_us, tuple(played))))
        self._delay_ms = piece.delay_ms
        self._windows = deque(piece.windows)
        return piece

    async def measure(self, pcm: bytes, windows: int) -> list[Window]:
        """Return the voice activity of a number of whole windows of the caller's audio.

        pcm: 16-bit; where there is echo control, its output.

        Raises:
            EngineError: the engine failed, here as well as in its process.
        """
        if self._echo is None:
            return answered_windows(await self._ask(asked_windows(pcm), _Kept(pcm)))
        if len(self._windows) < windows:
            # The audio is not that of the pieces; there are no windows for it.
            error = EngineError("a voice activity result was requested for other audio", engine="front_end")
            self.failure = self.failure or error
            self.close()
            raise error
        return [self._windows.popleft() for _ in range(windows)]

    def close(self) -> None:
        """Release the caller's streams."""
        if self._is_over:
            return
        self._is_over = True
        self._drop_candidate()
        self._stream.close()

    async def _ask(self, question: EngineMessage, kept: _Kept | None = None) -> EngineMessage:
        if self.failure is not None or self._is_over:
            raise self.failure or EngineError("the caller's front end was closed", engine="front_end")
        self._consider_child()
        candidate = self._candidate
        if candidate is not None:
            candidate.ask(question)
        try:
            answer = await self._answered(question)
        except EngineError as error:
            if not self._is_over:
                self.failure = error
                self.close()
            raise
        if kept is not None:
            self._keep(kept)
        return answer

    async def _answered(self, question: EngineMessage) -> EngineMessage:
        if not self.is_in_threads:
            try:
                return await self._stream.ask(question)
            except EngineError as error:
                if self._is_over:
                    raise
                self._fall_back(error)
        return await self._stream.ask(question)

    def _fall_back(self, error: EngineError) -> None:
        logger.warning(f"echo control and voice activity detection of a call continue in threads: {error}")
        if asyncio.get_running_loop().time() - self._hosted_since_s >= self._forget_s:
            self._children_lost = 0
        self._children_lost += 1
        self._stream.close()
        self._stream = _ThreadStream(self._local)
        for question in self._replayed():
            # In order, in one thread: later requests are answered after it. A failure here would recur there.
            self._stream.ask(question).add_done_callback(_forget)

    def _consider_child(self) -> None:
        """Start the replay to a child that is ready, or switch to it when it has caught up."""
        if not self.is_in_threads or self._children_lost >= MOST_CHILDREN:
            return
        now_s = asyncio.get_running_loop().time()
        candidate = self._candidate
        if candidate is None:
            if self._pool.is_ready and now_s >= self._try_at_s:
                self._candidate = candidate = _Candidate(self._pool.open_now(lambda _: None))
                for question in self._replayed():
                    candidate.ask(question)
        elif candidate.stream.failure is not None or candidate.unanswered > MOST_UNANSWERED:
            self._drop_candidate()
            self._try_at_s = now_s + TRY_AGAIN_S
        elif candidate.unanswered <= CAUGHT_UP:
            self._candidate = None
            self._stream.close()
            self._stream = candidate.stream
            self._hosted_since_s = now_s

    def _drop_candidate(self) -> None:
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            candidate.stream.close()

    def _keep(self, kept: _Kept) -> None:
        self._kept.append(kept)
        self._kept_bytes += len(kept.pcm)
        while self._kept_bytes - len(self._kept[0].pcm) >= self._kept_limit:
            forgotten = len(self._kept.popleft().pcm)
            self._kept_bytes -= forgotten
            self._forgotten_bytes += forgotten

    def _replayed(self) -> Iterator[EngineMessage]:
        """Yield the requests that bring new engines to the caller's present state."""
        if self._echo is None:
            yield from (asked_windows(kept.pcm) for kept in self._kept)
            return
        engine, settings = self._local.engine, self._echo
        if self._delay_ms is not None:
            expected_ms = min(max(self._delay_ms, 0.0), float(settings.longest_ms))
            settings = settings.model_copy(update={"expected_ms": min(expected_ms, 700.0)})
        # Frames and windows must end where they would have ended.
        skip = -self._forgotten_bytes % (engine.frame_samples * PCM_BYTES_PER_SAMPLE)
        begun_bytes = (self._forgotten_bytes + skip) % (engine.window_samples * PCM_BYTES_PER_SAMPLE)
        yield asked_open(settings, begun_bytes=begun_bytes)
        for kept in self._kept:
            yield asked_piece(kept.pcm[skip:], kept.at_us, kept.played, wants_cancelled=False)
            skip = max(0, skip - len(kept.pcm))


def _forget(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()
