"""Who answered a call that we placed, in its pipeline: Pipecat's detector, and what it leaves to us.

    transport.input -> (ear) -> ... STT -> ... -> (detector) -> user turns -> ... commit gate -> (hold)
        -> LLM -> TTS -> (gate) -> transport.output

The detector asks a classifier about all that was heard, and decides when the other side has been quiet for
``decide_ms``. The classifier is the deployment's language model where it can judge, and ``RulesClassifier``
otherwise and behind it. Until it is decided nothing is said: the hold keeps the caller's turns from the model
(they are in the session), the gate what is said nevertheless. Then ``turn_taking.voicemail`` says what
follows:

* a person is greeted, or, where the bot has no greeting, answered
* nobody speaks: the same, and the detector goes on
* a machine: what was to be said is dropped, nothing that it says reaches the conversation, and the message is
  said when its greeting is over; the call ends in good order behind it

Owns no task: ``run`` is one that its caller owns. What it is told never blocks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
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

from audio.beep import BeepDetector
from core.call_events import (
    CallAnswered,
    CallEnding,
    CallerJoined,
    VoiceEnded,
    VoiceStarted,
    Wait,
    WaitBegan,
    WaitEnded,
)
from core.clock import Clock
from core.frame_facts import FrameFact
from core.media import pcm16_to_float
from core.tuning import tuned
from processors.pipecat_internals import ClassifierAnswers
from processors.taps.notice import NoticeTap
from runtime.event_stream import CallEvents
from runtime.loop_clock import LoopClock
from turn_taking.voicemail import BEEP, AnswerScreen, Event, State, VoicemailSettings, VoicemailTuning, judge

Say = Callable[[Frame], Awaitable[None]]
PERSON, MACHINE, NOBODY = "person", "voicemail", "nobody"
_MACHINE, _PERSON = "voicemail", "conversation"
# Of a frame that the detector is to read, and nobody else.
_EVIDENCE = FrameFact[bool]("evidence")


class RulesClassifier(ClassifierAnswers, BaseClassifier):
    """Answers the detector's question by rules; no model, no wait."""

    async def answer(
        self, state: str | dict[str, Any] | list[Any], questions: Mapping[str, ClassifierQuestion]
    ) -> dict[str, ClassifierResult]:
        judgement = judge(state if isinstance(state, str) else "")
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
    """Asks a language model, and rules where it fails or takes too long.

    Args:
        model: ended with this.
        answer_ms: it may take so long.
    """

    def __init__(self, model: LLMService[Any], *, answer_ms: int) -> None:
        super().__init__()
        self._model = model
        self._asking = LLMClassifier(llm=model, timeout=answer_ms / 1000)
        self._rules = RulesClassifier()

    async def answer(
        self, state: str | dict[str, Any] | list[Any], questions: Mapping[str, ClassifierQuestion]
    ) -> dict[str, ClassifierResult]:
        try:
            return await self._asking.ask(state, questions)
        except ClassifierError as error:
            # The cause names the fault; its text may hold what was said.
            fault = type(error.__cause__ or error).__name__
            logger.warning(f"{self}: rules judge in place of the model: {fault}")
            return await self._rules.ask(state, questions)

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._model.cleanup()


class _Detector(VoicemailDetector):
    """Pipecat's, which also reads what is no speech of anybody."""

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        if not _EVIDENCE.is_on(frame):
            await super().push_frame(frame, direction)


class QuestionHold(FrameProcessor):
    """Keeps questions from the model while ``holds``; the newest one is kept."""

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
        """Hold no more; ``asks``: what was kept is asked."""
        self.holds = False
        kept, self._kept = self._kept, None
        if asks and kept is not None:
            await self.push_frame(kept)


