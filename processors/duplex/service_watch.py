"""Detect that a realtime service with a fallback has stopped answering.

A service that fails in silence (its process hangs, what it sends is not understood) is noticed by a deadline.
An answer is owed for a voice that the service has reported as speech, for one of ``LEAST_VOICE_MS`` that it
has not, for words that it has transcribed, for typed words, and for a greeting. It is due ``answer_ms`` after
the end of the turn, where the service has reported that end, and otherwise after the time that the service
itself may wait for more words as well. A voice of the caller puts it off to its end. A reply without more
audio, of which nothing waits to be played, has stalled.

``ServiceDeadlines`` decides, on times that are passed in. ``ServiceWatch`` is its subscriber; its ``run`` is
a task that its caller owns, and returns the reason at the first deadline that passes.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from parley.core.call_events import (
    FinalWords,
    ServiceSent,
    ServiceSpoke,
    TextTyped,
    TurnEnded,
    TurnStarted,
    VoiceEnded,
    VoiceStarted,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.failover import FailoverReason
from parley.runtime.event_stream import CallEvents

# A shorter voice may be a cough, which a service does not answer.
LEAST_VOICE_MS = 400
# Providers send a reply several times as fast as it is spoken, so a gap of this length is no slow network.
STALLED_MS = 1_500
# A reply that is still playing hides a gap: time to the next look at it.
LOOK_MS = 100


class ServiceDeadlines:
    """Deadlines of one service. Pure.

    Args:
        answer_ms: longest time from the end of a turn to the first audio of its answer.
        turn_end_ms: longest silence after which the service ends a turn.
    """

    def __init__(self, answer_ms: int, turn_end_ms: int) -> None:
        self._answer_ms, self._turn_end_ms = answer_ms, turn_end_ms
        self._voice_began_ms: int | None = None
        # Voice since the last answer, and what the service has reported of it.
        self._voiced_ms = 0
        self._is_reported = self._is_turn_over = False
        self._due_ms: int | None = None
        self._output_ms: int | None = None

    @property
    def due_ms(self) -> int | None:
        """Moment at which an answer is overdue; None while none is owed."""
        return self._due_ms

    @property
    def stalls_ms(self) -> int | None:
        """Moment at which the reply has stalled; None outside of a reply."""
        return None if self._output_ms is None else self._output_ms + STALLED_MS

    def on_voice_started(self, at_ms: int) -> None:
        """Note that the caller speaks: nothing is due until they are silent."""
        self._voice_began_ms, self._due_ms = at_ms, None
        self._is_turn_over = False

    def on_voice_ended(self, at_ms: int) -> None:
        """Note that the caller has fallen silent."""
        if self._voice_began_ms is not None:
            self._voiced_ms += at_ms - self._voice_began_ms
        self._voice_began_ms = None
        self._expect(at_ms)

    def on_turn_started(self, at_ms: int) -> None:
        """Note that the service takes the voice for speech."""
        self._is_reported = True
        self._is_turn_over = False
        self._expect(at_ms)

    def on_turn_ended(self, at_ms: int) -> None:
        """Note that the service takes the caller's turn for complete."""
        self._is_turn_over = True
        self._expect(at_ms)

    def on_words(self, at_ms: int) -> None:
        """Note words of the caller, spoken or typed, or a request for a greeting."""
        self._is_reported = True
        if self._due_ms is None and self._voice_began_ms is None:
            self._due_ms = at_ms + self._answer_ms

    def on_output(self, at_ms: int, *, is_reply_open: bool) -> None:
        """Note a frame of the service."""
        self._output_ms = at_ms if is_reply_open else None

    def on_answer(self) -> None:
        """Note the first audio of a reply: nothing is owed any more."""
        self._due_ms, self._voiced_ms = None, 0
        self._is_reported = False

    def put_off(self, at_ms: int) -> None:
        """Put an answer off that is due while a reply to earlier words goes on."""
        self._due_ms = at_ms + self._answer_ms

    def _expect(self, at_ms: int) -> None:
        if self._voice_began_ms is not None:
            return
        if not self._is_reported and self._voiced_ms < LEAST_VOICE_MS:
            return
        wait_ms = self._answer_ms if self._is_turn_over else self._answer_ms + self._turn_end_ms
        self._due_ms = at_ms + wait_ms


class ServiceWatch:
    """Watch of one service for a call.

    Args:
        deadlines: its deadlines.
        events: events of the call, as long as the service has it.
        is_playing: returns whether audio waits to be played.
    """

    def __init__(
        self, deadlines: ServiceDeadlines, events: CallEvents, *, is_playing: Callable[[], bool]
    ) -> None:
        self._deadlines, self._events, self._is_playing = deadlines, events, is_playing
        self._is_reply_open = self._waits = False
        self._news = asyncio.Event()
        events.subscribe(VoiceStarted, lambda event: self._note(deadlines.on_voice_started, event.at_ms))
        events.subscribe(VoiceEnded, lambda event: self._note(deadlines.on_voice_ended, event.at_ms))
        events.subscribe(TurnStarted, lambda event: self._note(deadlines.on_turn_started, event.at_ms))
        events.subscribe(TurnEnded, lambda event: self._note(deadlines.on_turn_ended, event.at_ms))
        events.subscribe(FinalWords, lambda event: self._note(deadlines.on_words, event.at_ms))
        events.subscribe(TextTyped, lambda event: self._note(deadlines.on_words, event.at_ms))
        events.subscribe(ServiceSent, self._on_service_sent)
        events.subscribe(ServiceSpoke, lambda _event: self.close())

    @property
    def is_reply_open(self) -> bool:
        """True while the service has begun a reply and not ended it."""
        return self._is_reply_open

    def on_asked(self) -> None:
        """Note that the service was asked for a greeting."""
        self._note(self._deadlines.on_words, self._events.now_ms())

    def _on_service_sent(self, event: ServiceSent) -> None:
        self._is_reply_open = event.is_reply_open
        self._deadlines.on_output(event.at_ms, is_reply_open=event.is_reply_open)
        self._news.set()

    def close(self) -> None:
        """Publish that no answer of the service is awaited: it has begun, or will not come."""
        self._deadlines.on_answer()
        self._publish()

    async def run(self) -> FailoverReason:
        """Return the reason when a deadline has passed."""
        deadlines = self._deadlines
        while True:
            now_ms = self._events.now_ms()
            if deadlines.stalls_ms is not None and now_ms >= deadlines.stalls_ms:
                if not self._is_playing():
                    return FailoverReason.STALLED
                await self._wait(LOOK_MS)
                continue
            if deadlines.due_ms is not None and now_ms >= deadlines.due_ms:
                if not self._is_reply_open and not self._is_playing():
                    return FailoverReason.LATE
                deadlines.put_off(now_ms)
                continue
            moments = [each for each in (deadlines.due_ms, deadlines.stalls_ms) if each is not None]
            await self._wait(min(moments) - now_ms if moments else None)

    async def _wait(self, longest_ms: int | None) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if longest_ms is None else longest_ms / 1000):
                await self._news.wait()

    def _note(self, step: Callable[[int], None], at_ms: int) -> None:
        step(at_ms)
        self._publish()

    def _publish(self) -> None:
        """Publish whether an answer is owed, where that is news: a caller who waits is not prompted."""
        waits = self._deadlines.due_ms is not None
        if waits is not self._waits:
            self._waits = waits
            kind = WaitBegan if waits else WaitEnded
            self._events.publish(kind(self._events.now_ms(), Wait.ANSWER))
        self._news.set()
