"""Carry out the decisions about the caller's turn and the bot's reply.

There is one way to flush: a turn that starts has the user aggregator broadcast Pipecat's
``InterruptionFrame``, and each holder of pending output drops its own. Nothing else here drops anything.

Words over a reply are in the aggregator already when their meaning is known. Words that were not meant
("mhm") are taken back there, in the endpointer and in perception, so that they neither begin a turn nor stand
in the next one. A turn that began over a reply and has only such words ends without an answer.

The only wait here is for the record of a reply that was just cut (``replies.BOOKS_MS``).
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from pipecat.frames.frames import TranscriptionFrame
from pipecat.turns.user_start.base_user_turn_start_strategy import BaseUserTurnStartStrategy
from pipecat.utils.time import time_now_iso8601

from parley.core.call_events import BotTurnEnded, WordsDiscarded
from parley.processors.turns.endpoint import NOT_MEANT, EndpointStopStrategy
from parley.processors.turns.over_bot.decisions import DecisionQueue
from parley.processors.turns.over_bot.replies import BotReplies
from parley.processors.turns.over_bot.turn import TurnOverBot
from parley.processors.turns.over_bot.voice import VoiceOverBot
from parley.processors.turns.over_bot.words import WordsOutcome, WordsOverBot
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.table import BargeInState, Cut, Decision, Duck, Restore, ResumeReply

# An interruption is recorded after the output has dropped it; a reply that is not for the context has no
# record.
RECORDED_MS = 30


class CallerFloor:
    """Executor of the decisions of one call.

    Args:
        door: begins turns, takes words back and pushes frames. It may be a weak reference: its owner owns
            this object.
        machine: barge-in state machine of this call.
        events: events of the call.
        endpoint: ends the turns that begin here.
        interrupt: interrupts the bot inside of an open turn.
        decisions: queue of decisions.
        turn: turn of the caller.
        voice: voice of the caller.
        words: words of the caller.
        replies: replies of the bot.
    """

    def __init__(
        self,
        door: BaseUserTurnStartStrategy,
        machine: BargeIn,
        events: CallEvents,
        *,
        endpoint: EndpointStopStrategy,
        interrupt: Callable[[], Awaitable[None]],
        decisions: DecisionQueue,
        turn: TurnOverBot,
        voice: VoiceOverBot,
        words: WordsOverBot,
        replies: BotReplies,
    ) -> None:
        self._door = door
        self._machine = machine
        self._events = events
        self._endpoint = endpoint
        self._interrupt = interrupt
        self._decisions = decisions
        self._turn = turn
        self._voice = voice
        self._words = words
        self._replies = replies
        # The final words that are being judged.
        self._judged: TranscriptionFrame | None = None

    # Decisions.

    async def carry_out(self, decision: Decision | None) -> None:
        """Carry out a decision that the machine has just made; None where it has made none."""
        self._decisions.report_floor()
        match decision:
            case Duck():
                self._decisions.change_volume(decision)
            case Restore():
                self._decisions.change_volume(decision)
                if self._machine.state is BargeInState.REPLYING and not self._turn.is_open:
                    await self.take_back()
            case Cut():
                await self._cut(decision)
            case ResumeReply():
                await self._say_rest(decision)

    async def _cut(self, cut: Cut) -> None:
        self._decisions.publish(cut)
        self._replies.take_cut(cut)
        if not self._turn.is_open:
            if self._words.replaces_guess:
                # The words must not end the turn before the command is in it.
                await self._endpoint.forget()
            await self._door.trigger_user_turn_started()
        else:
            self._turn.take_up()
            await self._interrupt()
            await self._endpoint.take_up()

    async def _say_rest(self, resume: ResumeReply) -> None:
        """Resume after an interruption for nothing: say the rest, or have the turn answered again."""
        self._decisions.publish(resume)
        self._replies.announce_rest()
        await self._replies.wait_for_books(resume.reply_id)
        if self._turn.is_open and self._turn.began_over_reply:
            await self._abandon_turn()
        rest = self._replies.rest()
        for frame in rest:
            await self._door.push_frame(frame)
        if not rest:
            self._replies.drop_rest()

    async def take_up_cut(self) -> None:
        """Take up the turn of a cut that no words led to.

        Nothing else requests the end of a turn whose words were there before it, unless a command is about to
        replace them. The end may be due at once, and the record of the reply that it cut must precede it.
        """
        await self._replies.wait_for_books(self._replies.cut_id)
        await self._events.wait_for(BotTurnEnded, within_ms=RECORDED_MS)
        if self._words.command is None:
            await self._endpoint.take_up()

    # Turns.

    async def give(self) -> None:
        """Begin the caller's turn when they speak, or have spoken, and the bot does not."""
        await self.settle_words()
        if self._turn.is_open:
            return
        if self._machine.caller_has_floor:
            await self._door.trigger_user_turn_started()
        elif self._turn.has_held_words and self._machine.state is BargeInState.LISTENING:
            await self._door.trigger_user_turn_started()
            await self._endpoint.take_up()

    async def begin_with_words(self) -> None:
        """Begin the caller's turn when words come and there is neither a reply nor a turn."""
        is_silent = not self._voice.over_reply and self._machine.state is BargeInState.LISTENING
        if not self._turn.is_open and is_silent:
            await self._door.trigger_user_turn_started()

    async def _abandon_turn(self) -> None:
        self._turn.void()
        await self.take_back()
        await self._endpoint.abandon()

    # Words.

    @contextmanager
    def judging(self, frame: TranscriptionFrame) -> Iterator[None]:
        """Mark final words as not meant when words are taken back while these are judged."""
        self._judged = frame
        try:
            yield
        finally:
            self._judged = None

    async def take_final(self, frame: TranscriptionFrame) -> None:
        """Act on final words that the machine has judged."""
        self._words.note_final()
        if self._words.is_guess_at_command():
            NOT_MEANT.put(frame, True)
            await self.say_command()
        else:
            await self._do(self._words.judge_final())

    async def settle_words(self) -> None:
        """Act on words that waited for the spotter."""
        outcome = self._words.settle()
        if outcome is WordsOutcome.HOLD:
            await self.say_command()
        await self._do(outcome)
        if outcome is WordsOutcome.BEGIN and self._words.command is None:
            # Otherwise the turn is taken up with the command, which replaces the words.
            await self._endpoint.take_up()

    async def _do(self, outcome: WordsOutcome) -> None:
        match outcome:
            case WordsOutcome.TAKE_BACK:
                await self.take_back()
            case WordsOutcome.ABANDON:
                await self._abandon_turn()
            case WordsOutcome.HOLD:
                self._turn.hold_words()
            case WordsOutcome.BEGIN | WordsOutcome.BEGIN_IDLE:
                await self._door.trigger_user_turn_started()
                self._turn.note_words(meant=outcome is WordsOutcome.BEGIN)
            case WordsOutcome.BEGIN_LATE:
                # They are answered with the turn before.
                await self._door.trigger_user_turn_started()
            case WordsOutcome.STAY:
                pass

    async def say_command(self) -> None:
        """Put the command into the turn as its words: otherwise the turn would end without any."""
        command = self._words.take_command()
        if command is None:
            return
        if command.replaces_words and not self._voice.is_on:
            await self.take_back()
        await self._door.push_frame(
            TranscriptionFrame(text=command.text, user_id="", timestamp=time_now_iso8601(), finalized=True)
        )

    async def take_back_doubted(self) -> None:
        """Take back words that were not believed: no voice that followed them has taken the floor."""
        self._words.forget_doubted()
        await self.take_back()

    async def take_back(self) -> None:
        """Take back the words since the last turn: they were not meant.

        Words that may begin the caller's next turn stay for a moment (``take_back_doubted``).
        """
        if self._turn.has_held_words or self._machine.holds_words or self._words.keep_doubted():
            return
        self._words.forget_doubted()
        if self._judged is not None:
            # The stop strategy receives the frame next.
            NOT_MEANT.put(self._judged, True)
        await self._door.trigger_reset_aggregation()
        self._events.publish(WordsDiscarded(self._events.now_ms()))
        await self._endpoint.forget()
