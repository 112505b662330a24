"""Reassure a caller who waits for an answer, and at last report that none came.

The processor stands before the commit gate, because the delays that it covers begin there: a session store
that is away, then a model, its fallback and its tools. It sees each question on its way in and each
interruption. The output of the model arrives as events, and the first word ends the wait. A response that
ends without a word (a model that failed and has no fallback) ends it too, with the apology: silence would
sound like a broken line. Phrases go into the pipeline after the model, through ``say``: the gate and the
model are busy, and so are their queues. ``filler_schedule`` decides the phrases and their times.

The processor owns one task, the timer of the wait, which ends with it. Its phrases are not part of the
conversation.
"""

import asyncio
from collections.abc import Awaitable, Callable

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    TTSSpeakFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.call_events import (
    GoodbyeDue,
    PhraseInserted,
    QuestionDropped,
    QuestionReopened,
    ResponseEnded,
    ResponseStarted,
    ResponseText,
    ToolsCalled,
    TurnEndDecided,
    Wait,
    WaitBegan,
    WaitEnded,
    WaitMasked,
)
from parley.core.clock import Clock
from parley.language import Language
from parley.processors.dialogue.engine_llm import text_of
from parley.processors.dialogue.filler_schedule import FillerSchedule, Phrase, WaitSettings
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.filler_policy import FillerPolicy

Say = Callable[[Frame], Awaitable[None]]


