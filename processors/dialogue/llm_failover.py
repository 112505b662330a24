"""Hide a failing or stalling language model from the caller.

A pair of processors around any Pipecat LLM service, which stays unchanged: the head sees each question on its
way in and each error on its way out, the tail sees the answer before the voice does. When the model is late,
stalls, reports an error or gives no text, the tail ignores it, the head interrupts it, and the fallback
engine answers the same dialogue. The voice always gets one start and one end per answer, never half a word
and no sentence twice.

Both processors run in Pipecat's direct mode, inside the pushing task. The error of a service is therefore
seen before the end of its response, and no queue is added to the path of the audio. The tail owns two tasks,
the timer of the running answer and the fallback's answer; an interruption, the end of the answer or the end
of the pipeline ends them. While the fallback speaks, later ordered frames wait for it.

The model is stopped with an interruption of our own that goes through the service only: the head pushes it,
the tail swallows it, and until it has come through all frames of the service belong to the answer that
failed. ``RTVIObserverParams(ignored_sources=[guard.head])`` keeps it from clients too.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from loguru import logger
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    CancelFrame,
    EagerEndOfTurnCancelFrame,
    ErrorFrame,
    Frame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMConfigureOutputFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMarkerFrame,
    LLMMarkerResponseFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    MetricsFrame,
    SystemFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import TTFATMetricsData
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings

from parley.core.call_events import FallbackAnswers
from parley.core.clock import Clock
from parley.core.errors import EngineError, IllegalTransition
from parley.core.failover import CircuitBreaker
from parley.core.frame_facts import AUTHOR, PROMPT, FrameFact
from parley.core.passage_notes import CitedPassage
from parley.core.tuning import tuned
from parley.models.llm import LanguageModel
from parley.processors.dialogue.cited_passages import PassagesCitedFrame
from parley.processors.dialogue.engine_llm import messages_of, passages_of, timed_pieces
from parley.processors.dialogue.llm_timeouts import (
    TRANSITIONS,
    AnswerState,
    AnswerStep,
    FailureReason,
    GuardSettings,
    GuardTuning,
    LlmTimeouts,
    SaidSoFar,
    SentenceCutter,
)
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.session_store.prompt import BY_DEPLOYMENT

REPLY_FRAMES = (
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMFullResponseEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    LLMThoughtEndFrame,
    LLMMarkerFrame,
    LLMMarkerResponseFrame,
    PassagesCitedFrame,
)
# Frame of the service that a frame of the answer is a copy of.
ORIGINAL = FrameFact[LLMTextFrame]("original")


class ReplyCancelFrame(InterruptionFrame):
    """Interrupts the guarded service and nothing else."""


@dataclass(slots=True)
class _Reply:
    """State of an answer, from its question to its end."""

    frame: LLMContextFrame
    asked_ms: int
    watch: LlmTimeouts
    said: SaidSoFar
    # The question is a guess about a turn that may go on; nothing may be said before the turn ends.
    provisional: bool
    failed_early: FailureReason | None = None
    produced: bool = False
    # The service reported an error, and has not continued afterwards.
    has_error: bool = False
    last_text: LLMTextFrame | None = None
    # Passages of the service's request, for an answer that the fallback completes.
    cited: tuple[CitedPassage, ...] = ()


class LlmFailover:
    """Guard of one LLM service of one call.

    Put ``processors`` into the pipeline where the service would stand.

    Args:
        llm: the service, or any processor that answers ``LLMContextFrame`` as one does.
        fallback: answers when the service does not; shared by all calls.
        settings: deadlines.
        circuit: shared by the calls that use the same provider, or None for one of its own.
        clock: None for the clock of the loop; tests pass another.
        events: of the call; receives ``FallbackAnswers``. None outside of a call.
        engine, successor: names of the rows of the service and of the fallback.
    """

    def __init__(
        self,
        llm: FrameProcessor,
        fallback: LanguageModel,
        settings: GuardSettings | None = None,
        *,
        circuit: CircuitBreaker | None = None,
        clock: Clock | None = None,
        events: CallEvents | None = None,
        engine: str = "",
        successor: str = "",
    ) -> None:
        self.llm = llm
        self.settings = tuned(GuardTuning, settings)
        self.head = LlmFailoverHead(self)
        self.tail = LlmFailoverTail(self)
        self._fallback = fallback
        self._names = engine, successor
        self._circuit = circuit or CircuitBreaker(
            max_failures=self.settings.max_failures, cool_down_ms=self.settings.cool_down_ms
        )
        self._clock: Clock = clock or LoopClock()
        self._events = events or CallEvents()
        self._state = AnswerState.IDLE
        self._reply: _Reply | None = None
        # A start without its end has been passed to the voice.
        self._open = False
        # Number of our interruptions that have not passed the service yet.
        self._draining = 0
        self._turn_ended = False
        self._skip_tts: bool | None = None
        # One place: the newest question contains everything that an older one asked.
        self._waiting: tuple[FrameProcessor, LLMContextFrame, FrameDirection] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._timer_ms = 0
        self._answer: asyncio.Task[None] | None = None

    @property
    def processors(self) -> list[FrameProcessor]:
        """Head, service, tail."""
        return [self.head, self.llm, self.tail]

    @property
    def state(self) -> AnswerState:
        """The current state."""
        return self._state

    # Events of the head.

    async def ask(self, source: FrameProcessor, frame: LLMContextFrame, direction: FrameDirection) -> None:
        """Handle a question on its way to the service, from either side."""
        if self._state is not AnswerState.IDLE:
            self._waiting = (source, frame, direction)
            return
        now_ms = self._clock.now_ms()
        self._reply = _Reply(
            frame=frame,
            asked_ms=now_ms,
            watch=self._new_watch(frame, now_ms),
            said=SaidSoFar(),
            provisional=frame.speculation and not self._turn_ended,
        )
        if self._circuit.allows(now_ms):
            self._step(AnswerStep.ASKED)
            self._start_timer()
            await source.push_frame(frame, direction)
        elif self._reply.provisional:
            self._step(AnswerStep.ASKED)
            self._reply.failed_early = FailureReason.CIRCUIT_OPEN
        else:
            self._step(AnswerStep.DIVERTED)
            self._begin_fallback(FailureReason.CIRCUIT_OPEN)

    def on_error(self) -> None:
        """Handle an error that the service reported."""
        # The end of the response follows in the same task; an error without it belongs to something else.
        if self._state is AnswerState.PRIMARY and self._reply is not None and not self._draining:
            self._reply.has_error = True

    async def on_user_turn(self, *, ended: bool) -> None:
        """Handle the beginning or the end of the user's turn."""
        self._turn_ended = ended
        reply = self._reply
        if not ended or reply is None or not reply.provisional:
            return
        reply.provisional = False
        reply.asked_ms = self._clock.now_ms()
        reply.watch = self._new_watch(reply.frame, reply.asked_ms)
        if self._state is not AnswerState.PRIMARY:
            return
        if reply.failed_early is not None:
            await self._fail(reply.failed_early, finished=True)
        else:
            self._start_timer()

    def on_output_configured(self, frame: LLMConfigureOutputFrame) -> None:
        """Note whether the service's text is for the voice; the same holds for the fallback's."""
        self._skip_tts = frame.skip_tts

    async def withdraw(self) -> None:
        """Withdraw a question that was a guess: the turn goes on after all."""
        if self._reply is not None and self._reply.provisional:
            await self.stop()

    async def stop(self) -> None:
        """Stop any answer, on an interruption or at the end."""
        self._waiting = None
        was_fallback = self._state is AnswerState.FALLBACK
        self._step(AnswerStep.STOPPED)
        self._reply = None
        await self._cancel_tasks()
        if was_fallback:
            await self._close()

    async def release(self) -> None:
        """End the tasks with the pipeline, without a word."""
        await self._cancel_tasks()

    # Events of the tail.

    async def on_reply_frame(self, frame: Frame) -> None:
        """Handle a frame of the service's answer."""
        if self._draining or self._state is AnswerState.FALLBACK:
            return
        reply = self._reply
        if isinstance(frame, LLMFullResponseStartFrame):
            self._open = True
            await self.tail.push_frame(frame)
        elif isinstance(frame, LLMFullResponseEndFrame):
            await self._on_end(frame)
        elif isinstance(frame, LLMTextFrame) and reply is not None:
            await self._on_text(reply, frame)
        else:
            if reply is not None and isinstance(frame, (LLMMarkerFrame, LLMMarkerResponseFrame)):
                # The model judged the user's turn unfinished: saying nothing is its answer.
                reply.produced = True
            if reply is not None and isinstance(frame, PassagesCitedFrame):
                reply.cited = frame.passages
            await self.tail.push_frame(frame)

    def on_cancelled(self) -> None:
        """Note that our interruption came through: later frames of the service are new."""
        self._draining -= 1

    def on_tools(self) -> None:
        """Note that the service runs functions; the answer comes with a question of its own."""
        if self._state in (AnswerState.PRIMARY, AnswerState.TOOLS) and self._reply is not None:
            self._step(AnswerStep.CALLED_TOOLS)
            self._reply.watch.pause()
            self._reply.produced = True

    def on_metrics(self, frame: MetricsFrame) -> None:
        """Handle the service's measurements of itself."""
        if self._reply is not None and any(
            isinstance(data, TTFATMetricsData) and data.processor == self.llm.name for data in frame.data
        ):
            self._reply.watch.on_answer_begun(self._clock.now_ms())

    def on_bot_speech(self, *, started: bool) -> None:
        """Note that the caller begins or ceases to hear the bot."""
        if self._reply is None:
            return
        if started:
            self._reply.watch.on_bot_started()
        else:
            self._reply.watch.on_bot_stopped(self._clock.now_ms())
            self._hurry_timer()

    async def fallback_done(self) -> None:
        """Return when no fallback is speaking. It ends by itself within its own deadline."""
        if self._answer is not None and self._answer is not asyncio.current_task():
            await asyncio.wait({self._answer}, timeout=self.settings.fallback_total_ms / 1000)

    # Answering.

    async def _on_text(self, reply: _Reply, frame: LLMTextFrame) -> None:
        released = reply.said.add(frame.text)
        reply.produced = reply.produced or bool(frame.text.strip())
        reply.has_error = False
        reply.last_text = frame
        reply.watch.on_text(self._clock.now_ms(), speakable=reply.said.speakable)
        self._hurry_timer()
        if released:
            await self._push_text(released, like=frame)

    async def _on_end(self, frame: LLMFullResponseEndFrame) -> None:
        reply = self._reply
        if self._state is AnswerState.IDLE or reply is None:
            # The end of an answer that the user interrupted.
            await self._close(frame)
            return
        if self._state is AnswerState.PRIMARY and (reply.has_error or not reply.produced):
            reason = FailureReason.ERROR if reply.has_error else FailureReason.EMPTY
            await self._fail(reason, finished=True)
            return
        rest = reply.said.flush()
        if rest:
            await self._push_text(rest, like=reply.last_text)
        self._circuit.on_success(reply.asked_ms)
        await self._finish(frame)

    async def _finish(self, frame: LLMFullResponseEndFrame | None = None) -> None:
        """Complete the answer; the next question may go in."""
        self._step(AnswerStep.ENDED)
        self._reply = None
        self._cancel_timer()
        await self._close(frame)
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            await self.ask(*waiting)

    async def _fail(self, reason: FailureReason, *, finished: bool = False) -> None:
        """Give the service up and let the fallback answer. ``finished``: the service stopped by itself."""
        reply = self._reply
        if reply is None or self._state is not AnswerState.PRIMARY:
            return
        self._step(AnswerStep.FAILED)
        self._cancel_timer()
        if reason is not FailureReason.CIRCUIT_OPEN:
            self._circuit.on_failure(self._clock.now_ms())
        self._begin_fallback(reason)
        if not finished:
            self._draining += 1
            await self.head.push_frame(ReplyCancelFrame())

    def _begin_fallback(self, reason: FailureReason) -> None:
        reply = self._reply
        assert reply is not None
        waited_ms = self._clock.now_ms() - reply.asked_ms
        logger.warning(f"{self.llm}: {reason.value} after {waited_ms} ms, the fallback answers")
        self._events.publish(FallbackAnswers(self._events.now_ms(), reason.value, *self._names))
        self._answer = self.tail.create_task(self._run_fallback(reply), name=f"{self.tail}::fallback")

    async def _run_fallback(self, reply: _Reply) -> None:
        if not self._open:
            self._open = True
            start = LLMFullResponseStartFrame()
            if (instruction := self._instruction()) is not None:
                PROMPT.put(start, instruction)
            await self.tail.push_frame(start)
        if reply.cited and not reply.said.text.strip():
            # Nothing was said of what the service had found.
            reply.cited = ()
            await self.tail.push_frame(PassagesCitedFrame(()))
        bridge = reply.said.bridge(self.settings.bridge)
        if bridge:
            await self._push_text(bridge, by=BY_DEPLOYMENT)
        spoken = bool(bridge.strip())
        said: list[str] = []
        try:
            async with (
                asyncio.timeout(self.settings.fallback_total_ms / 1000),
                aclosing(self._fallback_text(reply)) as texts,
            ):
                async for text in texts:
                    await self._push_text(text, by=self._names[1])
                    said.append(text)
                    spoken = True
            # Outside of the deadline: all was said, and a slow search costs the names of the passages alone.
            await self._cite(reply, "".join(said))
        except (EngineError, TimeoutError) as error:
            await self._apologise(error)
        except Exception as error:
            # The last line of defence: a bug in the engine must not leave the caller with an answer that
            # never ends.
            logger.exception("the fallback failed")
            await self._apologise(error)
        else:
            if not spoken and not reply.said.text.strip():
                await self._push_text(self.settings.apology, by=BY_DEPLOYMENT)
        self._answer = None
        await self._finish()

    async def _cite(self, reply: _Reply, said: str) -> None:
        """Name the passages of the fallback's answer, and those of the model before it."""
        cited = await passages_of(self._fallback, said)
        if cited:
            await self.tail.push_frame(PassagesCitedFrame((*reply.cited, *cited)))

    async def _fallback_text(self, reply: _Reply) -> AsyncGenerator[str, None]:
        """Yield the fallback's answer, without the sentences that the caller has heard already."""
        pieces = timed_pieces(
            self._fallback.reply(messages_of(reply.frame.context, self._instruction())),
            engine="fallback",
            first_s=self.settings.fallback_first_ms / 1000,
            next_s=self.settings.fallback_gap_ms / 1000,
        )
        async with aclosing(pieces):
            if not reply.said.text.strip():
                async for piece in pieces:
                    yield piece
                return
            cutter = SentenceCutter()
            async for piece in pieces:
                for sentence in cutter.add(piece):
                    if not reply.said.said(sentence):
                        yield f"{sentence} "
            rest = cutter.flush()
            if rest and not reply.said.said(rest):
                yield rest

    def _instruction(self) -> str | None:
        """Return the service's system instruction, which holds for the fallback too."""
        settings = self.llm.settings if isinstance(self.llm, LLMService) else None
        instruction = settings.system_instruction if isinstance(settings, LLMSettings) else None
        return instruction if isinstance(instruction, str) else None

    async def _apologise(self, error: Exception) -> None:
        await self.tail.push_error(f"the fallback failed: {type(error).__name__}", exception=error)
        await self._push_text(f" {self.settings.apology}", by=BY_DEPLOYMENT)

    async def _push_text(self, text: str, *, like: LLMTextFrame | None = None, by: str = "") -> None:
        # Pipecat shows observers a frame once, by its id and for as long as the first object with it lives.
        # The copy keeps both, so that the model's words are not counted twice.
        if like is not None:
            frame = copy.copy(like)
            frame.text = text
            frame.metadata = dict(like.metadata)
            ORIGINAL.put(frame, like)
        else:
            frame = LLMTextFrame(text)
            frame.skip_tts = self._skip_tts
            if by:
                AUTHOR.put(frame, by)
        await self.tail.push_frame(frame)

    async def _close(self, frame: LLMFullResponseEndFrame | None = None) -> None:
        if self._open:
            self._open = False
            await self.tail.push_frame(frame or LLMFullResponseEndFrame())

    # Time.

    def _new_watch(self, frame: LLMContextFrame, at_ms: int) -> LlmTimeouts:
        tools = getattr(frame.context.tools, "standard_tools", None)
        return LlmTimeouts(
            self.settings, asked_ms=at_ms, tools=bool(tools), signs=bool(self.llm.metrics_enabled)
        )

    def _hurry_timer(self) -> None:
        """Wake the timer when the deadline is now earlier than its wake-up time."""
        reply = self._reply
        if self._state is not AnswerState.PRIMARY or reply is None or self._timer is None:
            return
        deadline_ms = reply.watch.deadline_ms()
        if deadline_ms is not None and deadline_ms < self._timer_ms:
            self._start_timer()

    def _start_timer(self) -> None:
        self._cancel_timer()
        if self._reply is not None and not self._reply.provisional:
            self._timer_ms = self._reply.watch.deadline_ms() or 0
            self._timer = self.tail.create_task(self._watch_deadline(self._reply), name=f"{self.tail}::timer")

    async def _watch_deadline(self, reply: _Reply) -> None:
        while self._reply is reply and self._state is AnswerState.PRIMARY:
            deadline_ms = reply.watch.deadline_ms()
            if deadline_ms is None:
                return
            if self._clock.now_ms() >= deadline_ms:
                # From here on this task carries the failure out and may not be cancelled.
                self._timer = None
                await self._fail(reply.watch.reason())
                return
            self._timer_ms = deadline_ms
            await self._clock.sleep_until_ms(deadline_ms)

    def _cancel_timer(self) -> None:
        # Not awaited: it may be cancelled from inside an answer's path, and it holds nothing.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _cancel_tasks(self) -> None:
        self._cancel_timer()
        answer, self._answer = self._answer, None
        if answer is not None:
            await self.tail.cancel_task(answer)

    def _step(self, step: AnswerStep) -> None:
        try:
            self._state = TRANSITIONS[(self._state, step)]
        except KeyError:
            raise IllegalTransition(self._state, step) from None


