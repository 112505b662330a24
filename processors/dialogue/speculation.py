"""Ask the model before the caller's turn is over, and hold the answer until it is.

    commit gate -> head -> thinking (model, or guard and model) -> tail -> voice

``guess`` asks the question that would be asked if the turn ended with these words; the tail holds the answer.
When the gate lets the real question through, the head compares the two, message by message. The same question
is not asked again, and its answer goes on at once; any other one withdraws the guess and is asked. Nothing of
a guess is heard, shown or recorded before the turn is durable, since the gate commits before it lets the
question through.

Tools never run for a guess. A context with tools is asked as Pipecat's speculation: the service holds the
answer itself until it sees the turn's end, and withdraws when the model calls a tool. That end is kept from
the service until the real question is there, because Pipecat takes it for the confirmation. Without tools the
text comes at once, and its first clause goes to ``prepare``, which may synthesise it ahead.

While the turn goes on, ``read_ahead`` gives the question with the words so far to a model that can read
before it is asked (``ReadAheadFrame``), and to the search in documents (``passages``), at most once in
``READ_AHEAD_S``, and when the voice pauses. What they do in that time causes no wait at the end.

A guess is made only while no other answer is in progress. It is withdrawn by a voice that continues, by an
interruption, by another guess, by a question that differs and by the end of the call. It is also withdrawn
after ``HOLD_S`` and when the answer is longer than ``MAX_HELD`` frames. The model is stopped with an
interruption of our own that goes through it only: the head pushes it, the tail swallows it. From the
withdrawal until it has come through, all frames belong to the withdrawn answer. It follows a real
interruption, and any question follows it. In a service's queue an interruption overtakes the questions that
are there, which would still be answered. A guard would then take the end of the old answer for that of a new
one. A service that lets neither through within ``STOP_S`` is not awaited.

Both processors run in direct mode, inside the pushing task. Frames from a callback are pushed by tasks that
the head owns, one after the other, under a lock.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

from loguru import logger
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    CancelFrame,
    EagerEndOfTurnCancelFrame,
    EndFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMTextFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.utils.utils import obj_id

from parley.core.call_events import (
    AnsweredAhead,
    GuessWithdrawn,
    QuestionDropped,
    TurnContinued,
    TurnGuessed,
    VoicePaused,
)
from parley.core.frame_facts import AUTHOR
from parley.models.tts.clauses import ClauseSettings, ClauseSplitter
from parley.processors.dialogue.engine_llm import ReadAheadFrame
from parley.processors.dialogue.llm_failover import REPLY_FRAMES
from parley.runtime.event_stream import CallEvents

# Longer than any pause that ends a turn, and than most outages of a store.
HOLD_S = 30.0
# One for each token of a long answer.
MAX_HELD = 4_000
# Frames that a service pushes about its tools, for clients too.
_TOOL_FRAMES = (
    FunctionCallsStartedFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallCancelFrame,
)
# Words come at two to four a second.
READ_AHEAD_S = 0.25
# A service closes its stream and lets an interruption through within milliseconds.
STOP_S = 1.0


class PreparesSpeech(Protocol):
    """Voice that can synthesise before it is asked to speak."""

    def prepare(self, clause: str) -> None:
        """Prepare this clause, in place of another."""
        ...

    def forget_prepared(self) -> None:
        """Discard the prepared clause: it will not be said."""
        ...


class GuessCancelFrame(InterruptionFrame):
    """Interrupts the answer to a guess and nothing else."""


class TurnConfirmedFrame(UserStoppedSpeakingFrame):
    """Notifies only the thinking processors that the turn is over and durable: a guess may count."""


@dataclass(slots=True, eq=False)
class _Guess:
    """A question that was not asked yet.

    Attributes:
        text: the words of the turn.
        context: the question.
        splitter: finds the first clause; None when that is known.
        held: frames of the answer.
        asked: True when the model has the question.
        ended: True when the model is done.
        expiry: withdraws the guess after ``HOLD_S``.
    """

    text: str
    context: LLMContext
    splitter: ClauseSplitter | None
    held: deque[Frame] = field(default_factory=deque)
    asked: bool = False
    ended: bool = False
    expiry: asyncio.TimerHandle | None = None


def _take_next(held: deque[Frame]) -> Frame:
    """Pop the next frame of ``held``. Consecutive tokens become one: each frame costs every stage."""
    text = []
    while held and (token := _token(held[0])) is not None:
        text.append(token)
        held.popleft()
    return LLMTextFrame("".join(text)) if text else held.popleft()


def _token(frame: Frame) -> str | None:
    """Return the text of a frame that is spoken and remembered as it is; None for any other frame."""
    if type(frame) is not LLMTextFrame or frame.skip_tts is not None or not frame.append_to_context:
        return None
    # Its author would be lost.
    if AUTHOR.is_on(frame):
        return None
    return frame.text


class Speculation:
    """Speculation of one call. Put ``around`` the processors that think.

    Args:
        events: events of the call.
        foresee: returns the question that the gate would let through if the turn had these words; None when
            none is to be expected.
        foresee_part: the same for words after which the turn goes on; None where nothing is read ahead.
        voice: prepares the first clause, or None.
        clauses: rules for the ends of clauses, as the voice has them.
    """

    def __init__(
        self,
        events: CallEvents,
        foresee: Callable[[str], LLMContext | None],
        *,
        foresee_part: Callable[[str], LLMContext | None] | None = None,
        voice: PreparesSpeech | None = None,
        clauses: ClauseSettings | None = None,
    ) -> None:
        self.head = SpeculationHead(self)
        self.tail = SpeculationTail(self)
        self._foresee = foresee
        self._foresee_part = foresee_part
        self._voice = voice
        self._clauses = clauses
        self._events = events
        self._guess: _Guess | None = None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        # Interruptions, ours and real ones, that have not come through the thinking processors yet; the task
        # that waits for that and stops a model that answers a withdrawn guess.
        self._passing = 0
        self._passed = asyncio.Event()
        self._confirmed = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._stop_is_due = False
        # Arriving frames belong to a guess that was withdrawn.
        self._is_void = False
        # Loop time, in seconds, at which words were last given to be read ahead.
        self._read_ahead_s = 0.0
        # The newest words that wait for their time to be read.
        self._part = ""
        self._reading: asyncio.TimerHandle | None = None
        # A question was passed on whose answer has not ended.
        self._answering = False
        # The service has not been notified that the turn is over.
        self._end_is_due = False
        self._over = False
        events.subscribe(TurnGuessed, self._on_turn_guessed)
        events.subscribe(TurnContinued, self._on_turn_continued)
        events.subscribe(VoicePaused, self._on_voice_paused)
        events.subscribe(GuessWithdrawn, self._on_guess_void)
        events.subscribe(QuestionDropped, self._on_guess_void)

    def _on_turn_guessed(self, event: TurnGuessed) -> None:
        self.guess(event.text)

    def _on_turn_continued(self, event: TurnContinued) -> None:
        self.read_ahead(event.text)

    def _on_voice_paused(self, _event: VoicePaused) -> None:
        # The turn may end before it is time for the words that wait.
        if self._reading is not None:
            self._reading.cancel()
            self._read_part()

    def _on_guess_void(self, _event: GuessWithdrawn | QuestionDropped) -> None:
        self.withdraw()

    def around(self, thinking: list[FrameProcessor]) -> list[FrameProcessor]:
        """Return head, thinking processors, tail."""
        return [self.head, *thinking, self.tail]

    def guess(self, text: str) -> None:
        """Guess that the turn is over with these words."""
        if self._answering or self._over:
            return
        context = self._foresee(text)
        if context is None:
            return
        self.withdraw()
        self._part = ""
        guess = self._guess = _Guess(text, context, ClauseSplitter(self._clauses))
        guess.expiry = asyncio.get_running_loop().call_later(HOLD_S, self._expire, guess)
        self._own(self._ask(guess))

    def read_ahead(self, text: str) -> None:
        """Have these words of a turn that goes on read ahead."""
        if self._foresee_part is None or self._answering or self._over:
            return
        self._part = text
        if self._reading is None:
            loop = asyncio.get_running_loop()
            due_s = max(loop.time(), self._read_ahead_s + READ_AHEAD_S)
            self._reading = loop.call_at(due_s, self._read_part)

    def _read_part(self) -> None:
        self._reading = None
        text, self._part = self._part, ""
        if self._foresee_part is None or self._answering or self._over or not text:
            return
        if self._guess is not None:
            if self._guess.text == text:
                return
            # The voice continued after it, with other words.
            self.withdraw()
        context = self._foresee_part(text)
        if context is not None:
            self._read_ahead_s = asyncio.get_running_loop().time()
            self._own(self._forward_ahead(ReadAheadFrame(context)))

    def withdraw(self) -> None:
        """Withdraw the guess: the turn goes on."""
        if self._drop():
            self._stop_soon()

    # Events of the head.

    async def on_question(self, frame: LLMContextFrame) -> None:
        """Handle the real question: the turn is over and durable."""
        async with self._lock:
            # From here on nothing is guessed: another question is on its way.
            self._answering = True
            self._part = ""
            guess = self._guess
            if guess is not None and guess.asked and guess.context.messages == frame.context.messages:
                await self._notify_end()
                # Until then the service may have withdrawn.
                if self._guess is guess:
                    await self._release(guess)
                    return
            self.withdraw()
            await self._settled()
            await self._notify_end()
            # An interruption that came meanwhile went before this question.
            self._answering = True
            await self.head.push_frame(frame)

    async def on_turn_stopped(self, frame: UserStoppedSpeakingFrame) -> None:
        """Handle the end of the turn, whose question is still on its way."""
        if self._guess is None:
            await self.head.push_frame(frame)
        else:
            self._end_is_due = True
            await self.tail.push_frame(frame)

    def on_turn_started(self) -> None:
        """Note the beginning of a turn: the service sees it, and needs no end of the turn before."""
        self._end_is_due = False

    def on_interrupted(self) -> None:
        """Note an interruption, which stops the thinking processors."""
        self._answering = self._end_is_due = False
        self._passing += 1
        # The question of a guess may be where the interruption overtakes it: ours follows.
        self._drop()
        self._stop_soon()

    def on_passed(self) -> None:
        """Note that an interruption, ours or a real one, has come through."""
        self._passing = max(0, self._passing - 1)
        self._passed.set()

    def on_confirmed(self) -> None:
        """Note that the service has seen the end of the turn."""
        self._confirmed.set()

    def on_cancelled(self) -> None:
        """Note that the call is over, at once."""
        self._over = True
        self._drop()

    async def on_end(self) -> None:
        """End in good order; nothing waits for a model that guesses."""
        self._over = True
        self.withdraw()
        await self._settled()

    # Events of the tail.

    async def on_reply_frame(self, frame: Frame) -> None:
        """Handle a frame of an answer."""
        if self._is_void:
            return
        guess = self._guess
        if guess is not None and guess.asked:
            self._hold(guess, frame)
            return
        if isinstance(frame, LLMFullResponseEndFrame):
            self._answering = False
        await self.tail.say(frame)

    def on_refused(self) -> bool:
        """Handle a withdrawal of the service, whose model calls a tool; return whether it was our guess."""
        if self._guess is None:
            return False
        # The guard of the service has not seen that nothing comes any more.
        self.withdraw()
        return True

    async def on_tool_result(self) -> None:
        """Handle the result of a tool: the answer comes with another question, from this side."""
        self._answering = True
        self.withdraw()
        await self._settled()
        self._answering = True

    async def release_tasks(self) -> None:
        """End the tasks with the pipeline."""
        self._over = True
        if self._reading is not None:
            self._reading.cancel()
        self._drop()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _hold(self, guess: _Guess, frame: Frame) -> None:
        guess.held.append(frame)
        ended = guess.ended = isinstance(frame, LLMFullResponseEndFrame)
        if len(guess.held) > MAX_HELD:
            logger.warning(f"{self.tail}: a speculative answer is too long to hold")
            self.withdraw()
            return
        if guess.splitter is None:
            return
        clauses = list(guess.splitter.push(frame.text)) if isinstance(frame, LLMTextFrame) else []
        if ended and not clauses:
            clauses = [guess.splitter.flush()]
        if clauses:
            guess.splitter = None
            clause = clauses[0].strip()
            if clause and self._voice is not None:
                self._voice.prepare(clause)

    async def _release(self, guess: _Guess) -> None:
        """Push the held frames in order; frames that come meanwhile follow them."""
        self._events.publish(AnsweredAhead(self._events.now_ms()))
        while guess.held:
            await self.tail.say(_take_next(guess.held))
        if guess.expiry is not None:
            guess.expiry.cancel()
        self._guess = None
        self._answering = not guess.ended

    def _drop(self) -> bool:
        """Forget the guess; return whether it is still being answered."""
        guess, self._guess = self._guess, None
        if guess is None:
            return False
        if guess.expiry is not None:
            guess.expiry.cancel()
        guess.held.clear()
        if self._voice is not None:
            self._voice.forget_prepared()
        under_way = guess.asked and not guess.ended
        self._is_void = self._is_void or under_way
        self._stop_is_due = self._stop_is_due or under_way
        return under_way

    def _expire(self, guess: _Guess) -> None:
        if self._guess is guess:
            self.withdraw()

    async def _ask(self, guess: _Guess) -> None:
        async with self._lock:
            await self._settled()
            if self._guess is not guess:
                return
            guess.asked = True
            has_tools = isinstance(guess.context.tools, ToolsSchema)
            await self.head.push_frame(LLMContextFrame(guess.context, speculation=has_tools))

    async def _forward_ahead(self, frame: ReadAheadFrame) -> None:
        async with self._lock:
            await self._settled()
            if self._guess is None and not self._answering and not self._over:
                await self.head.push_frame(frame)

    def _stop_soon(self) -> None:
        if self._stopping is None:
            self._stopping = self._own(self._stop())

    async def _stop(self) -> None:
        """Let interruptions through, then stop the answer to a withdrawn guess, if there is one."""
        try:
            async with asyncio.timeout(STOP_S):
                while self._passing or self._stop_is_due:
                    if not self._passing:
                        self._stop_is_due = False
                        self._passing += 1
                        await self.head.push_frame(GuessCancelFrame())
                    while self._passing:
                        self._passed.clear()
                        await self._passed.wait()
        except TimeoutError:
            logger.warning(f"{self.head}: an interruption did not pass through the pipeline in time")
            self._passing, self._stop_is_due = 0, False
        finally:
            self._stopping, self._is_void = None, False

    async def _settled(self) -> None:
        """Return when nothing is being stopped; within ``STOP_S``."""
        while self._stopping is not None and not self._stopping.done():
            await asyncio.wait({self._stopping})

    async def _notify_end(self) -> None:
        """Notify the service that the turn is over; its withdrawal is settled then."""
        if not self._end_is_due:
            return
        self._end_is_due = False
        self._confirmed.clear()
        await self.head.push_frame(TurnConfirmedFrame())
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._confirmed.wait()

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Not Pipecat's ``create_task``, which logs an error and returns None in its place.
        task = asyncio.create_task(work, name=f"{self.head}::guess")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.opt(exception=error).error(f"{self.head}: a speculation failed: {error}")


class SpeculationHead(FrameProcessor):
    """Processor before the thinking ones. See the module."""

    def __init__(self, speculation: Speculation) -> None:
        super().__init__(enable_direct_mode=True)
        self._speculation = speculation

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMContextFrame):
                await self._speculation.on_question(frame)
                return
            if isinstance(frame, UserStoppedSpeakingFrame):
                await self._speculation.on_turn_stopped(frame)
                return
            if isinstance(frame, UserStartedSpeakingFrame):
                self._speculation.on_turn_started()
            elif isinstance(frame, InterruptionFrame):
                self._speculation.on_interrupted()
            elif isinstance(frame, CancelFrame):
                self._speculation.on_cancelled()
            elif isinstance(frame, EndFrame):
                await self._speculation.on_end()
        elif isinstance(frame, EagerEndOfTurnCancelFrame):
            # The service's other half of the frame that the tail has seen.
            return
        elif isinstance(frame, InterruptionFrame):
            self._speculation.on_passed()
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        await self._speculation.release_tasks()
        await super().cleanup()


class SpeculationTail(FrameProcessor):
    """Processor after the thinking ones. See the module."""

    def __init__(self, speculation: Speculation) -> None:
        super().__init__(enable_direct_mode=True)
        self._speculation = speculation

    async def say(self, frame: Frame) -> None:
        """Push a frame of the model as if it were new.

        Observers show a frame to clients at its first push. That one was inside, where nothing counts yet.
        """
        frame = copy(frame)
        frame.id = obj_id()
        await self.push_frame(frame)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        speculation = self._speculation
        if direction is FrameDirection.UPSTREAM:
            if isinstance(frame, LLMContextFrame):
                await speculation.on_tool_result()
            elif isinstance(frame, InterruptionFrame):
                speculation.on_interrupted()
        elif isinstance(frame, InterruptionFrame):
            speculation.on_passed()
            if isinstance(frame, GuessCancelFrame):
                return
        elif isinstance(frame, REPLY_FRAMES):
            await speculation.on_reply_frame(frame)
            return
        elif isinstance(frame, EagerEndOfTurnCancelFrame):
            if speculation.on_refused():
                return
        elif isinstance(frame, TurnConfirmedFrame):
            speculation.on_confirmed()
            return
        elif isinstance(frame, ReadAheadFrame):
            return
        elif isinstance(frame, _TOOL_FRAMES):
            await self.say(frame)
            return
        await self.push_frame(frame, direction)
