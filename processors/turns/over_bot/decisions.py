"""Publish the decisions of the barge-in machine and its floor, set the volume, queue what needs the task.

The task of the start strategy owns the queue and reads it. It holds the decisions made while one event is
handled, and is emptied with the next step of the task; it has no other bound.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from loguru import logger

from parley.core.call_events import CallEvent, ReplyCut, ReplyDucked, ReplyRestored, ReplyResumed
from parley.processors.turns.floor import FloorHolder
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.table import Cut, Decision, Duck, Restore, ResumeReply


class DecisionQueue:
    """Decisions of one call.

    Args:
        machine: barge-in state machine of this call.
        events: events of the call.
        set_gain_db: sets the bot's volume; must not block.
        name: name of the strategy, for the log.

    Attributes:
        news: set when the task has to look again.
    """

    def __init__(
        self, machine: BargeIn, events: CallEvents, set_gain_db: Callable[[float], None], *, name: str
    ) -> None:
        self._machine = machine
        self._events = events
        self._floor = FloorHolder(events)
        self._set_gain_db = set_gain_db
        self._name = name
        self._waiting: deque[Decision] = deque()
        self.news = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Return whether every decision was carried out."""
        return not self._waiting

    def note(self, decision: Decision | None) -> None:
        """Accept a decision where nothing may wait: set the volume at once, leave the rest to the task."""
        self.report_floor()
        if isinstance(decision, (Duck, Restore)):
            self.change_volume(decision)
        elif decision is not None:
            self._waiting.append(decision)
        self.news.set()

    def report_floor(self) -> None:
        """Publish whether the bot holds the floor, where the machine has just changed that."""
        self._floor.hold(self._machine.bot_has_floor)

    def drain(self) -> Iterator[Decision]:
        """Yield the waiting decisions, including those that arrive meanwhile."""
        while self._waiting:
            yield self._waiting.popleft()

    def change_volume(self, decision: Duck | Restore) -> None:
        """Set the bot's volume according to a decision, and publish it."""
        self.publish(decision)
        self._set_gain_db(decision.gain_db if isinstance(decision, Duck) else 0.0)

    def raise_volume(self) -> None:
        """Restore the full volume, which the next reply has whatever was decided about the last."""
        self._set_gain_db(0.0)

    def publish(self, decision: Decision) -> None:
        """Publish a decision as an event of the call."""
        logger.debug(f"{self._name}: {decision}")
        self._events.publish(_event_of(decision))


def _event_of(decision: Decision) -> CallEvent:
    match decision:
        case Duck(at_ms=at_ms):
            return ReplyDucked(at_ms)
        case Restore(at_ms=at_ms):
            return ReplyRestored(at_ms)
        case Cut(at_ms=at_ms, reason=reason, voice_ms=voice_ms):
            return ReplyCut(at_ms, reason.value, voice_ms)
        case ResumeReply(at_ms=at_ms, from_word=from_word):
            return ReplyResumed(at_ms, from_word)
