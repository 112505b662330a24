"""Answering-machine detection in the pipeline of an outbound call: Pipecat's detector with our own decisions.

    transport.input -> (tap) -> ... STT -> ... -> (detector) -> user turns -> ... commit gate -> (hold)
        -> LLM -> TTS -> (gate) -> transport.output

The detector has a classifier judge the whole transcript, and decides when the other side has been quiet for
``decide_ms``. The classifier is the deployment's language model where it can judge, and ``RulesClassifier``
otherwise and as its fallback. Until the decision nothing is said: the hold keeps the caller's turns from the
model (they are in the session), and the gate keeps any other speech. Then ``turn_taking.answering_machine``
decides what follows:

* a person is greeted, or, where the bot has no greeting, answered
* a silent line is treated in the same way, and the detector continues
* for a machine the pending speech is dropped, none of its words reach the conversation, and the message is
  said when its greeting is over; the call ends in good order after it

The object owns no task: ``run`` is one that its caller owns. Event handlers never block.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from loguru import logger
from pipecat.classifiers.base_classifier import (
    BaseClassifier,
    ChoiceQuestion,
    ChoiceResult,
    ClassifierError,
    ClassifierQuestion,
    ClassifierResult,
)
from pipecat.classifiers.llm.classifier import LLMClassifier
from pipecat.extensions.voicemail.voicemail_detector import TTSGate, VoicemailDetector
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InputAudioRawFrame,
    LLMContextFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.utils.sync.event_notifier import EventNotifier

from parley.audio.beep import BeepDetector
from parley.core.call_events import (
    CallAnswered,
    CallEnding,
    CallerJoined,
    GuessWithdrawn,
    PhraseChosen,
    VoiceEnded,
    VoiceStarted,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.clock import Clock
from parley.core.frame_facts import FrameFact
from parley.core.media import pcm16_to_float
from parley.core.tuning import tuned
from parley.language.vocabulary import AnsweringPhrases
from parley.processors.pipecat_internals import ClassifierAnswers
from parley.processors.speech.phrases import protected_phrase
from parley.processors.taps.notice import NoticeTap
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.answering_machine import (
    BEEP,
    AnswerScreen,
    VoicemailEvent,
    VoicemailSettings,
    VoicemailState,
    VoicemailTuning,
    judge,
)

Say = Callable[[Frame], Awaitable[None]]
PERSON, MACHINE, NOBODY = "person", "voicemail", "nobody"
_MACHINE, _PERSON = "voicemail", "conversation"
# Marks a frame that only the detector may read.
_EVIDENCE = FrameFact[bool]("evidence")


class RulesClassifier(ClassifierAnswers, BaseClassifier):
    """Classifier that answers the detector's question by rules; no model, no wait.

    Args:
        phrases: those of the language that is spoken; None for the default language.
    """

    def __init__(self, phrases: AnsweringPhrases | None = None) -> None:
        super().__init__()
        self._phrases = phrases

    async def answer(
        self, state: str | dict[str, Any] | list[Any], questions: Mapping[str, ClassifierQuestion]
    ) -> dict[str, ClassifierResult]:
        judgement = judge(state if isinstance(state, str) else "", self._phrases)
        choice, other = (_MACHINE, _PERSON) if judgement.is_machine else (_PERSON, _MACHINE)
        result = ChoiceResult(
            choice=choice,
            probabilities={choice: judgement.confidence, other: 1 - judgement.confidence},
            confidence=judgement.confidence,
        )
        for name, question in questions.items():
            if not isinstance(question, ChoiceQuestion) or choice not in question.options:
                raise ClassifierError(f"there are no rules for {name!r}")
        return dict.fromkeys(questions, result)


class ModelClassifier(ClassifierAnswers, BaseClassifier):
    """Classifier that asks a language model, and falls back to rules where it fails or takes too long.

    Args:
        model: the language model; cleaned up with this object.
        answer_ms: longest time for its answer.
        phrases: those of the language that is spoken; None for the default language.
    """

    def __init__(
        self, model: LLMService[Any], *, answer_ms: int, phrases: AnsweringPhrases | None = None
    ) -> None:
        super().__init__()
        self._model = model
        self._asking = LLMClassifier(llm=model, timeout=answer_ms / 1000)
        self._rules = RulesClassifier(phrases)

    async def answer(
        self, state: str | dict[str, Any] | list[Any], questions: Mapping[str, ClassifierQuestion]
    ) -> dict[str, ClassifierResult]:
        try:
            return await self._asking.ask(state, questions)
        except ClassifierError as error:
            # The cause names the fault; its text may contain the transcript.
            fault = type(error.__cause__ or error).__name__
            logger.warning(f"{self}: judging by rules instead of the model: {fault}")
            return await self._rules.ask(state, questions)

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._model.cleanup()


class _Detector(VoicemailDetector):
    """Pipecat's detector, which also reads evidence that is not speech."""

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        if not _EVIDENCE.is_on(frame):
            await super().push_frame(frame, direction)