class VoicemailScreen:
    """Of one call.

    Args:
        settings: see the model.
        classifier: None for rules.
        greeting: what a person is told first; empty: their first turn is answered.
        rate_hz: of the caller's audio.
        events: of the call. Who answered is published, once for each that it is taken for.
        clock: for tests.

    Attributes:
        ear: for directly behind the transport.
        detector: for behind the recogniser.
        hold: for behind the commit gate.
        gate: for behind the voice.
    """

    def __init__(
        self,
        settings: VoicemailSettings,
        *,
        classifier: BaseClassifier | None,
        greeting: TTSSpeakFrame | None,
        rate_hz: int,
        events: CallEvents,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings = tuned(VoicemailTuning, settings)
        self._greeting = greeting
        self._events = events
        self._clock: Clock = clock or LoopClock()
        self._screen = AnswerScreen(settings)
        self._beeps = BeepDetector(rate_hz)
        # What has happened, in order; None is a beep. A call has a handful of them.
        self._decided: asyncio.Queue[Event | None] = asyncio.Queue()
        self._wake = asyncio.Event()
        # The detector's own gate has no opening for a call on which nobody speaks.
        self._opens, self._drops = EventNotifier(), EventNotifier()
        self.ear = NoticeTap(self._listen)
        # It says when its verdict is in; when the message is said is not its decision.
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
            self._tell(Event.PERSON)

        @self.detector.event_handler("on_voicemail_detected")
        async def on_machine(_detector: Any) -> None:
            self._tell(Event.MACHINE)

    def begin(self) -> None:
        """Publish that nothing may be said until it is known who answered."""
        self._events.publish(WaitBegan(self._events.now_ms(), Wait.SCREENING))

    def _on_caller_joined(self, _event: CallerJoined) -> None:
        self._tell(Event.CONNECTED)

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
        # A machine is told its message by the screen, and nothing else.
        waits = WaitBegan if by == MACHINE else WaitEnded
        self._events.publish(waits(now_ms, Wait.SCREENING))

    async def run(self, say: Say) -> None:
        """Keep the deadlines until the call is to end.

        Args:
            say: puts a frame into the pipeline.
        """
        while self._screen.state is not State.DONE:
            event = await self._next()
            was, now_ms = self._screen.state, self._clock.now_ms()
            self._screen.on_event(event, now_ms)
            if self._screen.state is not was:
                await self._follow(was, say)
        if self._settings.message is not None:
            message = TTSSpeakFrame(self._settings.message, append_to_context=True)
            message.interruptible = False
            # From behind the detector, which lets nothing else pass any more.
            await self.detector.push_frame(message)
        await say(EndFrame())

    async def _next(self) -> Event:
        """What happens next."""
        while True:
            while not self._decided.empty():
                event = self._decided.get_nowait()
                if event is not None:
                    return event
                await self._show_beep()
            due_ms = self._screen.next_deadline_ms()
            left_s = None if due_ms is None else (due_ms - self._clock.now_ms()) / 1000
            if left_s is not None and left_s <= 0:
                return Event.DUE
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            self._wake.clear()

    async def _follow(self, was: State, say: Say) -> None:
        state = self._screen.state
        if state is State.MACHINE:
            logger.info("a machine has answered the call")
            await self._drops.notify()
            # Behind a person who turned out to be a machine nothing is held any more.
            self.hold.holds = True
            self._publish_answer(MACHINE)
        elif state is State.NOBODY or (state is State.PERSON and was is State.LISTENING):
            await self._opens.notify()
            await self.hold.release(asks=self._greeting is None)
            if self._greeting is not None:
                await say(self._greeting)
            self._publish_answer(NOBODY if state is State.NOBODY else PERSON)
        elif state is State.PERSON:
            self._publish_answer(PERSON)

    def _tell(self, event: Event | None) -> None:
        self._decided.put_nowait(event)
        self._wake.set()

    def _listen(self, frame: Frame) -> None:
        """The caller's audio, as the line brings it: what cleans it up takes a steady tone for noise."""
        if not isinstance(frame, InputAudioRawFrame) or self._screen.state in (State.PERSON, State.DONE):
            return
        for beep in self._beeps.feed(pcm16_to_float(frame.audio)):
            logger.debug(f"a beep of {beep.end_ms - beep.start_ms} ms")
            self._screen.on_beep(self._clock.now_ms())
            self._tell(None)

    async def _show_beep(self) -> None:
        """The detector is to read that there was a beep."""
        evidence = TranscriptionFrame(BEEP, "", "")
        _EVIDENCE.put(evidence, True)
        await self.detector.queue_frame(evidence)
