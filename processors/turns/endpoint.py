"""End the user's turn: the Pipecat shell of the policies of ``turn_taking.endpointing.policies``.

A turn may begin late: barge-in needs a while to decide that a voice over the bot is meant. Sound and words
from before that belong to it, so nothing is forgotten when a turn begins; ``forget`` is called when they were
not meant. Between turns nothing is decided.

Inputs: voice activity and transcripts, as the user aggregator passes them to a stop strategy, and the
caller's audio directly from the voice activity detector (``hear``). As frames the audio would cross the
aggregator fifty times a second, and arrive later than the pause that it is needed for. Output: the end of the
turn. The completeness model runs in a shared executor, never on the loop; its task and the deadline timer
belong to the strategy and end with it. A slow or failing model costs its hint, not the turn: the wait is then
the longer one.

The model takes 40 to 90 ms, so it starts early, when a pause has just begun (``VoicePaused``): a clear yes is
available when voice activity confirms the silence. Otherwise the model runs again on the audio up to the
confirmation, which contains that silence, and the second answer counts. This also applies while the first one
is still being computed, since with each tenth of a second of silence more a complete sentence sounds more
like a filler. A run that believed the lower of the two, with a higher threshold and a longer hanging wait,
had 4 cut-ins in 40 turns instead of 7. Its median was 769 ms instead of 577. The three changes were not
measured separately. A policy may have the model run again while the turn stays open (``next_look_ms``). It
may also request the end of the voice, which the same thread measures.

A pause is as long as the audio of it that was heard (``HeardPause``). After a stop of the process, a decision
that was due in that time waits for the audio of it.
"""

import asyncio
from concurrent.futures import Executor

from loguru import logger
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.types import ProcessFrameResult
from pipecat.turns.user_stop.base_user_turn_stop_strategy import BaseUserTurnStopStrategy

from parley.core.call_events import (
    BotTurnEnded,
    GuessWithdrawn,
    PauseJudged,
    TurnContinued,
    TurnEndDecided,
    TurnEndDue,
    TurnEndRequested,
    TurnGuessed,
    VoicePaused,
    VoiceResumed,
    VoiceSuspected,
    WordsAccepted,
)
from parley.core.clock import Clock
from parley.core.errors import EngineError
from parley.core.frame_facts import FrameFact
from parley.core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from parley.models.stt import Transcript
from parley.models.turn import TurnCompleteness, TurnEstimate
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.processors.turns.estimates import CallEstimates, Occasion
from parley.processors.turns.heard_pause import HeardPause
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.endpointing.endpointer import EndpointPolicy
from parley.turn_taking.endpointing.evidence_voice import VOICE_END_MS, VoiceEnd, voice_end
from parley.turn_taking.speculation import Guesser

# Audio before the voice was detected that the completeness model also gets: a soft onset belongs to the turn.
PRE_SPEECH_MS = 500
# Marks a transcription whose words were not meant, and belong to no turn.
NOT_MEANT = FrameFact[bool]("not_meant")
# Wait for the last words after a caller has ended the turn explicitly: looks, as a process that is stopped
# has one for all of the stop.
FINISH_LOOK_MS, FINISH_LOOKS = 100, 10
# The same where the recogniser says that it owes words.
MOST_OWED_S = 10.0