class QuestionHold(FrameProcessor):
    """Processor that keeps questions from the model while ``holds``; the newest one is kept."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.holds = True
        self._kept: LLMContextFrame | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if self.holds and direction is FrameDirection.DOWNSTREAM and isinstance(frame, LLMContextFrame):
            self._kept = frame
            return
        await self.push_frame(frame, direction)

    async def release(self, *, asks: bool) -> None:
        """Stop holding; with ``asks`` the kept question goes to the model."""
        self.holds = False
        kept, self._kept = self._kept, None
        if asks and kept is not None:
            await self.push_frame(kept)


class VoicemailScreen:
    """Answering-machine detection of one call.

    Args:
        settings: waits and the message.
        classifier: None for rules.
        greeting: first speech to a person; None: their first turn is answered.
        announcements: phrases before it, which cannot be interrupted.
        rate_hz: sample rate of the caller's audio.
        events: events of the call. The answerer is published, once for each decision.
        clock: None for the clock of the loop; tests pass another.

    Attributes:
        tap: processor for the place directly after the transport.
        detector: processor for the place after the recogniser.
        hold: processor for the place after the commit gate.
        gate: processor for the place after the voice.
    """

    def __init__(
        self,
        settings: VoicemailSettings,
        *,
        classifier: BaseClassifier | None,
        greeting: TTSSpeakFrame | None,
        announcements: Sequence[str] = (),
        rate_hz: int,
        events: CallEvents,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings = tuned(VoicemailTuning, settings)
        self._greeting, self._announcements = greeting, announcements
        self._events = events
        self._clock: Clock = clock or LoopClock()
        self._screen = AnswerScreen(settings)
        self._beeps = BeepDetector(rate_hz)
        # Events in order; None is a beep. A call has a handful of them.
        self._decided: asyncio.Queue[VoicemailEvent | None] = asyncio.Queue()
        self._wake = asyncio.Event()
        # The detector's own gate has no opening for a call on which neither side speaks.
        self._opens, self._drops = EventNotifier(), EventNotifier()
        self.tap = NoticeTap(self._listen)
        # It reports its verdict at once; when the message is said is decided here.
        self.detector = _Detector(
            classifier=classifier or RulesClassifier(),
            voicemail_response_delay=0.0,
            decision_timeout=settings.decide_ms / 1000,
        )
        self.hold = QuestionHold()
        events.subscribe(CallerJoined, self._on_caller_joined)
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(VoiceEnded, self._on_voice_ended)
        self.gate = TTSGate(self._opens, self._drops)

        @self.detector.event_handler("on_conversation_detected")
        async def on_person(_detector: Any) -> None:
            self._report(VoicemailEvent.PERSON)

        @self.detector.event_handler("on_voicemail_detected")
        async def on_machine(_detector: Any) -> None:
            self._report(VoicemailEvent.MACHINE)

    def begin(self) -> None:
        """Publish that nothing may be said until the answerer is known."""
        self._events.publish(WaitBegan(self._events.now_ms(), Wait.SCREENING))

    def _on_caller_joined(self, _event: CallerJoined) -> None:
        self._report(VoicemailEvent.CONNECTED)

    def _on_voice_started(self, event: VoiceStarted) -> None:
        self._screen.on_voice(True, event.at_ms)
        self._wake.set()

    def _on_voice_ended(self, event: VoiceEnded) -> None:
        self._screen.on_voice(False, event.at_ms)
        self._wake.set()

    def _publish_answer(self, by: str) -> None:
        now_ms = self._events.now_ms()
        self._events.publish(CallAnswered(now_ms, by))
        if by == MACHINE:
            left = "a message" if self._settings.message is not None else "no message"
            self._events.publish(CallEnding(now_ms, MACHINE, f"a machine answered and was left {left}"))
        # For a machine only this object speaks, so the wait does not end.
        waits = WaitBegan if by == MACHINE else WaitEnded
        self._events.publish(waits(now_ms, Wait.SCREENING))

    async def run(self, say: Say) -> None:
        """Keep the deadlines until the call is to end.

        Args:
            say: puts a frame into the pipeline.
        """
        while self._screen.state is not VoicemailState.DONE:
            event = await self._next()
            was, now_ms = self._screen.state, self._clock.now_ms()
            self._screen.on_event(event, now_ms)
            if self._screen.state is not was:
                await self._follow(was, say)
        if self._settings.message is not None:
            # Pushed from the detector, which lets no other frame pass any more.
            await self.detector.push_frame(protected_phrase(self._settings.message))
        await say(EndFrame())

    async def _next(self) -> VoicemailEvent:
        """Wait for the next event."""
        while True:
            while not self._decided.empty():
                event = self._decided.get_nowait()
                if event is not None:
                    return event
                await self._show_beep()
            due_ms = self._screen.next_deadline_ms()
            left_s = None if due_ms is None else (due_ms - self._clock.now_ms()) / 1000
            if left_s is not None and left_s <= 0:
                return VoicemailEvent.DUE
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            self._wake.clear()

    async def _follow(self, was: VoicemailState, say: Say) -> None:
        state = self._screen.state
        if state is VoicemailState.MACHINE:
            logger.info("an answering machine has taken the call")
            await self._drops.notify()
            # After a person who turned out to be a machine nothing is held any more.
            self.hold.holds = True
            self._publish_answer(MACHINE)
        elif state is VoicemailState.NOBODY or (
            state is VoicemailState.PERSON and was is VoicemailState.LISTENING
        ):
            if self._announcements:
                # An answer that was prepared would overtake them.
                self._events.publish(GuessWithdrawn(self._events.now_ms()))
            await self._opens.notify()
            for phrase in self._announcements:
                self._events.publish(PhraseChosen(self._events.now_ms(), phrase))
                # Before the question that is released here.
                await self.hold.push_frame(protected_phrase(phrase))
            await self.hold.release(asks=self._greeting is None)
            if self._greeting is not None:
                await say(self._greeting)
            self._publish_answer(NOBODY if state is VoicemailState.NOBODY else PERSON)
        elif state is VoicemailState.PERSON:
            self._publish_answer(PERSON)

    def _report(self, event: VoicemailEvent | None) -> None:
        self._decided.put_nowait(event)
        self._wake.set()

    def _listen(self, frame: Frame) -> None:
        """Search the caller's raw audio for beeps: noise suppression takes a steady tone for noise."""
        if not isinstance(frame, InputAudioRawFrame) or self._screen.state in (
            VoicemailState.PERSON,
            VoicemailState.DONE,
        ):
            return
        for beep in self._beeps.feed(pcm16_to_float(frame.audio)):
            logger.debug(f"a beep of {beep.end_ms - beep.start_ms} ms")
            self._screen.on_beep(self._clock.now_ms())
            self._report(None)

    async def _show_beep(self) -> None:
        """Show the detector that there was a beep."""
        evidence = TranscriptionFrame(BEEP, "", "")
        _EVIDENCE.put(evidence, True)
        await self.detector.queue_frame(evidence)
