"""The caller's turns in a duplex call, as the ticking component decides them.

    ... STT -> perception -> DuplexTurns -> waits -> gate -> (guessed) LLM -> voice -> DuplexOmniProcessor ...

The processor replaces the user aggregator of a cascade. Inputs: the recogniser's words, which are published
for the engine as they come and go no further; the decisions about turns of the engine's small tier (or of
the turn monitor for an engine that has none, ``DialogueActions``); typed text. Outputs: the start and the
end of a turn for clients and for the session; the question after it as an ``LLMContextFrame``, which the
commit gate makes durable before it is asked; and the interruption of pending output when a turn turns out
to be meant. The engine has fallen silent by itself at that time.

A guess, the beginning and the end of a turn are events. Text that is to be said goes to ``speak``, which is
after the model: the gate and the model may be at work. It goes when an interruption that was sent before it
has passed there.

Typed text is a question for the deployment's own model (``IS_WRITTEN``), whatever engine speaks: a speech
model takes no text.

The processor owns one task, which carries out the steps in their order and ends with the processor. When
``WAITING`` steps wait, the loop has stood still for minutes; then guesses are left out, nothing else.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from loguru import logger
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    LLMContextFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMUpdateSettingsFrame,
    StartFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.call_events import (
    GuessWithdrawn,
    SpeechReported,
    TurnEndDecided,
    TurnEnded,
    TurnGuessed,
    TurnStarted,
    WordsDiscarded,
)
from parley.core.frame_facts import FrameFact
from parley.core.speech_reports import TranscriptWords
from parley.models.omni.two_tier.dialogue import UserTurnReady
from parley.models.stt import Transcript
from parley.runtime.event_stream import CallEvents

WAITING = 256
# The question of a context was typed.
IS_WRITTEN = FrameFact[bool]("is_written")
# An interruption passes within milliseconds; a model's client that holds it is not awaited for longer.
PASS_S = 1.0

Step = Callable[[], Awaitable[None]]


class DuplexTurnTracker(FrameProcessor):
    """Turns of one call; see ``processors.duplex.dialogue.DialogueActions``.

    Args:
        context: context of the deployment's model.
        events: events of the call.
        speak: puts phrases into the pipeline, after the model and before the voice.
        are_own: returns whether words are the bot's own of a moment ago, and are discarded.
        words_of_turn: returns the words of a turn that is over, from its transcripts.
    """

    def __init__(
        self,
        context: LLMContext,
        events: CallEvents,
        *,
        speak: Callable[[Frame], Awaitable[None]],
        are_own: Callable[[str], bool] | None = None,
        words_of_turn: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        self._context = context
        self._are_own = are_own
        self._words_of_turn = words_of_turn
        self._events = events
        self._passed = asyncio.Event()
        self._speak = speak
        self._steps: deque[Step] = deque()
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._is_open = False

    async def cleanup(self) -> None:
        await super().cleanup()
        worker, self._worker = self._worker, None
        if worker is not None:
            await self.cancel_task(worker)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, StartFrame):
            self._worker = self.create_task(self._carry_out(), name=f"{self}::steps")
        elif isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame):
            self._hear(frame)
            return
        elif isinstance(frame, LLMMessagesAppendFrame):
            messages, runs = frame.messages, bool(frame.run_llm)
            self._do(lambda: self._append(messages, runs=runs))
            return
        elif isinstance(frame, LLMRunFrame):
            self._do(self._run)
            return
        elif isinstance(frame, LLMUpdateSettingsFrame):
            # For the questions after it, and not for those that still wait here.
            self._do(lambda: self.push_frame(frame, direction))
            return
        elif isinstance(frame, LLMContextFrame) and direction is FrameDirection.UPSTREAM:
            # The result of a tool has gone to the model by then.
            return
        await self.push_frame(frame, direction)

    def _hear(self, frame: TranscriptionFrame | InterimTranscriptionFrame) -> None:
        if self._are_own is not None and self._are_own(frame.text):
            self._discard_words()
            return
        confidences: tuple[float, ...] = ()
        if isinstance(frame.result, Transcript) and frame.result.words:
            each = frame.result.confidences
            # A redaction may have changed the number of words.
            confidences = each if len(each) == len(frame.text.split()) else (frame.result.confidence,)
        words = TranscriptWords(frame.text, isinstance(frame, TranscriptionFrame), confidences)
        self._events.publish(SpeechReported(self._events.now_ms(), words))

    # Decisions, in their order.

    def on_foreseen(self, text: str | None) -> None:
        """Publish a guess, or its withdrawal; see ``DialogueActions``."""

        async def step() -> None:
            now_ms = self._events.now_ms()
            self._events.publish(GuessWithdrawn(now_ms) if text is None else TurnGuessed(now_ms, text))

        if len(self._steps) < WAITING:
            self._do(step)

    def on_turn(self, *, is_open: bool) -> None:
        """Begin a turn, or void it; see ``DialogueActions``."""
        self._do(self._begin if is_open else self._void)

    def on_asked(self, asked: UserTurnReady) -> None:
        """End a turn and ask its question; see ``DialogueActions``."""
        self._do(lambda: self._ask(asked))

    def on_said(self, text: str) -> None:
        """Say a text; see ``DialogueActions``."""
        self._do(lambda: self._speak(TTSSpeakFrame(text, append_to_context=True)))

    def on_dropped(self) -> None:
        """Interrupt all pending output; see ``DialogueActions``."""
        self._do(self._interrupt)

    def on_forgotten(self) -> None:
        """Discard the last recognised words; see ``DialogueActions``."""

        async def step() -> None:
            self._discard_words()

        self._do(step)

    def interruption_passed(self) -> None:
        """Note that an interruption has passed the place where phrases enter the pipeline."""
        self._passed.set()

    def _do(self, step: Step) -> None:
        self._steps.append(step)
        self._wake.set()

    async def _carry_out(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._steps:
                step = self._steps.popleft()
                try:
                    await step()
                except Exception as error:  # The boundary of a call: one step is lost, the call continues.
                    logger.opt(exception=error).error(f"{self}: a step failed: {type(error).__name__}")

    async def _interrupt(self) -> None:
        self._passed.clear()
        await self.broadcast_interruption()
        with suppress(TimeoutError):
            async with asyncio.timeout(PASS_S):
                await self._passed.wait()

    async def _begin(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._events.publish(TurnStarted(self._events.now_ms()))
            await self.push_frame(UserStartedSpeakingFrame())

    async def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            await self.push_frame(UserStoppedSpeakingFrame())

    async def _void(self) -> None:
        await self._end()
        self._events.publish(TurnEnded(self._events.now_ms(), ""))
        self._discard_words()

    def _discard_words(self) -> None:
        self._events.publish(WordsDiscarded(self._events.now_ms()))

    async def _ask(self, asked: UserTurnReady) -> None:
        await self._begin()
        await self._end()
        said, now_ms = self._words_of_turn(asked.text), self._events.now_ms()
        self._events.publish(TurnEndDecided(now_ms, asked.silence_ms, asked.completeness))
        self._events.publish(TurnEnded(now_ms, said))
        self._context.add_message({"role": "user", "content": said})
        await self._run()

    async def _append(self, messages: list[LLMContextMessage], *, runs: bool) -> None:
        """Append typed messages; a question among them interrupts current speech, as a spoken one does."""
        if runs:
            await self._interrupt()
        for message in messages:
            self._context.add_message(message)
        if runs:
            await self._run(is_written=True)

    async def _run(self, *, is_written: bool = False) -> None:
        frame = LLMContextFrame(self._context)
        if is_written:
            IS_WRITTEN.put(frame, True)
        await self.push_frame(frame)
