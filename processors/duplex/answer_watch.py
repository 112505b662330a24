"""Detect a missing answer of a realtime service."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from parley.core.call_events import (
    FinalWords,
    ServiceSpoke,
    TextTyped,
    TurnEnded,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.clock import Clock
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

# Number of consecutive missing answers after which no other is awaited.
MOST_UNANSWERED = 2
# A service may transcribe words so long before it reports that their turn is over.
WORDS_AHEAD_MS = 3_000


class AnswerWatch:
    """Monitor of the service's answers to transcribed turns. ``run`` is a task that its caller owns.

    Args:
        answer_ms: longest time for an answer.
        events: events of the call. That an answer is owed is published, and that it is no longer.
        is_speaking: returns whether the service speaks: the answer to words over a reply is awaited after it.
        clock: None for the clock of the loop; tests pass another.
    """

    def __init__(
        self,
        answer_ms: int,
        events: CallEvents,
        *,
        is_speaking: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
    ) -> None:
        self._answer_ms = answer_ms
        self._events = events
        self._is_speaking = is_speaking
        # Arrival of words that preceded the report of the end of their turn.
        self._words_ms: int | None = None
        self._clock: Clock = clock or LoopClock()
        self._due_ms: int | None = None
        self._answered = False
        self._missing = 0
        self._news = asyncio.Event()
        events.subscribe(FinalWords, lambda _event: self.on_words())
        events.subscribe(TurnEnded, lambda _event: self.on_turn_ended())
        events.subscribe(TextTyped, self._on_text_typed)
        events.subscribe(ServiceSpoke, lambda _event: self._on_answer())

    def _on_text_typed(self, _event: TextTyped) -> None:
        self.on_turn_ended()
        self.on_words()

    def on_turn_ended(self) -> None:
        """Note that the caller fell silent: a reply so far is no answer to this turn."""
        self._answered = False
        # Older words belong to the turn before, and were answered.
        if self._words_ms is not None and self._clock.now_ms() - self._words_ms <= WORDS_AHEAD_MS:
            self._expect()

    def on_words(self) -> None:
        """Note that the service has words of the caller, or a request for a greeting."""
        self._words_ms = self._clock.now_ms()
        if not self._answered:
            self._expect()

    def _expect(self) -> None:
        self._words_ms = None
        self._due_ms = self._clock.now_ms() + self._answer_ms
        self._events.publish(WaitBegan(self._events.now_ms(), Wait.ANSWER))
        self._news.set()

    def _on_answer(self) -> None:
        self._answered, self._missing, self._words_ms = True, 0, None
        if self._due_ms is not None:
            self._due_ms = None
            self._events.publish(WaitEnded(self._events.now_ms(), Wait.ANSWER))
            self._news.set()

    async def run(self, apologise: Callable[[bool], Awaitable[None]]) -> None:
        """Call ``apologise`` for every missing answer; with ``True`` when no other is to be awaited."""
        while True:
            left_ms = None if self._due_ms is None else self._due_ms - self._clock.now_ms()
            if left_ms is not None and left_ms <= 0 and self._is_speaking():
                # A continuing reply is no answer to words over it, and no silence either.
                self._due_ms = self._clock.now_ms() + self._answer_ms
                continue
            if left_ms is not None and left_ms <= 0:
                self._due_ms = None
                self._missing += 1
                self._events.publish(WaitEnded(self._events.now_ms(), Wait.ANSWER))
                await apologise(self._missing >= MOST_UNANSWERED)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left_ms is None else left_ms / 1000):
                    await self._news.wait()
            self._news.clear()