class LlmFailoverHead(FrameProcessor):
    """Processor before the service. See the module."""

    def __init__(self, guard: LlmFailover) -> None:
        super().__init__(enable_direct_mode=True)
        self._guard = guard

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Report questions, interruptions and the service's errors to the guard."""
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMContextFrame):
                await self._guard.ask(self, frame, direction)
                return
            if isinstance(frame, (InterruptionFrame, CancelFrame)):
                await self._guard.stop()
            elif isinstance(frame, EagerEndOfTurnCancelFrame):
                await self._guard.withdraw()
            elif isinstance(frame, LLMConfigureOutputFrame):
                self._guard.on_output_configured(frame)
            elif isinstance(frame, (UserStartedSpeakingFrame, UserStoppedSpeakingFrame)):
                await self._guard.on_user_turn(ended=isinstance(frame, UserStoppedSpeakingFrame))
        elif isinstance(frame, ErrorFrame) and frame.processor is self._guard.llm:
            self._guard.on_error()
            # A service that is beyond repair does not end the call while the fallback can answer.
            frame = copy.copy(frame)
            frame.processor = self
        await self.push_frame(frame, direction)


class LlmFailoverTail(FrameProcessor):
    """Processor after the service. See the module."""

    def __init__(self, guard: LlmFailover) -> None:
        super().__init__(enable_direct_mode=True)
        self._guard = guard

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Report the answer to the guard, which decides whether it passes."""
        await super().process_frame(frame, direction)
        guard = self._guard
        if direction is FrameDirection.UPSTREAM:
            if isinstance(frame, LLMContextFrame):
                # The result of a function asks again, from this side.
                await guard.ask(self, frame, direction)
                return
            if isinstance(frame, (BotStartedSpeakingFrame, BotStoppedSpeakingFrame)):
                guard.on_bot_speech(started=isinstance(frame, BotStartedSpeakingFrame))
            elif isinstance(frame, InterruptionFrame):
                await guard.stop()
        elif isinstance(frame, ReplyCancelFrame):
            guard.on_cancelled()
            return
        elif isinstance(frame, REPLY_FRAMES):
            await guard.on_reply_frame(frame)
            return
        elif isinstance(frame, FunctionCallsStartedFrame):
            guard.on_tools()
        elif isinstance(frame, MetricsFrame):
            guard.on_metrics(frame)
        elif not isinstance(frame, SystemFrame):
            await guard.fallback_done()
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        """End the guard's tasks with the pipeline."""
        await self._guard.release()
        await super().cleanup()