class FillerProcessor(FrameProcessor):
    """Waits of one call.

    Args:
        settings: see ``WaitSettings``.
        events: events of the call. That an answer is owed is published, and that it is no longer: its first
            word is there, or it does not come.
        apology: said when the wait is given up, or nothing was answered.
        say: puts phrases into the pipeline, after the model and before the voice.
        is_covered: returns whether the silence after a turn is covered at all.
        is_asked: returns whether the later model is asked this; otherwise there is no wait.
        language: that of the caller; None for the default language.
        clock: None for the clock of the loop; tests pass another.

    Attributes:
        cut_off: True when the newest wait was interrupted while the model was at work: no answer comes any
            more.
    """

    def __init__(
        self,
        settings: WaitSettings,
        events: CallEvents,
        *,
        apology: str,
        say: Say,
        is_covered: Callable[[], bool] = lambda: True,
        is_asked: Callable[[LLMContextFrame], bool] = lambda _frame: True,
        language: Language | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(enable_direct_mode=True)
        self._settings = settings
        self._masking = (
            FillerPolicy(settings.masking, language=language) if settings.masking is not None else None
        )
        self._events = events
        self._is_covered = is_covered
        self._is_asked = is_asked
        # Since when the caller is silent, from the end of the turn to its question.
        self._quiet_since_ms: int | None = None
        self._asked_ms = 0
        self._said = ""
        self._phrases = {
            Phrase.FILLER: settings.filler,
            Phrase.TROUBLE: settings.trouble,
            Phrase.APOLOGY: apology,
        }
        self._clock: Clock = clock or LoopClock()
        self._say = say
        self._watch: FillerSchedule | None = None
        self.cut_off = False
        # A model was asked in this wait, and the state of its response.
        self._asked = self._responding = self._tools = False
        # No question is asked any more.
        self._is_leaving = False
        self._timer: asyncio.Task[None] | None = None
        events.subscribe(TurnEndDecided, self._on_turn_end_decided)
        events.subscribe(QuestionDropped, self._on_question_dropped)
        events.subscribe(QuestionReopened, self._on_question_reopened)
        events.subscribe(GoodbyeDue, self._on_goodbye_due)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(ResponseEnded, self._on_response_ended)
        events.subscribe(ToolsCalled, self._on_tools_called)
        events.subscribe(PhraseInserted, self._on_phrase_inserted)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMContextFrame) and not frame.speculation and self._will_be_asked(frame):
                self._said = _last_words(frame.context)
                self._begin(self._mask_ms())
            elif isinstance(frame, (InterruptionFrame, EndFrame, CancelFrame)):
                self.cut_off = self._watch is not None and self._asked
                self._end()
        await self.push_frame(frame, direction)

    def _on_turn_end_decided(self, event: TurnEndDecided) -> None:
        """Note the silence before the question of the turn, which follows."""
        if self._is_covered():
            self._quiet_since_ms = event.at_ms - event.silence_ms

    def _on_question_dropped(self, _event: QuestionDropped) -> None:
        # No model is asked: what the caller hears in place of an answer, if anything, comes at once.
        self._end()

    def _on_question_reopened(self, _event: QuestionReopened) -> None:
        if not self._is_leaving:
            self._begin()

    def _on_goodbye_due(self, _event: GoodbyeDue) -> None:
        self._is_leaving = True

    def _on_response_started(self, event: ResponseStarted) -> None:
        if self._watch is not None:
            self._asked, self._responding, self._tools = True, True, False
            self._watch.on_model_asked(event.at_ms)

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        self._tools = self._tools or self._watch is not None

    def _on_response_text(self, event: ResponseText) -> None:
        if self._watch is not None and event.text.strip():
            if self._masking is not None:
                self._masking.on_answer(event.at_ms - self._asked_ms)
            self._end()

    def _on_response_ended(self, _event: ResponseEnded) -> None:
        if self._watch is None:
            return
        # A response that calls tools ends without a word; the answer is another one. The end of an
        # interrupted response may come late, in the next wait.
        if self._responding and not self._tools:
            self._end()
            self._timer = self.create_task(self._speak_phrase(Phrase.APOLOGY), name=f"{self}::apology")
        self._responding = False

    def _on_phrase_inserted(self, _event: PhraseInserted) -> None:
        if self._watch is not None:
            # The gate refused the turn; its phrase reports that.
            self._end()

    async def cleanup(self) -> None:
        self._watch = None
        timer, self._timer = self._timer, None
        if timer is not None:
            await self.cancel_task(timer)
        await super().cleanup()

    def _mask_ms(self) -> int | None:
        """Return when the silence after a spoken turn is covered; None when it is not."""
        quiet_since_ms, self._quiet_since_ms = self._quiet_since_ms, None
        if self._masking is None or quiet_since_ms is None or not self._masking.covers(self._said):
            return None
        return self._masking.due_ms(quiet_since_ms=quiet_since_ms, asked_ms=self._clock.now_ms())

    def _will_be_asked(self, frame: LLMContextFrame) -> bool:
        return not self._is_leaving and self._is_asked(frame)

    def _begin(self, mask_ms: int | None = None) -> None:
        self._end()
        self._asked_ms = self._clock.now_ms()
        watch = FillerSchedule(self._settings, asked_ms=self._asked_ms, mask_ms=mask_ms)
        self._watch = watch
        self.cut_off = self._asked = self._responding = self._tools = False
        self._timer = self.create_task(self._keep_company(watch), name=f"{self}::wait")
        self._events.publish(WaitBegan(self._events.now_ms(), Wait.ANSWER))

    def _end(self) -> None:
        # Not awaited: it may run while any frame is processed, and the task holds nothing.
        waited, self._watch = self._watch is not None, None
        if waited:
            self._events.publish(WaitEnded(self._events.now_ms(), Wait.ANSWER))
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    async def _keep_company(self, watch: FillerSchedule) -> None:
        while (deadline_ms := watch.deadline_ms()) is not None:
            now_ms = self._clock.now_ms()
            if now_ms < deadline_ms:
                # The deadline may have moved by then.
                await self._clock.sleep_until_ms(deadline_ms)
                continue
            await self._speak_phrase(watch.say(now_ms))

    async def _speak_phrase(self, phrase: Phrase) -> None:
        if phrase is Phrase.MASK:
            text = self._masking.phrase(self._said) if self._masking is not None else ""
            if text:
                self._events.publish(WaitMasked(self._events.now_ms()))
        else:
            text = self._phrases[phrase]
        if text:
            await self._say(TTSSpeakFrame(text, append_to_context=False))


def _last_words(context: LLMContext) -> str:
    """Return the caller's last words."""
    for message in reversed(context.messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return text_of(message.get("content"))
    return ""
