"""Specialists of the voice in one call: stretches of the caller's voice go out, annotations come back.

Inputs: the caller's audio, by a direct call before voice activity judges it, and the events of the voice.
Output: ``AnnotationReported`` for each finding, and signs of life, with which the sequencer knows up to where
a specialist has nothing more to report; ``SpecialistLeft`` when one is lost.

A stretch ends with a pause inside the voice, when all of its words are spoken but the turn is not over, and
after ``LONGEST_MS`` of voice. The pause is shorter than any wait for the end of a turn, so that the findings
are there when the turn is taken. The event of a finding is the end of its stretch.

Each specialist is a child process for all calls (``models.specialists.hosting``); nothing is computed here. A
specialist has at most ``MOST_PENDING`` stretches of a call: while it is slow, further ones are left out. A
question has the deadline of the process. One that fails or hangs is lost for this call until its process is
back, and costs its own findings. ``run`` is a task of the call; the tasks that reopen streams end with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from loguru import logger

from parley.core.call_events import (
    AnnotationReported,
    SpecialistLeft,
    VoiceEnded,
    VoicePaused,
    VoiceResumed,
    VoicesLearnt,
    VoiceStarted,
)
from parley.core.clock import Clock
from parley.core.errors import EngineError, StoreError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from parley.core.timeline import Annotation, KnownVoice, Source
from parley.models.specialists import Finding
from parley.models.specialists.hosting import ask_judgement, read_findings
from parley.processors.turns.reopened_stream import ReopenedStream
from parley.runtime.engine_hosting.messages import EngineMessage
from parley.runtime.event_stream import CallEvents

# Audio before the voice was detected that belongs to it: a soft onset.
BEFORE_MS = 100
# Audio that is kept while there is no voice: ``BEFORE_MS``, and the voice before voice activity was certain.
KEPT_MS = 700
# A mood or a speaker changes between stretches, not inside of one.
LONGEST_MS = 2_000
# A shorter stretch has no two syllables.
LEAST_MS = 250
# Interval of the signs of life while a stretch grows: shorter than the sequencer's ``stall_us``.
SIGN_MS = 400
MOST_PENDING = 4
# Of the voices of earlier calls, before the first stretch of a call.
RECALL_S = 2.0


class SpecialistStream(Protocol):
    """Stream of one caller in the process that answers."""

    def ask(self, question: EngineMessage) -> "asyncio.Future[EngineMessage]": ...

    def close(self) -> None: ...


class SpecialistProcess(Protocol):
    """Process of one specialist, shared by all calls."""

    @property
    def rate_hz(self) -> int: ...

    async def open_stream(
        self, on_partial: Callable[[Any], None], on_failure: Callable[[EngineError], None]
    ) -> SpecialistStream: ...


class VoiceSpecialists:
    """Specialists of one call.

    Args:
        processes: process of each specialist, by the stream of its findings; started by their owner.
        clock: session clock.
        events: events of the call.
        rate_hz: rate of the audio that is heard.
        recall: returns the voices of earlier calls of the session. None: no voices are kept.
    """

    def __init__(
        self,
        processes: Sequence[tuple[Source, SpecialistProcess]],
        *,
        clock: Clock,
        events: CallEvents,
        rate_hz: int,
        recall: Callable[[], Awaitable[Sequence[KnownVoice]]] | None = None,
    ) -> None:
        self._clock, self._rate_hz = clock, rate_hz
        self._recall = recall
        self._channels = [
            _Channel(source, process, clock=clock, events=events) for source, process in processes
        ]
        self._heard = bytearray()
        self._in_voice = False
        # Time of the last audio.
        self._heard_at_us = 0
        self._signed_us = 0
        if processes:
            events.subscribe(VoiceStarted, self._on_voice_started)
            events.subscribe(VoicePaused, self._on_voice_paused)
            events.subscribe(VoiceResumed, self._on_voice_resumed)
            events.subscribe(VoiceEnded, self._on_voice_ended)

    async def run(self) -> None:
        """Open the streams, without which there are no findings, and release them when cancelled."""
        try:
            await asyncio.gather(*(self._open(channel) for channel in self._channels))
            await asyncio.Event().wait()
        finally:
            self.close()

    def hear(self, pcm: bytes) -> None:
        """Add a piece of the caller's audio, 16-bit mono."""
        if not self._channels:
            return
        now_us = self._heard_at_us = self._clock.now_us()
        self._heard += pcm
        if not self._in_voice:
            self._keep(KEPT_MS)
            return
        if len(self._heard) >= self._bytes(LONGEST_MS):
            self._cut()
        if now_us - self._signed_us >= SIGN_MS * 1000:
            self._signed_us = now_us
            self._sign(now_us - self._heard_us())

    def close(self) -> None:
        """Release the streams."""
        for channel in self._channels:
            channel.close()

    async def _open(self, channel: "_Channel") -> None:
        """Open a channel; that of the speakers gets the voices of earlier calls first."""
        if self._recall is not None and channel.source is Source.DIAR:
            await self._know(channel, self._recall)
        await channel.open()

    async def _know(self, channel: "_Channel", recall: Callable[[], Awaitable[Sequence[KnownVoice]]]) -> None:
        """Give the voices of earlier calls to a channel; without them everyone is new."""
        try:
            async with asyncio.timeout(RECALL_S):
                known = tuple(await recall())
        except (StoreError, TimeoutError) as error:
            why = error or "reading them took too long"
            logger.warning(f"the voices of earlier calls are not known: {why}")
            return
        channel.know(known)

    def _on_voice_started(self, event: VoiceStarted) -> None:
        if not self._in_voice:
            self._keep(BEFORE_MS + event.voiced_ms)
            self._in_voice = True

    def _on_voice_resumed(self, _event: VoiceResumed) -> None:
        if not self._in_voice:
            self._keep(BEFORE_MS)
            self._in_voice = True

    def _on_voice_paused(self, _event: VoicePaused) -> None:
        if self._in_voice:
            self._in_voice = False
            self._cut()

    def _on_voice_ended(self, _event: VoiceEnded) -> None:
        if self._in_voice:
            # It ends without a pause where its audio stopped.
            self._in_voice = False
            self._cut()
        # The last word has ended: no turn waits for more.
        self._sign(self._clock.now_us())

    def _cut(self) -> None:
        """Send the stretch that ends here."""
        pcm, ended_us = bytes(self._heard), self._heard_at_us
        began_us = ended_us - self._heard_us()
        self._heard.clear()
        if len(pcm) >= self._bytes(LEAST_MS):
            for channel in self._channels:
                channel.judge(pcm, max(0, began_us), ended_us)

    def _sign(self, passed_us: int) -> None:
        for channel in self._channels:
            channel.sign(passed_us)

    def _keep(self, ms: int) -> None:
        del self._heard[: max(0, len(self._heard) - self._bytes(ms))]

    def _heard_us(self) -> int:
        return samples_to_ms(len(self._heard) // PCM_BYTES_PER_SAMPLE, self._rate_hz) * 1000

    def _bytes(self, ms: int) -> int:
        return ms_to_samples(ms, self._rate_hz) * PCM_BYTES_PER_SAMPLE


class _Channel:
    """Questions of one call to one specialist, and its answers."""

    def __init__(
        self, source: Source, process: SpecialistProcess, *, clock: Clock, events: CallEvents
    ) -> None:
        self.source, self._clock, self._events = source, clock, events
        self._kept_open = ReopenedStream[SpecialistStream](
            process, lost=f"{source.value} is not judged", on_lost=self._on_lost
        )
        # Beginnings and ends of the stretches that are not answered yet, in order.
        self._pending: list[tuple[int, int]] = []
        self._judged_us = 0
        # Voices by speaker, and the stream that has those of earlier calls.
        self._voices: dict[str, KnownVoice] = {}
        self._informed: SpecialistStream | None = None
        self._has_reported = False
        self._is_slow = self._is_closed = False

    async def open(self) -> None:
        """Open the stream."""
        await self._kept_open.open()

    def know(self, voices: Sequence[KnownVoice]) -> None:
        """Take the voices of earlier calls; a process that is back gets them again."""
        self._voices = {voice.speaker_id: voice for voice in voices}

    def judge(self, pcm: bytes, began_us: int, ended_us: int) -> None:
        """Send a stretch, unless too many wait."""
        stream = self._kept_open.stream
        if stream is None:
            return
        if len(self._pending) >= MOST_PENDING:
            if not self._is_slow:
                logger.warning(f"{self.source.value} is too slow; stretches of a call are left out")
            self._is_slow = True
            return
        self._is_slow = False
        self._pending.append((began_us, ended_us))
        known = () if self._informed is stream else tuple(self._voices.values())
        self._informed = stream
        answer = stream.ask(ask_judgement(pcm, began_us, ended_us, known))
        answer.add_done_callback(lambda done: self._answered(done, began_us, ended_us))

    def sign(self, judged_us: int) -> None:
        """Report that everything before this moment is judged, apart from the stretches that wait."""
        if self._kept_open.stream is None:
            return
        self._judged_us = max(self._judged_us, judged_us)
        self._report_passed()

    def close(self) -> None:
        """Release the stream."""
        self._is_closed = True
        self._kept_open.close()

    def _answered(self, answer: "asyncio.Future[EngineMessage]", began_us: int, ended_us: int) -> None:
        if (began_us, ended_us) in self._pending:
            self._pending.remove((began_us, ended_us))
        # A failure was reported to ``_kept_open``.
        if answer.cancelled() or answer.exception() is not None or self._is_closed:
            return
        try:
            found = read_findings(answer.result())
        except EngineError as error:
            # A specialist with an invalid answer is not used again.
            logger.warning(f"{self.source.value} is not judged in this call any more: {error}")
            self.close()
            self._on_lost()
            return
        for finding in found:
            self._report(finding, ended_us)
            if finding.voice is not None:
                self._voices[finding.voice.speaker_id] = finding.voice
                learnt = tuple(self._voices.values())
                self._events.publish(VoicesLearnt(self._events.now_ms(), learnt))
        self._report_passed()

    def _report(self, finding: Finding, ended_us: int) -> None:
        annotation = Annotation(
            ended_us,
            self._clock.now_us(),
            self.source,
            finding.payload,
            speaker_id=finding.speaker.speaker_id if finding.speaker is not None else None,
            confidence=finding.confidence,
        )
        self._events.publish(AnnotationReported(self._events.now_ms(), self.source, annotation))

    def _report_passed(self) -> None:
        # The event of a finding is the end of its stretch. A stretch that still grows ends later than now, so
        # the other streams need not wait for its end.
        passed_us = min([self._clock.now_us(), *(ended_us for _, ended_us in self._pending)])
        judged_us = min([self._judged_us, *(began_us for began_us, _ in self._pending)])
        self._has_reported = True
        self._events.publish(
            AnnotationReported(self._events.now_ms(), self.source, passed_us=passed_us, judged_us=judged_us)
        )

    def _on_lost(self) -> None:
        self._pending.clear()
        # A deadline and the end of the process that it leads to are one loss.
        if not self._has_reported:
            return
        self._has_reported = False
        self._events.publish(SpecialistLeft(self._events.now_ms(), self.source))
