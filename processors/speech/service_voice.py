"""Voice of one call in a service of Pipecat that runs apart from the pipeline (``NestedService``).

``ServiceVoice`` speaks one clause at a time into a ``ServiceClause``, which the call reads like the synthesis
of an engine. A later clause ends an earlier one. The connection is opened with the call, and again for the
first clause after it was lost; a service that reported an error is closed and not used again.

One task (``run``) opens, requests, cancels and closes, so no caller waits for a provider that hangs. Word
times are exact: the service runs on a clock that stands still during a clause, so its word frames carry
nothing but the place of the word in the audio of the clause. More audio than ``MOST_CLAUSE_S`` that is not
taken ends a clause with an error.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from loguru import logger
from pipecat.clocks.base_clock import BaseClock
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameProcessor, FrameProcessorSetup

from parley.core.errors import AgentError, EngineError
from parley.core.failover import CircuitBreaker
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime
from parley.models.tts import SpeechPiece
from parley.processors.nested_service import NestedService
from parley.processors.speech.audio_deadlines import AudioDeadlines
from parley.processors.speech.crossing import Ended
from parley.runtime.loop_clock import LoopClock

# A clause has at most 160 characters, about 12 s.
MOST_CLAUSE_S = 60
# An interruption passes an idle service in less than a millisecond, and Cartesia's sends one message.
INTERRUPTED_S = 0.5
# Cartesia's service reports that a clause has stopped before it reports the error that stopped it: longest
# wait for that error.
ERROR_S = 0.02
_NS_PER_MS = 1_000_000
# Longer than any clause.
_STEP_NS = 3_600 * 1_000_000_000


class SteppingClock(BaseClock):
    """Clock that stands still during a clause: the time of a word is its place in the audio.

    Pipecat times the words of an audio context from the present, or from the last word before it if that is
    later. Each clause therefore begins later than any word before it.
    """

    def __init__(self) -> None:
        self._now_ns = _STEP_NS

    def start(self) -> None:
        """Do nothing (``BaseClock``)."""

    def get_time(self) -> int:
        """Return the beginning of the present clause (``BaseClock``)."""
        return self._now_ns

    def step(self) -> None:
        """Begin the next clause."""
        self._now_ns += _STEP_NS


class ServiceClause:
    """Clause that a service voice speaks (``ClauseSpeech``); its words have a beginning, and no end.

    Args:
        text: the clause.
        voice: name of the voice, for errors.
        limit_bytes: audio that may wait to be taken.
        on_stop: called when the clause is stopped before its end; must not block.
    """

    def __init__(self, text: str, voice: str, *, limit_bytes: int, on_stop: Callable[[], None]) -> None:
        self.text = text
        self.context_id: str | None = None
        self._voice = voice
        self._on_stop = on_stop
        # Bounded by _left_bytes, and by the words of a clause.
        self._pieces: deque[SpeechPiece | Ended] = deque()
        self._news = asyncio.Event()
        self._left_bytes = limit_bytes
        self._is_over = False
        self._was_stopped = False
        # The service has sent all of it; until then an error may still come.
        self._complete_s: float | None = None

    @property
    def is_over(self) -> bool:
        """True when it has ended or was stopped."""
        return self._is_over or (self._complete_s is not None and _now_s() >= self._complete_s)

    @property
    def was_stopped(self) -> bool:
        """True when it was stopped before its end."""
        return self._was_stopped

    async def take(self, timeout_s: float) -> SpeechPiece | Ended:
        """Return the next piece, or the end (``ClauseSpeech``)."""
        due_s = _now_s() + timeout_s
        while not self._pieces:
            self._news.clear()
            complete_s = self._complete_s
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s if complete_s is None else complete_s):
                    await self._news.wait()
                continue
            if complete_s is None:
                return Ended(TimeoutError(f"{self._voice}: nothing within {timeout_s:g} s"))
            if self._is_over:
                # It was stopped after all of it was sent: no end follows.
                return Ended(None)
            self.end()
        piece = self._pieces.popleft()
        if isinstance(piece, SpeechPiece):
            self._left_bytes += len(piece.pcm)
        return piece

    def stop(self) -> None:
        """Cancel the clause, unless it is over (``ClauseSpeech``)."""
        if not self.is_over:
            self._is_over = self._was_stopped = True
            self._on_stop()

    def put(self, piece: SpeechPiece) -> None:
        """Append a piece of the voice."""
        if self.is_over:
            return
        self._left_bytes -= len(piece.pcm)
        if self._left_bytes < 0:
            self.end(EngineError("it sends more audio than a clause has", engine=self._voice))
            return
        self._pieces.append(piece)
        self._news.set()

    def complete(self) -> None:
        """Note that the service has sent all of it: it ends, unless an error comes within ``ERROR_S``."""
        if self._complete_s is None:
            self._complete_s = _now_s() + ERROR_S
            self._news.set()

    def end(self, error: Exception | None = None) -> None:
        """End the clause; an error that comes after all of it was sent is none of it."""
        if not self._is_over:
            error = None if self.is_over else error
            self._is_over = True
            self._pieces.append(Ended(error))
            self._news.set()


class ServiceVoice:
    """Voice of a vendor for one call.

    Args:
        name: name of its row.
        build: returns a new service; raises ConfigError.
        breaker: circuit breaker of the row, shared by all calls.
        rate_hz: rate of the audio.
        deadlines: deadlines of its audio.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], Awaitable[FrameProcessor]],
        breaker: CircuitBreaker,
        *,
        rate_hz: int,
        deadlines: AudioDeadlines | None = None,
    ) -> None:
        self.name = name
        self.breaker = breaker
        self.rate_hz = rate_hz
        self.deadlines = deadlines or AudioDeadlines()
        self._was_refused = False
        self._clock, self._word_clock = LoopClock(), SteppingClock()
        self._build = build
        self._service: NestedService | None = None
        self._failure: EngineError | None = None
        # The clause that the service speaks, and the one that follows it.
        self._current: ServiceClause | None = None
        self._next: ServiceClause | None = None
        self._news = asyncio.Event()
        self._interrupted = asyncio.Event()

    @property
    def was_refused(self) -> bool:
        """True when a connection could not be opened in this call."""
        return self._was_refused

    def speak(self, text: str) -> ServiceClause:
        """Return a clause that is spoken from now on; the one so far is over."""
        for each in (self._current, self._next):
            if each is not None:
                each.stop()
        limit_bytes = MOST_CLAUSE_S * self.rate_hz * PCM_BYTES_PER_SAMPLE
        self._next = ServiceClause(text, self.name, limit_bytes=limit_bytes, on_stop=self._news.set)
        self._news.set()
        return self._next

    def give_up(self) -> None:
        """Close the connection: the service hangs or sends nothing of use."""
        self._failure = self._failure or EngineError("it was given up", engine=self.name)
        self._news.set()

    async def run(self, setup: FrameProcessorSetup) -> None:
        """Open the service and serve clauses until cancelled."""
        try:
            if self.breaker.is_closed:
                await self._open(setup)
            while True:
                await self._news.wait()
                self._news.clear()
                await self._serve(setup)
        finally:
            await self._close()

    async def _serve(self, setup: FrameProcessorSetup) -> None:
        if self._failure is not None:
            await self._close()
        if self._current is not None and self._current.is_over:
            current, self._current = self._current, None
            if self._service is not None and current.was_stopped:
                await self._interrupt(self._service)
        following, self._next = self._next, None
        if following is None or following.is_over:
            return
        if self._service is None:
            await self._open(setup)
        if self._service is None or following.is_over:
            failure = self._failure or EngineError("there is no connection", engine=self.name)
            following.end(failure)
            return
        self._current = following
        self._word_clock.step()
        await self._service.send(TTSSpeakFrame(following.text, append_to_context=False))

    async def _open(self, setup: FrameProcessorSetup) -> None:
        """Open the service; a failure is kept for the clause that needs it."""
        self._failure = None
        try:
            service = await self._build()
            nested = NestedService(self.name, service, on_output=self._on_output, on_error=self._on_error)
            self._service = nested
            await nested.open(setup, clock=self._word_clock)
        except AgentError as error:
            self._on_error(EngineError(str(error), engine=self.name))
        except Exception as error:  # code of a vendor, which may raise any error
            self._on_error(EngineError(f"it does not open: {type(error).__name__}", engine=self.name))
        if self._failure is not None:
            self._was_refused = True
            self.breaker.on_failure(self._clock.now_ms())
            await self._close(keep_failure=True)

    async def _interrupt(self, service: NestedService) -> None:
        """Cancel what the service still speaks; one that does not react is closed."""
        self._interrupted.clear()
        await service.send(InterruptionFrame())
        try:
            async with asyncio.timeout(INTERRUPTED_S):
                await self._interrupted.wait()
        except TimeoutError:
            logger.warning(f"{self.name}: an interruption has not passed within {INTERRUPTED_S:g} s")
            await self._close()

    async def _close(self, *, keep_failure: bool = False) -> None:
        service, self._service = self._service, None
        if service is not None:
            await service.close()
        if not keep_failure:
            self._failure = None

    def _on_error(self, error: EngineError) -> None:
        self._failure = error
        if self._current is not None:
            self._current.end(error)
        self._news.set()

    async def _on_output(self, frame: Frame) -> None:
        if isinstance(frame, InterruptionFrame):
            self._interrupted.set()
            return
        clause = self._current
        if clause is None or not isinstance(
            frame, (TTSStartedFrame, TTSAudioRawFrame, TTSTextFrame, TTSStoppedFrame)
        ):
            return
        if isinstance(frame, TTSStartedFrame) and clause.context_id is None:
            clause.context_id = frame.context_id
        if frame.context_id != clause.context_id:
            # The rest of an earlier clause.
            return
        if isinstance(frame, TTSAudioRawFrame):
            self._take_audio(clause, frame)
        elif isinstance(frame, TTSTextFrame) and frame.pts:
            start_ms = (frame.pts - self._word_clock.get_time()) // _NS_PER_MS
            if start_ms >= 0:
                # Without a time Pipecat gives a word that of the last one, which was in another clause.
                clause.put(SpeechPiece(b"", (WordTime(frame.text, start_ms, start_ms),)))
        elif isinstance(frame, TTSStoppedFrame):
            clause.complete()

    def _take_audio(self, clause: ServiceClause, frame: TTSAudioRawFrame) -> None:
        if frame.sample_rate != self.rate_hz:
            clause.end(EngineError(f"its audio has {frame.sample_rate} Hz", engine=self.name))
            return
        clause.put(SpeechPiece(frame.audio))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
