"""Interruptions: the Pipecat strategy around ``turn_taking.barge_in.barge_in``, which starts every user turn.

Inputs: voice activity and transcripts, as the user aggregator passes them to a start strategy; early looks at
the sound of a voice (``looks``); and as events the first sign of a voice and of its end, the progress of
every reply, and that an answer is owed. Outputs: the start of the caller's turn, at once while no reply is
current or announced, otherwise when the machine decides ``Cut``; the bot's volume; after an interruption for
nothing the rest of the reply; and every decision as an event.

The strategy passes frames to the parts of ``over_bot``. The voice (``voice``), the words (``words``) and the
replies (``replies``) supply the machine with facts. Decisions wait in ``decisions``, and ``floor`` carries
them out.

The strategy owns one task, which ends with it. The task keeps the machine's deadlines, checks whether a voice
is the bot's own, and carries out decisions that were made while an event was handled.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.types import ProcessFrameResult
from pipecat.turns.user_start.base_user_turn_start_strategy import BaseUserTurnStartStrategy

from parley.models.stt import Transcript
from parley.processors.perception.voice_onset import ahead_ms, judged_ms
from parley.processors.turns.endpoint import EndpointStopStrategy
from parley.processors.turns.looks import EarlyLooks
from parley.processors.turns.over_bot.decisions import DecisionQueue
from parley.processors.turns.over_bot.floor import CallerFloor
from parley.processors.turns.over_bot.replies import BotReplies
from parley.processors.turns.over_bot.turn import TurnOverBot
from parley.processors.turns.over_bot.voice import CallerSound, VoiceOverBot
from parley.processors.turns.over_bot.words import WordsOverBot
from parley.processors.turns.stop_words import StopWordSpotter
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.table import BargeInState, Cut, Decision


class BargeInStartStrategy(BaseUserTurnStartStrategy):
    """The only start strategy of ``LLMUserAggregatorParams.user_turn_strategies``.

    Args:
        machine: barge-in state machine of this call.
        events: events of the call.
        endpoint: ends the turns that begin here.
        set_gain_db: sets the bot's volume; must not block.
        interrupt: interrupts the bot inside of an open turn: the aggregator's ``broadcast_interruption``.
        sound: sound of the caller.
        stop_words: spots commands in voices over a reply; closed with the strategy.
        looks: takes early looks at voices over a reply; closed with the strategy.
    """

    def __init__(
        self,
        machine: BargeIn,
        events: CallEvents,
        *,
        endpoint: EndpointStopStrategy,
        set_gain_db: Callable[[float], None],
        interrupt: Callable[[], Awaitable[None]],
        sound: CallerSound,
        stop_words: StopWordSpotter,
        looks: EarlyLooks,
    ) -> None:
        super().__init__()
        self._machine = machine
        self._endpoint = endpoint
        self._clock = LoopClock()
        self._timer: asyncio.Task[None] | None = None
        self._rate_hz = 16_000
        # The endpointer has registered a voice that was not meant.
        self._is_stale = False
        self._turn = TurnOverBot()
        self._decisions = DecisionQueue(machine, events, set_gain_db, name=str(self))
        self._voice = VoiceOverBot(
            machine,
            events,
            self._decisions,
            self._clock,
            sound=sound,
            stop_words=stop_words,
            looks=looks,
        )
        self._replies = BotReplies(machine, events, self._decisions, self._clock)
        self._words = WordsOverBot(
            machine, self._turn, self._voice, self._decisions, self._clock, name=str(self)
        )
        self._floor = CallerFloor(
            # A weak reference, so that a call that has ended is freed without a collection.
            weakref.proxy(self),
            machine,
            events,
            endpoint=endpoint,
            interrupt=interrupt,
            decisions=self._decisions,
            turn=self._turn,
            voice=self._voice,
            words=self._words,
            replies=self._replies,
        )

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own base
        await super().setup(setup)
        self._rate_hz = setup.audio_in_sample_rate
        self._machine.on_echo_path_changed(self._clock.now_ms())
        self._timer = self.task_manager.create_task(self._keep_time(), f"{self}::time")

    async def cleanup(self) -> None:
        await super().cleanup()
        self._voice.close()
        timer, self._timer = self._timer, None
        if timer is not None:
            await self.task_manager.cancel_task(timer)

    async def handle_user_turn_started(self) -> None:
        self._turn.start(over_reply=self._voice.over_reply)
        self._words.forget_doubted()

    async def handle_user_turn_stopped(self) -> None:
        self._words.end_turn(is_answered=not self._turn.is_void)
        self._turn.stop()
        self._voice.end_turn()

    # Events of the caller.

    async def process_frame(self, frame: Frame) -> ProcessFrameResult:
        if isinstance(frame, VADUserStartedSpeakingFrame):
            needed_ms, ahead = int(frame.start_secs * 1000), ahead_ms(frame, self._rate_hz)
            judged = judged_ms(frame, self._rate_hz)
            await self._floor.carry_out(self._voice.begin(needed_ms, ahead_ms=ahead, judged_ms=judged))
            self._voice.look_at_beginning()
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._words.end_voice()
            silence_ms = int(frame.stop_secs * 1000) + ahead_ms(frame, self._rate_hz)
            await self._floor.carry_out(self._voice.end(silence_ms, self._words.take_spotted))
            # Nothing depends on it any more; the stop strategy receives its end next.
            self._is_stale = self._machine.state is BargeInState.REPLYING
        elif isinstance(frame, TranscriptionFrame):
            with self._floor.judging(frame):
                await self._final_words(frame)
        elif isinstance(frame, InterimTranscriptionFrame):
            await self._words_so_far(frame)
        else:
            return ProcessFrameResult.CONTINUE
        await self._floor.give()
        self._decisions.news.set()
        return ProcessFrameResult.CONTINUE

    async def _words_so_far(self, frame: InterimTranscriptionFrame) -> None:
        if self._voice.echoes(frame.text):
            return
        if self._voice.is_on:
            self._voice.report_level()
        decision = self._machine.on_partial(
            self._clock.now_ms(), frame.text, confidences=_confidences(frame.text, frame.result)
        )
        await self._floor.carry_out(decision)
        if isinstance(decision, Cut):
            await self._endpoint.take_up()
        await self._floor.begin_with_words()

    async def _final_words(self, frame: TranscriptionFrame) -> None:
        # The pending decision on earlier words comes first.
        await self._floor.settle_words()
        if self._voice.echoes(frame.text) and not self._turn.is_open:
            await self._floor.carry_out(self._machine.on_self_voice(self._clock.now_ms(), own=True))
            await self._floor.take_back()
            return
        decision = self._machine.on_final(
            self._clock.now_ms(), frame.text, confidences=_confidences(frame.text, frame.result)
        )
        await self._floor.carry_out(decision)
        await self._floor.take_final(frame)

    # Deadlines.

    async def _keep_time(self) -> None:
        while True:
            await self._until_due()
            for noted in self._decisions.drain():
                await self._carry_out_and_take_up(noted)
            now_ms = self._clock.now_ms()
            await self._floor.carry_out(self._voice.look_for_own(now_ms))
            if self._voice.is_on:
                self._voice.report_level()
            await self._carry_out_and_take_up(self._voice.keep_deadline(now_ms))
            await self._floor.give()
            if self._words.is_command_due(now_ms):
                await self._floor.say_command()
            if self._words.is_doubt_over(now_ms):
                await self._floor.take_back_doubted()
            is_stale, self._is_stale = self._is_stale, False
            if is_stale and not self._words.keeps_doubted:
                # Otherwise it is forgotten with the words.
                await self._endpoint.forget()

    async def _carry_out_and_take_up(self, decision: Decision | None) -> None:
        await self._floor.carry_out(decision)
        if isinstance(decision, Cut):
            await self._floor.take_up_cut()

    async def _until_due(self) -> None:
        """Return at the next deadline, or when something has happened."""
        command = self._words.command
        dues_ms = self._voice.dues_ms() + ([command.due_ms] if command is not None else [])
        doubted_due_ms = self._words.doubted_due_ms()
        if doubted_due_ms is not None:
            dues_ms.append(doubted_due_ms)
        left_ms = min(dues_ms) - self._clock.now_ms() if dues_ms else None
        with suppress(TimeoutError):
            async with asyncio.timeout(None if left_ms is None else max(0, left_ms) / 1000):
                await self._decisions.news.wait()
        self._decisions.news.clear()


def _confidences(text: str, result: object) -> tuple[float, ...]:
    """Return the confidence of each word; empty from a recogniser that does not report it.

    A partial without words has one for all of them, 0.0: it confirms nothing.
    """
    if not isinstance(result, Transcript):
        return ()
    each = result.confidences
    # A redaction may have changed the number of words.
    return each if len(each) == len(text.split()) else (result.confidence,)
