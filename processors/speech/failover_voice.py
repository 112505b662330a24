"""Voices of a call in order: what one does not say, the next one says.

Decides clause by clause and within a clause. A service voice that reports an error, gives no sound in time,
stops giving audio or gives silence has failed. The rest of its clause goes to the next voice, from the first
word of which less than half was passed on. Its circuit breaker opens, so the next clauses of all calls go to
the next voice at once. When a cool-down is over, a clause is spoken twice: by the fallback for the caller,
and by the broken voice as a probe whose audio is dropped. So no caller waits for a probe. When it succeeds,
the service voice speaks again from the next reply on; a voice does not change back within a reply.

Where no embedded voice speaks on, a broken service is tried with a clause before the call is given up:
failures of other calls close no line.

``EngineFailedOver`` is published when another voice than before speaks, and ``EnginesGivenUp`` once, when the
last one has failed. After that the last one is still used: for the words with which the call ends.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence, Set
from typing import Any

from loguru import logger
from pipecat.processors.frame_processor import FrameProcessorSetup

from parley.core.call_events import EngineFailedOver, EnginesGivenUp
from parley.core.errors import EngineError
from parley.core.failover import FailoverReason
from parley.core.media import WordTime
from parley.core.usage import Stage
from parley.models.tts import SpeechPiece
from parley.processors.speech.clause_progress import ClauseProgress
from parley.processors.speech.crossing import ClauseSpeech, Ended
from parley.processors.speech.service_voice import ServiceClause, ServiceVoice
from parley.runtime.event_stream import CallEvents

SPEAKING = "speaking"
# A clause begins with at most 0.3 s of silence; a voice that has sent this much sends nothing else.
MOST_SILENCE_MS = 1_500
# An outage of a provider takes minutes, a lost connection less than a second. Each probe costs a clause.
COOL_DOWN_MS, LONGEST_COOL_DOWN_MS = 5_000, 120_000
# Clauses in a row that the embedded voice may fail with: a busy machine is late with one.
MOST_FAILURES = 2


class VoiceFailedError(EngineError):
    """A service voice has failed with a clause.

    Attributes:
        reason: reason for which another voice says the rest.
    """

    def __init__(self, message: str, *, engine: str, reason: FailoverReason) -> None:
        super().__init__(message, engine=engine)
        self.reason = reason


class ServiceLeg:
    """Part of a clause that a service voice speaks, with the deadlines of its audio.

    Args:
        clause: the part, on its way.
        voice: the voice.
        progress: account of the part.
    """

    def __init__(self, clause: ServiceClause, voice: ServiceVoice, progress: ClauseProgress) -> None:
        self._clause = clause
        self._voice = voice
        self.progress = progress
        self._due_s = asyncio.get_running_loop().time() + voice.deadlines.first_s
        self._ended: Ended | None = None

    async def take(self) -> SpeechPiece | Ended:
        """Return the next piece, or the end; its error is a ``VoiceFailedError``."""
        while self._ended is None:
            left_s = max(0.0, self._due_s - asyncio.get_running_loop().time())
            item = await self._clause.take(left_s)
            piece = self.progress.add(item) if isinstance(item, SpeechPiece) else self._end(item.error)
            if piece is not None:
                if piece.pcm:
                    self._due_s = asyncio.get_running_loop().time() + self._voice.deadlines.next_s
                return piece
            if self.progress.silence_ms > MOST_SILENCE_MS:
                self._fail(FailoverReason.SILENT, "it sends silence")
        return self._ended

    def stop(self) -> None:
        """Stop the voice."""
        self._clause.stop()

    def _end(self, error: Exception | None) -> SpeechPiece | None:
        """Note the end of the part; return its last words, if any."""
        if isinstance(error, TimeoutError):
            reason = FailoverReason.STALLED if self.progress.has_sound else FailoverReason.LATE
            self._fail(reason, "no audio in time")
        elif error is not None:
            self._fail(FailoverReason.ERROR, str(error))
        elif not self.progress.has_sound:
            self._fail(FailoverReason.SILENT, "it made no sound")
        else:
            self._ended = Ended(None)
            return self.progress.finish()
        return None

    def _fail(self, reason: FailoverReason, message: str) -> None:
        self._ended = Ended(VoiceFailedError(message, engine=self._voice.name, reason=reason))


class FailoverVoices:
    """Voices of one call, the preferred one first.

    Args:
        services: service voices, in order.
        last: name of the embedded voice after them.
        start_last: begins a text with that voice.
        events: events of the call.
        speaks_on: the last voice goes on with the call. Otherwise it only says that the call cannot go on.
    """

    def __init__(
        self,
        services: Sequence[ServiceVoice],
        last: str,
        start_last: Callable[[str], ClauseSpeech],
        events: CallEvents,
        *,
        speaks_on: bool = True,
    ) -> None:
        self.rate_hz = services[0].rate_hz
        self._service_voices = tuple(services)
        self._names = (*(voice.name for voice in services), last)
        self._start_last = start_last
        self._events = events
        self._speaks_on = speaks_on
        # Place of the voice that spoke last, and the reply of which it was a part.
        self._place = 0
        self._context_id = ""
        self._is_given_up = False
        self._failures = 0
        self._probe_due: tuple[ServiceVoice, str] | None = None
        self._news = asyncio.Event()

    def tasks(self, setup: FrameProcessorSetup) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks of the voices, which run as long as the call."""
        return [*(voice.run(setup) for voice in self._service_voices), self._run_probes()]

    def begin(self, clause: str, context_id: str) -> ClauseSpeech:
        """Begin a clause of a reply with the first voice that works."""
        return FailoverClause(self, clause, context_id)

    def leg(
        self,
        text: str,
        context_id: str,
        *,
        offset_ms: int = 0,
        failed: tuple[int, FailoverReason] | None = None,
        tried: Set[int] = frozenset(),
    ) -> tuple[int, "ServiceLeg | ClauseSpeech"] | None:
        """Begin a text with the first voice that works; return its place and its synthesis, or None.

        Args:
            text: a clause, or the rest of one.
            context_id: the reply that it is a part of.
            offset_ms: audio of the clause before it.
            failed: place of a voice that has failed with this clause, and the reason.
            tried: places of all voices that have failed with this clause.
        """
        first = 0 if failed is None else failed[0] + 1
        if context_id == self._context_id:
            first = max(first, self._place)
        self._context_id = context_id
        chosen = self._choose(first, tried)
        if chosen is None:
            return None
        for voice in self._service_voices[:chosen]:
            self._request_probe(voice, text)
        self._note_change(chosen, failed[1] if failed is not None else self._known_reason())
        if chosen == len(self._service_voices):
            return chosen, self._start_last(text)
        voice = self._service_voices[chosen]
        progress = ClauseProgress(text, self.rate_hz, offset_ms=offset_ms)
        return chosen, ServiceLeg(voice.speak(text), voice, progress)

    def _choose(self, first: int, tried: Set[int]) -> int | None:
        """Return the place of the voice for a text: from ``first`` on, where one works; None for none."""
        for place, voice in enumerate(self._service_voices):
            if voice.breaker.is_closed and place >= first:
                return place
        if self._speaks_on or self._is_given_up:
            return len(self._service_voices)
        left = [place for place in range(len(self._service_voices)) if place not in tried]
        return min(left, key=lambda place: self._service_voices[place].breaker.due_ms, default=None)

    def now_ms(self) -> int:
        """Return the time on the clock of the call's events."""
        return self._events.now_ms()

    def has_failed(self, place: int, error: VoiceFailedError) -> None:
        """Note that a service voice has failed with a clause."""
        voice = self._service_voices[place]
        logger.warning(f"the voice {voice.name} failed ({error.reason.value}): {error}")
        voice.give_up()
        voice.breaker.on_failure(self._events.now_ms())

    def has_worked(self, place: int, began_ms: int) -> None:
        """Note that the voice at this place has said a text to its end, which it began at this time."""
        self._failures = 0
        if place < len(self._service_voices):
            self._service_voices[place].breaker.on_success(began_ms)

    def has_none(self, error: Exception) -> None:
        """Note that no voice says the rest of a clause."""
        self._failures += 1
        is_final = isinstance(error, EngineError) and not error.retryable
        # Where no embedded voice speaks on, every service was tried with this clause: silence would follow.
        if self._is_given_up or (self._speaks_on and not is_final and self._failures < MOST_FAILURES):
            return
        self._is_given_up = True
        self._events.publish(EnginesGivenUp(self._events.now_ms(), error, Stage.TTS))

    def _known_reason(self) -> FailoverReason:
        refused = any(voice.was_refused for voice in self._service_voices)
        return FailoverReason.ERROR if refused else FailoverReason.BROKEN

    def _note_change(self, place: int, reason: FailoverReason) -> None:
        if place == self._place:
            return
        names, before, self._place = self._names, self._place, place
        if place < before and self._service_voices[place].breaker.is_closed:
            reason = FailoverReason.RECOVERED
        self._events.publish(
            EngineFailedOver(self._events.now_ms(), SPEAKING, names[before], names[place], reason)
        )

    def _request_probe(self, voice: ServiceVoice, text: str) -> None:
        if self._probe_due is None and voice.breaker.take_probe(self._events.now_ms()):
            self._probe_due = voice, text
            self._news.set()

    async def _run_probes(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._probe_due is not None:
                    await self._probe(*self._probe_due)
                    self._probe_due = None
        finally:
            if self._probe_due is not None:
                self._probe_due[0].breaker.on_abandoned()

    async def _probe(self, voice: ServiceVoice, text: str) -> None:
        began_ms, clause = self._events.now_ms(), voice.speak(text)
        leg = ServiceLeg(clause, voice, ClauseProgress(text, voice.rate_hz))
        item = await leg.take()
        while not isinstance(item, Ended):
            item = await leg.take()
        if clause.was_stopped:
            # The voice has worked in another call, and speaks again in this one.
            voice.breaker.on_abandoned()
        elif item.error is None:
            logger.info(f"the voice {voice.name} works again")
            voice.breaker.on_success(began_ms)
        else:
            voice.give_up()
            voice.breaker.on_failure(self._events.now_ms())


class FailoverClause:
    """Clause that one voice begins and another one may end (``ClauseSpeech``).

    Args:
        voices: voices of the call.
        text: the clause.
        context_id: the reply that it is a part of.
    """

    def __init__(self, voices: FailoverVoices, text: str, context_id: str) -> None:
        self._voices = voices
        self._context_id = context_id
        self._text = text
        self._offset_ms = 0
        self._place = self._began_ms = 0
        self._tried: set[int] = set()
        self._leg: ServiceLeg | ClauseSpeech | None = None
        self._ended: Ended | None = None
        self._is_stopped = False
        if any(char.isalnum() for char in text):
            self._begin()
        else:
            # No voice makes a sound of it.
            self._ended = Ended(None)

    async def take(self, timeout_s: float) -> SpeechPiece | Ended:
        """Return the next piece, or the end (``ClauseSpeech``).

        Args:
            timeout_s: deadline of the embedded voice; those of services have their own.
        """
        while self._ended is None and self._leg is not None:
            leg = self._leg
            item = await (leg.take() if isinstance(leg, ServiceLeg) else leg.take(timeout_s))
            if isinstance(item, SpeechPiece):
                return item if isinstance(leg, ServiceLeg) else self._moved(item)
            last = self._end_leg(leg, item)
            if last is not None:
                return last
        return self._ended or Ended(None)

    def stop(self) -> None:
        """Stop the voice that speaks (``ClauseSpeech``)."""
        self._is_stopped = True
        if self._leg is not None:
            self._leg.stop()

    def _begin(
        self, failed: tuple[int, FailoverReason] | None = None, error: Exception | None = None
    ) -> None:
        begun = self._voices.leg(
            self._text, self._context_id, offset_ms=self._offset_ms, failed=failed, tried=self._tried
        )
        if begun is None:
            broken = error or EngineError("no voice works", engine=SPEAKING)
            self._voices.has_none(broken)
            self._ended = Ended(broken)
            return
        self._place, self._leg = begun
        self._began_ms = self._voices.now_ms()

    def _end_leg(self, leg: "ServiceLeg | ClauseSpeech", ended: Ended) -> SpeechPiece | None:
        """Handle the end of a voice's part; return the last words of a part that broke off."""
        error = ended.error
        if self._is_stopped:
            self._ended = ended
            return None
        if isinstance(leg, ServiceLeg) and isinstance(error, VoiceFailedError):
            broken = leg.progress.break_off()
            self._offset_ms += leg.progress.passed_ms
            self._text = broken.rest
            if any(char.isalnum() for char in broken.rest):
                self._voices.has_failed(self._place, error)
                self._tried.add(self._place)
                leg.stop()
                self._begin((self._place, error.reason), error)
            else:
                # Only the notice of its end is missing.
                self._ended = Ended(None)
            return SpeechPiece(b"", broken.words) if broken.words else None
        self._ended = ended
        if error is None:
            self._voices.has_worked(self._place, self._began_ms)
        else:
            self._voices.has_none(error)
        return None

    def _moved(self, piece: SpeechPiece) -> SpeechPiece:
        """Return a piece of the embedded voice, its words after the audio of the voices before it."""
        if not self._offset_ms or not piece.words:
            return piece
        return SpeechPiece(
            piece.pcm,
            tuple(
                WordTime(
                    word.text,
                    word.start_ms + self._offset_ms,
                    word.end_ms + self._offset_ms,
                    word.confidence,
                    word.estimated,
                )
                for word in piece.words
            ),
        )
