"""Early looks at a voice over the bot: the caller's audio in, the log odds that it interrupts out.

Inputs: the caller's audio, and when a voice over a reply begins and is over or decided. Output: calls of
``on_look`` with the index of the look and its log odds (``models.stt.looks``). Barge-in decides what follows
(``turn_taking.barge_in.barge_in``).

The recogniser's own process answers, between two pieces of its work; nothing is computed here. A look copies
the voice so far, at most ``BEFORE_MS`` and the last of ``LOOKS_MS``, and sends it as one request. The times
are those of the audio, so there is no timer. One request waits at a time: while the recogniser is slow, looks
that become due are left out, and an answer whose voice is decided is not reported. When the engine is full or
dead, the stream is over, which is logged, and the words decide as without looks. A task of this object opens
another stream; ``close`` cancels it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from loguru import logger

from parley.core.errors import EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.models.stt import Transcript
from parley.models.stt.looks import BEFORE_MS, LOOKS_MS, ask_look, read_look
from parley.processors.turns.reopened_stream import ReopenedStream
from parley.runtime.engine_hosting.messages import EngineMessage

# Audio kept while the caller is silent: ``BEFORE_MS``, the voice that voice activity needs to be certain, and
# what passes on while a busy loop delays its report.
KEPT_MS = 2_000


class LookStream(Protocol):
    """Stream of one caller in the process that answers."""

    def ask(self, question: EngineMessage) -> "asyncio.Future[EngineMessage]": ...

    def close(self) -> None: ...


class LookEngine(Protocol):
    """Recogniser that answers requests about a voice."""

    @property
    def rate_hz(self) -> int: ...

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> LookStream: ...


class EarlyLooks(Protocol):
    """Early looks of one call: ``VoiceLooks``, or ``NoLooks`` where there are none."""

    @property
    def listeners(self) -> Sequence[Callable[[bytes], None]]:
        """Receivers of the caller's audio."""
        ...

    def on_voice_started(self, voiced_ms: int, on_look: Callable[[int, float], None]) -> None:
        """Begin the looks at a voice; see ``VoiceLooks``."""
        ...

    def on_voice_over(self) -> None:
        """End the looks: the voice is over, or is decided."""
        ...

    def close(self) -> None:
        """Release what the looks hold."""
        ...


class NoLooks:
    """Looks of a call in which no voice is looked at early."""

    listeners: Sequence[Callable[[bytes], None]] = ()

    def on_voice_started(self, voiced_ms: int, on_look: Callable[[int, float], None]) -> None:
        """Look at nothing."""

    def on_voice_over(self) -> None:
        """Do nothing: no look was taken."""

    def close(self) -> None:
        """Do nothing: it holds nothing."""


class VoiceLooks:
    """Early looks of one call.

    Args:
        engine: shared by all calls; its owner starts and closes it.
    """

    def __init__(self, engine: LookEngine) -> None:
        self._engine = engine
        self._kept_open = ReopenedStream[LookStream](
            engine, lost="voices are not looked at", on_lost=self._lose
        )
        # Audio: the last ``KEPT_MS`` while no voice is examined, else all of the voice, preceded by
        # ``BEFORE_MS``.
        self._heard = bytearray()
        self._on_look: Callable[[int, float], None] | None = None
        # The next look of the present voice, and the request that is not answered yet.
        self._next = 0
        self._asked: asyncio.Future[EngineMessage] | None = None

    async def open(self) -> None:
        """Open a stream. Without one no voice is examined."""
        await self._kept_open.open()

    @property
    def listeners(self) -> Sequence[Callable[[bytes], None]]:
        """Receivers of the caller's audio."""
        return (self.hear,)

    def hear(self, pcm: bytes) -> None:
        """Add a piece of the caller's audio, 16-bit mono at the engine's rate."""
        if self._kept_open.stream is None:
            return
        self._heard += pcm
        if self._on_look is None or self._next == len(LOOKS_MS):
            del self._heard[: max(0, len(self._heard) - self._bytes(KEPT_MS))]
        else:
            self._look()

    def on_voice_started(self, voiced_ms: int, on_look: Callable[[int, float], None]) -> None:
        """Begin the looks at a voice that began ``voiced_ms`` ago.

        Args:
            voiced_ms: length of its audio so far.
            on_look: called on the loop with the index of a look in ``LOOKS_MS`` and its log odds; not called
                after ``on_voice_over``.
        """
        if self._kept_open.stream is None:
            return
        length = self._bytes(BEFORE_MS + voiced_ms)
        del self._heard[: max(0, len(self._heard) - length)]
        # At the beginning of a call there is less audio than that: a look counts from the beginning of the
        # voice.
        self._heard[:0] = bytes(length - len(self._heard))
        self._on_look, self._next = on_look, 0
        self._look()

    def on_voice_over(self) -> None:
        """End the looks: the voice is over, or is decided."""
        self._on_look = None

    def close(self) -> None:
        """Release the stream."""
        self._lose()
        self._kept_open.close()

    def _look(self) -> None:
        """Send the last request that is due, unless one waits."""
        stream, on_look = self._kept_open.stream, self._on_look
        due = self._next
        while due < len(LOOKS_MS) and len(self._heard) >= self._bytes(BEFORE_MS + LOOKS_MS[due]):
            due += 1
        if due == self._next or stream is None or on_look is None:
            return
        self._next, look = due, due - 1
        if self._asked is None or self._asked.done():
            pcm = bytes(self._heard[: self._bytes(BEFORE_MS + LOOKS_MS[look])])
            self._asked = stream.ask(ask_look(pcm, look))
            self._asked.add_done_callback(lambda answer: self._answered(answer, on_look, look))

    def _answered(
        self, answer: "asyncio.Future[EngineMessage]", on_look: Callable[[int, float], None], look: int
    ) -> None:
        # The failure was reported to ``_kept_open``.
        if answer.cancelled() or answer.exception() is not None or self._on_look is not on_look:
            return
        try:
            log_odds = read_look(answer.result())
        except EngineError as error:
            # An engine with an invalid answer is not used again.
            self.close()
            logger.warning(f"early judgements of voices are off in this call: {error}")
            return
        on_look(look, log_odds)

    def _lose(self) -> None:
        self._on_look = None
        self._heard.clear()

    def _bytes(self, ms: int) -> int:
        return ms_to_samples(ms, self._engine.rate_hz) * PCM_BYTES_PER_SAMPLE