class EndpointStopStrategy(BaseUserTurnStopStrategy):
    """Stop strategy for ``LLMUserAggregatorParams.user_turn_strategies``.

    Args:
        endpointer: the policy, owned by this call.
        completeness: the shared model, or None to decide by time and words alone.
        executor: where the model runs; shared by all calls.
        events: events of the call.
        guesser: guesses the words of the turn at each pause; None for no guesses.
        estimates: of the call, where it is recorded; None: those of the model count.
        clock: None for the clock of the loop; tests pass another.
    """

    def __init__(
        self,
        endpointer: EndpointPolicy,
        *,
        completeness: TurnCompleteness | None,
        executor: Executor,
        events: CallEvents,
        guesser: Guesser | None = None,
        estimates: CallEstimates | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self._endpointer = endpointer
        self._model = completeness
        self._executor = executor
        self._events = events
        self._guesser = guesser
        self._estimates = estimates
        # Length of all of the caller's audio so far.
        self._heard_bytes = 0
        self._clock = clock or LoopClock()
        self._audio = bytearray()
        # Audio of the turn is there before its voice marks.
        self._is_overheard = False
        self._pause = HeardPause(self._clock)
        self._voice = False
        # A turn is open; words outside of one belong to no question. An abandoned turn ends without an answer
        # when the voice ends.
        self._in_turn = False
        self._is_abandoned = False
        self._timer: asyncio.Task[None] | None = None
        self._inference: asyncio.Task[None] | None = None
        self._early: TurnEstimate | None = None
        # The audio up to the moment when voice activity confirmed the silence.
        self._confirmed = b""
        self._confirmed_ms = 0
        # The end of the voice was measured at this pause: the silence that follows does not change it.
        self._has_voice_end = False
        # Ends the turn when no words come any more after the caller has ended it explicitly.
        self._finisher: asyncio.Task[None] | None = None
        # Ends the turn because another stage has requested it.
        self._ender: asyncio.Task[None] | None = None
        # Set when the recogniser owes no words any more.
        self._words_came = asyncio.Event()
        self._is_set_up = False
        self._rate_hz = 16_000
        events.subscribe(VoiceSuspected, self._on_voice_suspected)
        events.subscribe(VoicePaused, self._on_voice_paused)
        events.subscribe(VoiceResumed, self._on_voice_resumed)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)
        events.subscribe(TurnEndRequested, self._on_turn_end_requested)

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own base
        await super().setup(setup)
        self._rate_hz = setup.audio_in_sample_rate
        self._is_set_up = True

    async def cleanup(self) -> None:
        await super().cleanup()
        self._is_set_up = False
        await self._drop_conclusions()
        await self._cancel_finisher()
        ender, self._ender = self._ender, None
        if ender is not None and not ender.done():
            await self.task_manager.cancel_task(ender)

    async def handle_user_turn_started(self) -> None:
        self._in_turn = True
        self._is_abandoned = False
        if self._guesser is not None:
            self._publish_guess(self._guesser.on_turn())

    async def handle_user_turn_stopped(self) -> None:
        self._in_turn = self._is_abandoned = self._is_overheard = False
        if self._guesser is not None:
            self._guesser.reset()
        self._endpointer.reset()
        self._audio.clear()
        self._confirmed = b""
        await self._drop_conclusions()
        await self._cancel_finisher()

    async def process_frame(self, frame: Frame) -> ProcessFrameResult:
        if isinstance(frame, VADUserStartedSpeakingFrame):
            self._voice = True
            self._early = None
            self._has_voice_end = False
            self._endpointer.on_voice_started(self._clock.now_ms())
            if self._guesser is not None and self._guesser.on_voice():
                self._withdraw_guess()
            await self._drop_conclusions()
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._voice = False
            self._pause.begin()
            self._confirmed, self._confirmed_ms = bytes(self._audio), self._heard_ms
            self._endpointer.on_voice_stopped(self._clock.now_ms(), silence_ms=int(frame.stop_secs * 1000))
            if self._is_abandoned:
                await self.abandon()
                return ProcessFrameResult.CONTINUE
            if self._guesser is not None:
                self._publish_guess(self._guesser.on_pause())
            await self._conclude_pause()
            await self._rearm()
        elif isinstance(frame, TranscriptionFrame) and not NOT_MEANT.is_on(frame):
            self._endpointer.on_transcript(
                self._clock.now_ms(), frame.text, last_word_confidence=_last_word_confidence(frame)
            )
            self._events.publish(WordsAccepted(self._events.now_ms()))
            if self._guesser is not None:
                self._publish_guess(self._guesser.on_final(frame.text))
                self._publish_continued()
            if not self._endpointer.is_owed:
                await self._conclude_words()
        elif isinstance(frame, WordsOwedFrame):
            self._endpointer.on_words_owed(frame.is_owed)
            if not frame.is_owed:
                self._words_came.set()
                await self._conclude_words()
        elif isinstance(frame, InterimTranscriptionFrame) and self._guesser is not None:
            self._publish_guess(self._guesser.on_partial(frame.text))
            self._publish_continued()
        return ProcessFrameResult.CONTINUE

    async def _conclude_words(self) -> None:
        """Decide by the words that have come. A turn that the caller has ended waits for no more."""
        if self._finisher is not None and self._in_turn and not self._voice and self._endpointer.text:
            await self.trigger_user_turn_stopped()
        else:
            await self._rearm()

    async def take_up(self) -> None:
        """Take up a turn that began late, or is valid after all: its end may already be near."""
        self._is_abandoned = False
        await self._rearm()

    async def forget(self) -> None:
        """Forget the sound and words since the last turn: they were not meant."""
        if not self._in_turn:
            if self._guesser is not None:
                self._guesser.reset()
            self._endpointer.reset()
            await self._drop_conclusions()

    async def abandon(self) -> None:
        """Abandon the open turn: it ends without words, now or as soon as the voice does."""
        if not self._in_turn:
            await self.forget()
            return
        if self._guesser is not None and self._guesser.on_abandoned():
            self._withdraw_guess()
        self._endpointer.reset()
        await self._drop_conclusions()
        self._is_abandoned = True
        if not self._voice:
            await self.trigger_user_turn_stopped()

    def _on_turn_end_requested(self, event: TurnEndRequested) -> None:
        if self._is_set_up:
            work = self._finish_turn() if event.waits_for_words else self._end_turn()
            self._ender = self.task_manager.create_task(work, f"{self}::end")

    async def _end_turn(self) -> None:
        """End the open turn now, with the words so far."""
        if self._in_turn:
            await self.trigger_user_turn_stopped()

    async def _finish_turn(self) -> None:
        """End the turn with the words that are on their way."""
        await self._cancel_finisher()
        self._finisher = self.task_manager.create_task(self._finish(), f"{self}::finish")

    async def _finish(self) -> None:
        for _ in range(FINISH_LOOKS):
            await self._clock.sleep_until_ms(self._clock.now_ms() + FINISH_LOOK_MS)
        if self._endpointer.is_owed:
            self._words_came.clear()
            try:
                async with asyncio.timeout(MOST_OWED_S):
                    await self._words_came.wait()
            except TimeoutError:
                # The next turn does not wait for them again.
                self._endpointer.on_words_owed(False)
        self._finisher = None
        await self._end_turn()

    async def _cancel_finisher(self) -> None:
        finisher, self._finisher = self._finisher, None
        if finisher is not None and finisher is not asyncio.current_task():
            await self.task_manager.cancel_task(finisher)

    def hear(self, pcm: bytes) -> None:
        """Add a piece of the caller's audio, 16-bit at the pipeline's rate."""
        keep = self._model.max_samples * PCM_BYTES_PER_SAMPLE if self._model else 0
        if not self._voice and not self._is_overheard and self._endpointer.next_deadline_ms() is None:
            keep = PRE_SPEECH_MS * self._rate_hz // 1000 * PCM_BYTES_PER_SAMPLE
        self._pause.hear(pcm)
        self._heard_bytes += len(pcm)
        self._audio += pcm
        if len(self._audio) > keep:
            del self._audio[: len(self._audio) - keep]

    def overhear(self, pcm: bytes) -> None:
        """Add audio of the turn that came before the call had this stage; its voice marks follow."""
        self._is_overheard = True
        self._audio += pcm

    def _on_voice_suspected(self, _event: VoiceSuspected) -> None:
        self._endpointer.on_maybe_voice(self._clock.now_ms())

    def _on_voice_paused(self, _event: VoicePaused) -> None:
        """Start the model while voice activity confirms the silence."""
        if self._guesser is not None and self._voice:
            self._publish_guess(self._guesser.on_pause())
        if self._model is None or not self._voice:
            return
        self._early = None
        self._has_voice_end = False
        if self._inference is not None:
            # The answer about an earlier pause is useless now; its thread may finish.
            self._inference.cancel()
        self._start_inference(self._model, bytes(self._audio), Occasion.PAUSE, self._heard_ms)

    def _on_voice_resumed(self, _event: VoiceResumed) -> None:
        if self._guesser is not None:
            self._guesser.on_resume()

    def _publish_guess(self, guess: str | None) -> None:
        if guess is not None:
            self._events.publish(TurnGuessed(self._events.now_ms(), guess))

    def _withdraw_guess(self) -> None:
        self._events.publish(GuessWithdrawn(self._events.now_ms()))

    def _publish_continued(self) -> None:
        said = self._guesser.so_far if self._guesser is not None else None
        if said is not None:
            self._events.publish(TurnContinued(self._events.now_ms(), said))

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        """Register the bot's last words, which the caller answers."""
        self._endpointer.on_bot_said(event.text)

    async def _conclude_pause(self) -> None:
        if self._model is None:
            return
        if self._early is not None and self._is_enough(self._early):
            self._complete(self._early)
        elif self._early is not None or self._inference is None:
            self._start_inference(self._model, self._confirmed, Occasion.CONFIRMED, self._confirmed_ms)

    @property
    def _heard_ms(self) -> int:
        return self._heard_bytes // PCM_BYTES_PER_SAMPLE * 1_000 // self._rate_hz

    def _start_inference(self, model: TurnCompleteness, pcm: bytes, look: Occasion, heard_ms: int) -> None:
        work = self._infer(model, pcm, look, heard_ms)
        self._inference = self.task_manager.create_task(work, f"{self}::completeness")

    async def _infer(self, model: TurnCompleteness, pcm: bytes, look: Occasion, heard_ms: int) -> None:
        loop = asyncio.get_running_loop()
        asked_in_voice = self._voice
        wants_voice_end = self._endpointer.wants_voice_end and not self._has_voice_end

        def measure() -> tuple[TurnEstimate, VoiceEnd | None]:
            audio = pcm16_to_float(pcm)
            last = audio[-VOICE_END_MS * self._rate_hz // 1000 :]
            return model.estimate(audio), voice_end(last, self._rate_hz) if wants_voice_end else None

        try:
            estimate, end = await loop.run_in_executor(self._executor, measure)
        except EngineError as error:
            logger.warning(f"{self}: the turn model failed, ending turns by time alone: {error}")
            return
        self._inference = None
        if self._estimates is not None:
            estimate = self._estimates.settled(estimate, look, heard_ms)
        # Taken from an early look too, and once: the silence that follows does not change the voice.
        if end is not None:
            self._has_voice_end = True
            self._endpointer.on_voice_end(end)
        if self._voice:
            self._early = estimate
        elif asked_in_voice and not self._is_enough(estimate):
            self._start_inference(model, self._confirmed, Occasion.CONFIRMED, self._confirmed_ms)
        else:
            self._complete(estimate)
            await self._rearm()

    def _is_enough(self, estimate: TurnEstimate) -> bool:
        """Return whether an estimate from before the silence was confirmed makes a second one unnecessary."""
        return self._endpointer.is_complete(estimate.complete, filler_log_odds=estimate.filler_log_odds)

    def _complete(self, estimate: TurnEstimate) -> None:
        self._endpointer.on_completeness(estimate.complete, filler_log_odds=estimate.filler_log_odds)
        self._events.publish(PauseJudged(self._events.now_ms(), estimate.complete))

    async def _rearm(self) -> None:
        await self._cancel_timer()
        deadline_ms = self._endpointer.next_deadline_ms()
        is_due = deadline_ms is not None and self._in_turn and not self._is_abandoned
        self._events.publish(TurnEndDue(self._events.now_ms(), deadline_ms if is_due else None))
        if deadline_ms is None or not is_due:
            return
        if deadline_ms <= self._clock.now_ms() and not self._pause.is_late(self._rate_hz):
            await self._decide()
            return
        look_ms = self._endpointer.next_look_ms() if self._model is not None else None
        self._timer = self.task_manager.create_task(self._wait(deadline_ms, look_ms), f"{self}::deadline")

    async def _wait(self, deadline_ms: int, look_ms: int | None) -> None:
        if look_ms is not None and look_ms < deadline_ms:
            await self._clock.sleep_until_ms(look_ms)
            self._look_again()
        await self._clock.sleep_until_ms(deadline_ms)
        await self._pause.catch_up(self._rate_hz, due_ms=deadline_ms)
        self._timer = None
        await self._decide()

    def _look_again(self) -> None:
        """Start the model once more; the timer continues, and the answer sets it again.

        While the model still runs, its answer belongs to the look before. That answer sets the timer, which
        comes back here at once.
        """
        if self._model is not None and self._inference is None:
            self._endpointer.on_look(self._clock.now_ms())
            self._start_inference(self._model, bytes(self._audio), Occasion.LATER, self._heard_ms)

    async def _decide(self) -> None:
        endpoint = self._endpointer.on_deadline(self._clock.now_ms())
        if endpoint is None:
            # The deadline was rounded below the clock's resolution: try again at the new one.
            await self._rearm()
            return
        self._events.publish(
            TurnEndDecided(
                self._events.now_ms(), endpoint.silence_ms, endpoint.completeness, endpoint.kind.value
            )
        )
        await self.trigger_user_turn_stopped()

    async def _drop_conclusions(self) -> None:
        await self._cancel_timer()
        await self._cancel_inference()

    async def _cancel_timer(self) -> None:
        # Another task may set a timer while this one ends: none may be left over.
        while (timer := self._timer) is not None:
            self._timer = None
            if timer is not asyncio.current_task():
                await self.task_manager.cancel_task(timer)

    async def _cancel_inference(self) -> None:
        inference, self._inference = self._inference, None
        if inference is not None and inference is not asyncio.current_task():
            await self.task_manager.cancel_task(inference)


def _last_word_confidence(frame: TranscriptionFrame) -> float:
    """Return the confidence of the last word; 1.0 from a recogniser that does not report it."""
    transcript = frame.result
    if isinstance(transcript, Transcript) and transcript.words:
        return transcript.words[-1].confidence
    return 1.0
