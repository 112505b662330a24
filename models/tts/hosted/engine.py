"""Client of a voice that runs in a worker.

Input: clauses. Output: pieces of audio with word times, as the worker's engine makes them. Each clause has a
stream of a worker to itself, with a lease of its own. A stream that is free again is kept for the next clause
for ``keep_s``, because opening one takes as long as flite's first audio.

When the sink returns False, the worker is notified at once, with the number of the clause. Its engine stops
at its next piece, and messages under way are dropped here by that number. While no piece comes, the sink is
called with an empty piece (``TextToSpeech``), so that a slow worker does not delay a stop.

Slow, dead, hung or in violation of the protocol: ``EngineError`` after ``request_timeout_s`` at the latest. A
clause without any audio yet is tried once more with another stream, unless the time is up. A worker that is
not available is not requested again for ``rest_ms``, doubling: otherwise each clause would wait for it before
the fallback voice speaks.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from loguru import logger
from pydantic import Field

from parley.core.errors import AgentError, EngineError, PeerError
from parley.core.usage import Stage
from parley.models.hosted.link import ConversationLink
from parley.models.hosted.speech import to_piece
from parley.models.hosted.streams import StreamLeasing, StreamLimits, open_link
from parley.models.hosted.worker import OneWorker, WorkerAddress, loaded_engine
from parley.models.tts import SpeechPiece
from parley.runtime.engine_hosting.messages import MessageType
from parley.runtime.trace_context import trace_facts

ENGINE = "worker"
# Interval at which the sink is called while no piece comes.
PROBE_S = 0.05
NOBODY_SPEAKS = SpeechPiece(b"")


class VoiceLimits(StreamLimits):
    """Deadlines for a worker, and number of simultaneous clauses."""

    clauses: int = Field(
        8,
        ge=1,
        le=256,
        description="clauses that this process synthesises at a time, each over one stream to a worker",
    )
    keep_s: float = Field(
        30, ge=0, le=3_600, description="time for which a stream is kept open for the next clause"
    )
    rest_ms: int = Field(
        500,
        ge=0,
        le=60_000,
        description="pause before a worker that could not be reached is tried again; doubles each time",
    )
    longest_rest_ms: int = Field(10_000, ge=0, le=600_000)


class WorkerTtsSettings(WorkerAddress, VoiceLimits):
    """Worker with a voice, and deadlines for it."""


class _Late(Exception):
    """Raised when the worker gave no piece within its deadline."""


class HostedTts:
    """Voice in workers. Thread-safe.

    Args:
        leasing: chooses the worker.
        limits: deadlines.
        rate_hz: rate of the workers' engines.
    """

    def __init__(self, leasing: StreamLeasing, limits: VoiceLimits, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.limits = limits
        self._leasing = leasing
        self._lock = threading.Lock()
        # Unused streams, with the time until which they are kept; the newest last.
        self._kept: list[tuple[float, ConversationLink]] = []
        self._sweeper: threading.Timer | None = None
        self._is_closed = False
        self._rests_until_s = 0.0
        self._rest_ms = 0

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``, as ``TextToSpeech.synthesize``.

        Raises:
            EngineError: no worker accepts the clause, or the worker fails.
        """
        begun = False

        def watched(piece: SpeechPiece) -> bool:
            nonlocal begun
            begun = begun or bool(piece.pcm)
            return sink(piece)

        stream = self._stream()
        try:
            return self._speak(stream, text, watched)
        except _Late as late:
            raise EngineError(f"{ENGINE}: no speech arrived in time", engine=ENGINE) from late
        except EngineError as error:
            if begun or not error.retryable:
                raise
            logger.warning(f"{ENGINE}: repeating a clause over another stream: {error}")
        # A kept stream may belong to a process that has ended, so a new one is opened.
        try:
            return self._speak(self._opened(), text, sink)
        except _Late as late:
            raise EngineError(f"{ENGINE}: no speech arrived in time", engine=ENGINE) from late

    def close(self) -> None:
        """Close the kept streams. Streams of clauses that are being spoken are closed after them."""
        with self._lock:
            self._is_closed = True
            kept, self._kept = self._kept, []
            if self._sweeper is not None:
                self._sweeper.cancel()
        for _, link in kept:
            link.close()

    def _speak(self, link: ConversationLink, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        number = link.put(MessageType.SPEAK, {"text": text, **trace_facts(Stage.TTS)})
        try:
            spoken = self._listen(link, number, sink)
        except PeerError as error:
            raise link.given_up(str(error)) from error
        except _Late:
            link.close()
            self._rest()
            raise
        except AgentError:
            # The worker reported an error, or the link ended; its next use shows which.
            self._keep(link)
            raise
        except BaseException:
            # The sink raised.
            self._stop(link, number)
            raise
        if spoken is None:
            self._stop(link, number)
            return False
        self._keep(link)
        return spoken

    def _listen(
        self, link: ConversationLink, number: int, sink: Callable[[SpeechPiece], bool]
    ) -> bool | None:
        """Return whether all was spoken; None when the sink stopped it."""
        due_s = time.monotonic() + self.limits.request_timeout_s
        while True:
            message = link.heard(number, within_s=PROBE_S)
            if message is None:
                if time.monotonic() >= due_s:
                    raise _Late
                if not sink(NOBODY_SPEAKS):
                    return None
            elif message.type is MessageType.DONE:
                return message.facts.get("spoken") is True
            else:
                if not sink(to_piece(message.facts, message.payload)):
                    return None
                due_s = time.monotonic() + self.limits.request_timeout_s

    def _stop(self, link: ConversationLink, number: int) -> None:
        with suppress(EngineError):
            link.notify(MessageType.STOP, {"of": number})
            self._keep(link)

    # Streams.

    def _stream(self) -> ConversationLink:
        now_s = time.monotonic()
        with self._lock:
            while self._kept:
                until_s, link = self._kept.pop()
                if until_s > now_s:
                    return link
                link.close()
        return self._opened()

    def _opened(self) -> ConversationLink:
        if time.monotonic() < self._rests_until_s:
            raise EngineError(f"{ENGINE}: the worker could not be reached a moment ago", engine=ENGINE)
        try:
            link = open_link(self._leasing, self.limits, ENGINE)
        except EngineError:
            self._rest()
            raise
        self._rest_ms = 0
        return link

    def _rest(self) -> None:
        limits = self.limits
        self._rest_ms = min(2 * self._rest_ms or limits.rest_ms, limits.longest_rest_ms)
        self._rests_until_s = time.monotonic() + self._rest_ms / 1000

    def _keep(self, link: ConversationLink) -> None:
        with self._lock:
            if link.is_open and not self._is_closed and len(self._kept) < self.limits.clauses:
                self._kept.append((time.monotonic() + self.limits.keep_s, link))
                self._sweep_later()
                return
        link.close()

    def _sweep_later(self) -> None:
        """Schedule the closing of kept streams that stay unused. The caller holds the lock."""
        if self._sweeper is None and self._kept:
            due_s = max(0.0, self._kept[0][0] - time.monotonic())
            sweeper = self._sweeper = threading.Timer(due_s, self._sweep)
            sweeper.daemon = True
            sweeper.start()

    def _sweep(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            over = [link for until_s, link in self._kept if until_s <= now_s]
            self._kept = [kept for kept in self._kept if kept[0] > now_s]
            self._sweeper = None
            self._sweep_later()
        for link in over:
            link.close()


class WorkerTts(HostedTts):
    """Voice of one worker.

    Args:
        settings: address and deadlines.

    Raises:
        ConfigError: the secret is not set, or the worker has no voice.
        EngineError: the worker is not reached, or its model does not load, or not in time.
    """

    def __init__(self, settings: WorkerTtsSettings) -> None:
        loaded = loaded_engine(
            settings, ENGINE, "tts", open_s=settings.open_timeout_s, write_s=settings.request_timeout_s
        )
        super().__init__(OneWorker(settings), settings, int(loaded["rate_hz"]))
