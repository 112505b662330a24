"""Follow the bot's replies for barge-in: announced and heard replies, and the part that a cut took.

Inputs, as events: the progress of every reply, that an answer is owed, and changes of the tier. Outputs: the
facts that the machine needs, and the frames that resume a reply that was cut for nothing.

The resumed text is the part that is known and was not heard, from the exact word. Where the model had not
written its answer to the end, or not begun, it is requested again: its context contains the part that was
heard. When a human is fetched or takes the session, what was cut before is never resumed.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from pipecat.frames.frames import Frame, LLMRunFrame, TTSSpeakFrame

from parley.core.call_events import (
    ClauseAnnounced,
    ReplyAnnounced,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyStarted,
    ReplyWritten,
    TierChanged,
    ToolsCalled,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.clock import Clock
from parley.core.tiers import HELD
from parley.core.timeline import HeardReply
from parley.language.words import asks
from parley.processors.turns.over_bot.decisions import DecisionQueue
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.table import BargeInState, Cut

# An interruption has passed the output, where the heard part is known, within a few milliseconds.
BOOKS_MS = 500


def rest_of(lost: Sequence[HeardReply], *, is_answer_lost: bool) -> list[Frame]:
    """Return the frames that say what an interruption took; empty when nothing of a reply is left.

    Args:
        lost: final state of the replies that it met.
        is_answer_lost: an answer was being written, or awaited.
    """
    if is_answer_lost:
        return [LLMRunFrame()]
    unheard = [reply for reply in lost if reply.truncated and reply.unheard]
    # A filler is not repeated where an answer is.
    said = [reply for reply in unheard if reply.in_context] or unheard
    return [TTSSpeakFrame(reply.unheard, append_to_context=reply.in_context) for reply in said]


class BotReplies:
    """Replies of one call.

    Args:
        machine: barge-in state machine of this call.
        events: events of the call.
        decisions: destination of decisions.
        clock: clock of the event loop.

    Attributes:
        cut_id: the reply of the last cut.
    """

    def __init__(self, machine: BargeIn, events: CallEvents, decisions: DecisionQueue, clock: Clock) -> None:
        self._machine = machine
        self._decisions = decisions
        self._clock = clock
        # Replies that are not over, with their protection; replies that the model still writes.
        self._open: dict[str, bool] = {}
        self._unwritten: set[str] = set()
        # The caller waits for an answer; tools run whose results an answer follows. Both may hold.
        self._is_awaited = self._follows_tools = False
        self._names = 0
        self._answer_id = self._rest_id = ""
        # For the last cut: the final state of all replies that it met, and whether an answer was lost.
        self.cut_id: str | None = None
        self._lost: list[HeardReply] = []
        self._lost_answer = False
        # A human was fetched or came since the last cut.
        self._is_dropped = False
        self._heard_clock = asyncio.Event()
        events.subscribe(WaitBegan, self._on_wait_began)
        events.subscribe(WaitEnded, self._on_wait_ended)
        events.subscribe(ToolsCalled, self._on_tools_called)
        events.subscribe(ReplyOpened, self._on_reply_opened)
        events.subscribe(ReplyWritten, self._on_reply_written)
        events.subscribe(ReplyAnnounced, self._on_reply_announced)
        events.subscribe(ClauseAnnounced, self._on_clause_announced)
        events.subscribe(ReplyStarted, self._on_reply_started)
        events.subscribe(ReplyProgressed, self._on_reply_progressed)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(TierChanged, self._on_tier_changed)

    # Effects of a cut.

    def take_cut(self, cut: Cut) -> None:
        """Begin the record of a cut."""
        self.cut_id = cut.reply_id
        if cut.reply_id is None or cut.reply_id != self._rest_id:
            # Otherwise the rest of the reply before was cut when nothing of it was on its way yet.
            self._lost, self._lost_answer = [], self._is_owed or bool(self._unwritten)
            self._is_dropped = False
        self._follows_tools = False
        self._heard_clock.clear()

    async def wait_for_books(self, reply_id: str | None) -> None:
        """Return when the heard part of a reply is known, or will not become known."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BOOKS_MS / 1000):
                while reply_id in self._open:
                    self._heard_clock.clear()
                    await self._heard_clock.wait()

    def announce_rest(self) -> None:
        """Announce the rest of the reply that was cut."""
        self._rest_id = self._new_id("rest")
        self._machine.on_reply(self._clock.now_ms(), self._rest_id)
        self._decisions.report_floor()

    def rest(self) -> Sequence[Frame]:
        """Return the frames that say the rest; empty when nothing of a reply is left."""
        return rest_of(self._lost, is_answer_lost=self._lost_answer)

    def drop_rest(self) -> None:
        """Note that the rest does not come."""
        self._decisions.note(self._machine.on_bot_stopped(self._clock.now_ms(), self._rest_id))

    def _is_rest_left(self) -> bool:
        return self._lost_answer or any(reply.truncated and reply.unheard for reply in self._lost)

    # Events of the bot.

    def _on_wait_began(self, event: WaitBegan) -> None:
        if event.reason is Wait.ANSWER:
            self._is_awaited, self._follows_tools = True, False
            self._answer_id = self._new_id("answer")
            self._decisions.note(self._machine.on_reply(self._clock.now_ms(), self._answer_id))

    def _on_wait_ended(self, event: WaitEnded) -> None:
        if event.reason is Wait.ANSWER:
            self._is_awaited = self._follows_tools = False
            self._decisions.note(self._machine.on_bot_stopped(self._clock.now_ms(), self._answer_id))
            self._announce_next()

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        """Announce the answer that follows tools that run now, whatever was said before them."""
        self._follows_tools = True
        if not self._is_awaited:
            self._answer_id = self._new_id("answer")
            self._announce_next()

    @property
    def _is_owed(self) -> bool:
        return self._is_awaited or self._follows_tools

    def _on_reply_opened(self, event: ReplyOpened) -> None:
        self._follows_tools = False
        self._unwritten.add(event.reply_id)
        self._announce(event.reply_id, protected=False)

    def _on_reply_written(self, event: ReplyWritten) -> None:
        self._unwritten.discard(event.reply_id)

    def _on_reply_announced(self, event: ReplyAnnounced) -> None:
        self._announce(event.reply_id, protected=event.protected)

    def _announce(self, reply_id: str, *, protected: bool) -> None:
        protected = protected or self._open.get(reply_id, False)
        self._open[reply_id] = protected
        self._decisions.note(self._machine.on_reply(self._clock.now_ms(), reply_id, protected=protected))

    def _on_clause_announced(self, event: ClauseAnnounced) -> None:
        self._machine.on_saying(event.reply_id, event.text)

    def _on_reply_started(self, event: ReplyStarted) -> None:
        now_ms, reply_id = self._clock.now_ms(), event.reply_id
        protected = self._open.setdefault(reply_id, False)
        if not self._machine.is_ducked:
            # A duck that was left over from an interruption ends with the reply.
            self._decisions.raise_volume()
        self._decisions.note(self._machine.on_bot_started(now_ms, reply_id, protected=protected))
        if self._is_owed:
            self._decisions.note(self._machine.on_reply(now_ms, self._answer_id))

    def _on_reply_progressed(self, event: ReplyProgressed) -> None:
        heard = event.heard
        self._machine.on_heard(heard.reply_id, heard.mark.last_word)
        if asks(heard.text):
            self._machine.on_question(self._clock.now_ms())

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        reply = event.heard
        now_ms, reply_id = self._clock.now_ms(), reply.reply_id
        self._open.pop(reply_id, None)
        self._unwritten.discard(reply_id)
        if not reply.truncated and asks(reply.text):
            self._machine.on_question(now_ms)
        # The rest of it may be awaited already.
        if self._machine.state is BargeInState.CUT or reply_id == self.cut_id:
            self._book(reply)
        self._decisions.note(self._machine.on_bot_stopped(now_ms, reply_id))
        self._announce_next()

    def _on_tier_changed(self, event: TierChanged) -> None:
        if event.tier in HELD:
            self._lost, self._lost_answer, self._is_dropped = [], False, True

    def _book(self, reply: HeardReply) -> None:
        """Record the final state of a reply that a cut met."""
        if not self._is_dropped:
            self._lost.append(reply)
        if self.cut_id is not None:
            last_word = reply.mark.last_word if reply.reply_id == self.cut_id else -1
            self._machine.on_heard(self.cut_id, last_word, is_rest_heard=not self._is_rest_left())
        self._heard_clock.set()

    def _announce_next(self) -> None:
        """Announce another reply that the machine does not track, now that one is over."""
        if self._machine.state is not BargeInState.LISTENING:
            return
        now_ms = self._clock.now_ms()
        if self._open:
            reply_id, protected = next(reversed(self._open.items()))
            self._decisions.note(self._machine.on_reply(now_ms, reply_id, protected=protected))
        elif self._is_owed:
            self._decisions.note(self._machine.on_reply(now_ms, self._answer_id))

    def _new_id(self, kind: str) -> str:
        """Return a name for a reply that has none yet."""
        self._names += 1
        return f"{kind}.{self._names}"
