"""Who interrupts whom: the Pipecat shell of ``turn_taking.barge_in``, and the start of every user turn.

In: voice activity and transcripts, as the user aggregator shows them to a start strategy; early looks at how
a voice sounds (``looks``); and as events the first sign of a voice and of its end, what becomes of every
reply, that an answer is owed. Out: the start of the caller's turn, at once while no reply is on or on its
way, and when the machine says ``Cut`` otherwise; the bot's volume; after an interruption for nothing the rest
of the reply; and every decision as an event.

One flush: a turn that starts has the user aggregator broadcast Pipecat's ``InterruptionFrame``, and each
holder of pending output drops its own. Nothing else here drops anything.

Words over a reply are in the aggregator already when it is known what they are. Those that were not meant
("mhm") are taken back there, in the endpointer and in perception, so that they neither begin a turn nor stand
in the next one. A turn that began over a reply and has none but such words ends without an answer.

What is said after a cut for nothing: the words that are known and were not heard, from the exact word. Where
the model had not written its answer to the end, or not begun, it is asked again: its context says what was
heard.

Owns one task, which keeps the machine's deadlines, asks whether a voice is the bot's own, and carries out
what was decided where nobody can wait; it ends with the strategy. Nothing waits here but for the books of a
reply that was just cut (``BOOKS_MS``).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from loguru import logger
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.types import ProcessFrameResult
from pipecat.turns.user_start.base_user_turn_start_strategy import BaseUserTurnStartStrategy
from pipecat.utils.time import time_now_iso8601

from core.call_events import (
    BotTurnEnded,
    CallEvent,
    ClauseAnnounced,
    ReplyAnnounced,
    ReplyCut,
    ReplyDucked,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyRestored,
    ReplyResumed,
    ReplyStarted,
    ReplyWritten,
    ToolsCalled,
    VoicePaused,
    VoiceSuspected,
    Wait,
    WaitBegan,
    WaitEnded,
    WordsDiscarded,
)
from core.clock import Clock
from core.timeline import HeardReply
from models.stt import Transcript
from processors.turns.endpoint import NOT_MEANT, EndpointStopStrategy
from processors.turns.looks import VoiceLooks
from processors.turns.stop_words import StopWords
from runtime.event_stream import CallEvents
from runtime.loop_clock import LoopClock
from turn_taking.barge_in import BargeIn
from turn_taking.barge_in_table import Cut, Decision, Duck, Restore, Resume, State
from turn_taking.usual_level import UsualLevel
from turn_taking.utterances import asks

# An interruption has passed the output, where it is known what was heard, within a few milliseconds.
BOOKS_MS = 500
# And is recorded after the output; a reply that is not for the context has no record.
RECORDED_MS = 30
# A voice lasts as long as its audio does. When voice activity is behind by more than a window and a frame, a
# voice that has ended long ago may look as if it went on: its verdict waits, but no longer than this.
AUDIO_LATE_MS = 60
AUDIO_WAIT_MS = 500
LATE_LOOK_MS = 20
# What is spotted so long behind the end of its voice stops nothing any more.
COMMAND_LATE_MS = 1_500
# The check for the bot's own voice looks back as far (``SelfVoiceSettings.look_ms``): sooner it would judge
# what was heard before the voice.
OWN_VOICE_MS = 320
# Behind a reply for so long its echo may still be heard.
ECHO_OVER_MS = 200


class BargeInStartStrategy(BaseUserTurnStartStrategy):
    """The only start strategy of ``LLMUserAggregatorParams.user_turn_strategies``.

    Args:
        machine: the interruptions of this call.
        events: of the call.
        endpoint: what ends the turns that begin here.
        set_gain_db: the bot's volume; must not block.
        interrupt: interrupts the bot inside of an open turn: the aggregator's ``broadcast_interruption``.
        heard_ms: how much of the caller's audio voice activity has judged; None takes it for in time.
        level_db: how loud the present voice has been so far, dBFS; None where nobody measures it.
        is_own: whether what was heard last is the bot's own voice; None when that is not known.
        are_own: whether words are what the bot said a moment ago.
        stop_words: listens for them in voices over a reply; closed with the strategy.
        looks: looks at the beginnings of voices over a reply; closed with the strategy.
    """

    def __init__(
        self,
        machine: BargeIn,
        events: CallEvents,
        *,
        endpoint: EndpointStopStrategy,
        set_gain_db: Callable[[float], None],
        interrupt: Callable[[], Awaitable[None]],
        heard_ms: Callable[[], int] | None = None,
        level_db: Callable[[], float | None] | None = None,
        is_own: Callable[[], bool | None] | None = None,
        are_own: Callable[[str], bool] | None = None,
        stop_words: StopWords | None = None,
        looks: VoiceLooks | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self._machine = machine
        self._endpoint = endpoint
        self._set_gain_db = set_gain_db
        self._events = events
        self._interrupt = interrupt
        self._heard_ms = heard_ms
        self._level_db = level_db
        self._usual = UsualLevel()
        self._is_own = is_own
        self._are_own = are_own
        self._stop_words = stop_words
        self._looks = looks
        self._clock: Clock = clock or LoopClock()
        self._timer: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._todo: deque[Decision] = deque()
        # The endpointer has heard a voice that was not meant.
        self._is_stale = False
        # The caller speaks; final words have come since, and when voice activity reported the last end.
        self._is_voiced = self._has_final = False
        self._started_ms = self._stopped_ms = 0
        # A command that was spotted, and until when other words of the same voice are waited for.
        self._command: tuple[str, int] | None = None
        # The last final words claim nothing or are a guess, and nothing else was said in the turn: a command
        # replaces them.
        self._is_guessed = self._replaces_words = False
        # The open turn had words that were meant before the last voice.
        self._had_words = False
        # Words wait for the spotter; what it says of the voices up to this one is too late.
        self._waits_for_spotter = False
        self._answered_voice = 0
        # The final words that are being looked at.
        self._words: TranscriptionFrame | None = None
        # When the present voice was noticed, and how much had been heard by then; the verdict about it is not
        # due before.
        self._noticed_ms = (0, 0)
        self._not_before_ms = 0
        # The next look for the bot's own voice.
        self._look_ms: int | None = None
        # The caller's turn: open, begun by a voice over a reply, with words that were meant, none after all.
        self._in_turn = False
        self._began_over_reply = False
        self._has_words = False
        self._is_void = False
        # Words that were meant and came over a reply that may not be interrupted: a turn when it is over.
        self._has_held_words = False
        # The last voice began while a reply was on, and when the last reply was over.
        self._over_reply = False
        self._over_ms = 0
        # A reply was heard while the present voice was on: its level may be the bot's.
        self._met_reply = False
        # The bot's replies that are not over, those the model still writes, and the answer that is owed.
        self._open: dict[str, bool] = {}
        self._unwritten: set[str] = set()
        self._waiting = self._tools_run = False
        self._names = 0
        self._answer_id = self._rest_id = ""
        # Of the last cut: which reply, what became of all that it met, and whether an answer was lost.
        self._cut_id: str | None = None
        self._lost: list[HeardReply] = []
        self._lost_answer = False
        self._books = asyncio.Event()
        events.subscribe(VoiceSuspected, self._on_voice_suspected)
        events.subscribe(VoicePaused, self._on_voice_paused)
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

    @property
    def holds_reply(self) -> bool:
        """Whether a reply is on, on its way, or about to be said on: nobody need explain a silence."""
        return self._machine.state is not State.LISTENING

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own base
        await super().setup(setup)
        self._machine.on_echo_path_changed(self._clock.now_ms())
        self._timer = self.task_manager.create_task(self._keep_time(), f"{self}::time")

    async def cleanup(self) -> None:
        await super().cleanup()
        if self._stop_words is not None:
            self._stop_words.close()
        if self._looks is not None:
            self._looks.close()
        timer, self._timer = self._timer, None
        if timer is not None:
            await self.task_manager.cancel_task(timer)

    async def handle_user_turn_started(self) -> None:
        self._in_turn = True
        self._began_over_reply = self._over_reply
        self._has_words = self._has_held_words
        self._has_held_words = self._is_void = False

    async def handle_user_turn_stopped(self) -> None:
        if not self._is_void:
            # The turn is answered: what is spotted of its voices now must not cut that answer.
            self._answered_voice = self._machine.voice_number - self._is_voiced
            self._machine.on_turn_ended()
            self._waits_for_spotter = False
        self._in_turn = self._over_reply = self._is_void = False
        self._command = None

    # What the caller does.

    def _on_voice_suspected(self, _event: VoiceSuspected) -> None:
        self._follow_audio()
        self._note(self._machine.on_maybe_voice(self._clock.now_ms()))

    def _on_voice_paused(self, _event: VoicePaused) -> None:
        self._machine.on_maybe_quiet(self._clock.now_ms())

    async def process_frame(self, frame: Frame) -> ProcessFrameResult:
        if isinstance(frame, VADUserStartedSpeakingFrame):
            now_ms, voiced_ms = self._clock.now_ms(), int(frame.start_secs * 1000)
            self._follow_audio()
            self._is_voiced = True
            self._over_reply = self.holds_reply or now_ms - voiced_ms <= self._over_ms
            self._met_reply = self.holds_reply
            self._look_ms = now_ms - voiced_ms + OWN_VOICE_MS if self._is_own is not None else None
            if self._stop_words is not None and self.holds_reply:
                self._stop_words.on_voice_started(voiced_ms)
            self._started_ms = now_ms - voiced_ms
            await self._carry_out(self._machine.on_voice_started(now_ms, voiced_ms=voiced_ms))
            self._tell_level()
            if self._looks is not None and self._machine.state is State.ARMED:
                self._looks.on_voice_started(voiced_ms, partial(self._on_look, self._machine.voice_number))
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._look_ms = None
            if self._looks is not None:
                self._looks.on_voice_over()
            self._is_voiced, self._stopped_ms = False, self._clock.now_ms()
            self._has_final = self._is_guessed = False
            self._had_words = self._in_turn and self._has_words
            silence_ms = int(frame.stop_secs * 1000)
            self._tell_level(learns_of_ms=self._stopped_ms - silence_ms - self._started_ms)
            if self._stop_words is not None:
                # Nobody is to be stopped any more where the caller has the floor.
                spotted = partial(self._on_spotted, self._machine.voice_number, self._stopped_ms)
                if self._stop_words.on_voice_stopped(spotted if self.holds_reply else None):
                    self._machine.on_spotting()
            await self._carry_out(self._machine.on_voice_stopped(self._clock.now_ms(), silence_ms=silence_ms))
            # Nothing hangs on it any more; the stop strategy is shown its end next.
            self._is_stale = self._machine.state is State.REPLYING
        elif isinstance(frame, TranscriptionFrame):
            self._words = frame
            await self._final_words(frame)
            self._words = None
        elif isinstance(frame, InterimTranscriptionFrame):
            await self._words_so_far(frame)
        else:
            return ProcessFrameResult.CONTINUE
        await self._give_floor()
        self._wake.set()
        return ProcessFrameResult.CONTINUE

    def _on_look(self, voice: int, look: int, log_odds: float) -> None:
        """The beginning of a voice sounds so; the cut that may follow is the task's."""
        self._tell_level()
        self._note(self._machine.on_look(self._clock.now_ms(), look, log_odds, voice=voice))
        if self._looks is not None and self._machine.state is not State.ARMED:
            self._looks.on_voice_over()

    def _on_spotted(self, voice: int, stopped_ms: int, heard: Transcript) -> None:
        """A voice that stopped then was this command or none, whatever the recogniser makes of it."""
        now_ms, machine = self._clock.now_ms(), self._machine
        command, floor = heard.text, heard.floor_log_odds
        if now_ms - stopped_ms > COMMAND_LATE_MS:
            logger.debug(f"{self}: {command!r} was spotted too late, after {now_ms - stopped_ms} ms")
            return
        if voice <= self._answered_voice:
            return
        was_cut, waited = machine.state is State.CUT, machine.holds_words
        decision = machine.on_spotted(now_ms, command, voice=voice, floor_log_odds=floor)
        is_taken_up = isinstance(decision, Cut) or (was_cut and machine.state is State.LISTENING)
        if machine.spotted_command and (is_taken_up or (waited and not machine.holds_words)):
            # The recogniser's words of it are there or about to come, unless they were of another voice.
            waits = stopped_ms == self._stopped_ms and not self._has_final and not self._is_voiced
            # Words that were meant and waited for a protected reply, or stand in a turn that is open, stay.
            self._replaces_words = not self._has_held_words and not self._had_words
            self._command = command, stopped_ms + machine.settings.words_wait_ms if waits else now_ms
        self._note(decision)

    async def _say_command(self) -> None:
        """The command stands in the turn as its words: otherwise it would end without any."""
        if self._command is not None:
            (text, _), self._command = self._command, None
            if self._is_guessed and self._replaces_words and not self._is_voiced:
                await self._take_back()
            await self.push_frame(
                TranscriptionFrame(text=text, user_id="", timestamp=time_now_iso8601(), finalized=True)
            )

    def _tell_level(self, *, learns_of_ms: int | None = None) -> None:
        """How loud the present voice is beside the caller's usual one; at its end that one is learnt."""
        level_db = self._level_db() if self._level_db is not None else None
        if level_db is None:
            return
        beside_db = self._usual.beside(level_db)
        if beside_db is not None:
            decision = self._machine.on_level(self._clock.now_ms(), beside_db)
            if decision is not None:
                # Nothing that the task of the deadlines asks for may wake it.
                self._note(decision)
        is_alone = not self._met_reply and self._started_ms - self._over_ms > ECHO_OVER_MS
        if learns_of_ms is not None and is_alone:
            self._usual.learn(level_db, voiced_ms=learns_of_ms)

    def _echoes(self, text: str) -> bool:
        """Whether words that came over a reply are the reply's."""
        return self._over_reply and self._are_own is not None and self._are_own(text)

    async def _words_so_far(self, frame: InterimTranscriptionFrame) -> None:
        if self._echoes(frame.text):
            return
        if self._is_voiced:
            self._tell_level()
        decision = self._machine.on_partial(
            self._clock.now_ms(), frame.text, confidences=_confidences(frame.text, frame.result)
        )
        await self._carry_out(decision)
        if isinstance(decision, Cut):
            await self._endpoint.take_up()
        if not self._in_turn and not self._over_reply and self._machine.state is State.LISTENING:
            await self.trigger_user_turn_started()

    async def _final_words(self, frame: TranscriptionFrame) -> None:
        # What is known of the words before these comes first.
        await self._settle_words()
        if self._echoes(frame.text) and not self._in_turn:
            await self._carry_out(self._machine.on_self_voice(self._clock.now_ms(), own=True))
            await self._take_back()
            return
        decision = self._machine.on_final(
            self._clock.now_ms(), frame.text, confidences=_confidences(frame.text, frame.result)
        )
        await self._carry_out(decision)
        self._has_final, self._is_guessed = not self._is_voiced, self._machine.last_is_guess
        kind = self._machine.last_kind
        if self._command is not None and self._in_turn:
            if self._is_guessed:
                # The recogniser's best guess at what was a command.
                NOT_MEANT.put(frame, True)
                await self._say_command()
                return
            self._command = None
        is_idle = kind is None or kind.leaves_floor
        if self._in_turn:
            if self._is_void:
                await self._take_back()
            elif (
                is_idle
                and self._began_over_reply
                and not (self._has_words or self._machine.holds_words)
                and not self.holds_reply
            ):
                # It was only a sign of listening, and the reply ended under it.
                await self._abandon_turn()
            elif self._machine.holds_words:
                self._waits_for_spotter = True
            else:
                self._has_words = True
        elif self._machine.holds_words:
            # Whether they are meant is known when the voice has been listened to once more.
            self._waits_for_spotter = True
        elif self._machine.state in (State.LISTENING, State.CUT):
            if is_idle and self._over_reply:
                await self._take_back()
            else:
                await self.trigger_user_turn_started()
                self._has_words = not is_idle
        elif self._machine.state is State.PROTECTED and not is_idle:
            self._has_held_words = True
        elif is_idle or self._over_reply:
            await self._take_back()
        else:
            # Of the turn before, and late: they are answered with it.
            await self.trigger_user_turn_started()

    async def _give_floor(self) -> None:
        """The caller speaks, or has spoken, and nobody else does: it is their turn."""
        await self._settle_words()
        if self._in_turn:
            return
        if self._machine.caller_has_floor:
            await self.trigger_user_turn_started()
        elif self._has_held_words and self._machine.state is State.LISTENING:
            await self.trigger_user_turn_started()
            await self._endpoint.take_up()

    async def _settle_words(self) -> None:
        """What becomes of words that waited for the spotter, where no cut has begun their turn."""
        if not self._waits_for_spotter or self._machine.holds_words or self._todo:
            return
        self._waits_for_spotter = False
        meant, state = self._machine.take_verdict(), self._machine.state
        if meant is None:
            return
        if self._in_turn:
            self._has_words = self._has_words or meant
        elif meant and state is State.PROTECTED:
            await self._say_command()
            self._has_held_words = True
        elif meant:
            await self.trigger_user_turn_started()
            self._has_words = True
            if self._command is None:
                # Otherwise the turn is taken up with the command, which replaces the words.
                await self._endpoint.take_up()
        else:
            await self._take_back()

    # What the bot does.

    def _on_wait_began(self, event: WaitBegan) -> None:
        if event.reason is Wait.ANSWER:
            self._waiting, self._tools_run = True, False
            self._answer_id = self._new_id("answer")
            self._note(self._machine.on_reply(self._clock.now_ms(), self._answer_id))

    def _on_wait_ended(self, event: WaitEnded) -> None:
        if event.reason is Wait.ANSWER:
            self._waiting, self._tools_run = False, False
            self._note(self._machine.on_bot_stopped(self._clock.now_ms(), self._answer_id))
            self._announce_next()

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        """The answer follows tools that run now, whatever was said before them."""
        self._tools_run = True
        if not self._waiting:
            self._answer_id = self._new_id("answer")
            self._announce_next()

    @property
    def _is_owed(self) -> bool:
        return self._waiting or self._tools_run

    def _on_reply_opened(self, event: ReplyOpened) -> None:
        self._tools_run = False
        self._unwritten.add(event.reply_id)
        self._on_reply_coming(event.reply_id, protected=False)

    def _on_reply_written(self, event: ReplyWritten) -> None:
        self._unwritten.discard(event.reply_id)

    def _on_reply_announced(self, event: ReplyAnnounced) -> None:
        self._on_reply_coming(event.reply_id, protected=event.protected)

    def _on_reply_coming(self, reply_id: str, *, protected: bool) -> None:
        protected = protected or self._open.get(reply_id, False)
        self._open[reply_id] = protected
        self._note(self._machine.on_reply(self._clock.now_ms(), reply_id, protected=protected))

    def _on_clause_announced(self, event: ClauseAnnounced) -> None:
        self._machine.on_saying(event.reply_id, event.text)

    def _on_reply_started(self, event: ReplyStarted) -> None:
        now_ms, reply_id = self._clock.now_ms(), event.reply_id
        self._met_reply = True
        protected = self._open.setdefault(reply_id, False)
        if not self._machine.is_ducked:
            # What an interruption left of a duck ends with the reply that it ended.
            self._set_gain_db(0.0)
        self._note(self._machine.on_bot_started(now_ms, reply_id, protected=protected))
        if self._is_owed:
            self._note(self._machine.on_reply(now_ms, self._answer_id))

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
        # The rest of it may be waited for already.
        if self._machine.state is State.CUT or reply_id == self._cut_id:
            self._lost.append(reply)
            if self._cut_id is not None:
                last_word = reply.mark.last_word if reply_id == self._cut_id else -1
                self._machine.on_heard(self._cut_id, last_word, is_rest_heard=not self._is_rest_left())
            self._books.set()
        self._over_ms = now_ms
        self._note(self._machine.on_bot_stopped(now_ms, reply_id))
        self._announce_next()

    def _announce_next(self) -> None:
        """A reply is over: another one may be on its way that the machine has lost sight of."""
        if self._machine.state is not State.LISTENING:
            return
        now_ms = self._clock.now_ms()
        if self._open:
            reply_id, protected = next(reversed(self._open.items()))
            self._note(self._machine.on_reply(now_ms, reply_id, protected=protected))
        elif self._is_owed:
            self._note(self._machine.on_reply(now_ms, self._answer_id))

    # Decisions.

    def _note(self, decision: Decision | None) -> None:
        """What is decided where nobody can wait: the volume at once, the rest in the task."""
        if isinstance(decision, (Duck, Restore)):
            self._change_volume(decision)
        elif decision is not None:
            self._todo.append(decision)
        self._wake.set()

    def _change_volume(self, decision: Duck | Restore) -> None:
        self._tell(decision)
        self._set_gain_db(decision.gain_db if isinstance(decision, Duck) else 0.0)

    async def _carry_out(self, decision: Decision | None) -> None:
        if isinstance(decision, (Duck, Restore)):
            self._change_volume(decision)
            if isinstance(decision, Restore) and self._machine.state is State.REPLYING and not self._in_turn:
                await self._take_back()
        elif isinstance(decision, Cut):
            await self._cut(decision)
        elif decision is not None:
            await self._say_rest(decision)

    async def _cut(self, cut: Cut) -> None:
        self._tell(cut)
        self._cut_id = cut.reply_id
        if cut.reply_id is None or cut.reply_id != self._rest_id:
            # Otherwise the rest of the reply before was cut when nothing of it was on its way yet.
            self._lost, self._lost_answer = [], self._is_owed or bool(self._unwritten)
        self._tools_run = False
        self._books.clear()
        if not self._in_turn:
            if self._command is not None and self._is_guessed and self._replaces_words:
                # Nobody is to end the turn with them before the command is said.
                await self._endpoint.forget()
            await self.trigger_user_turn_started()
        else:
            self._is_void = False
            await self._interrupt()
            await self._endpoint.take_up()

    async def _say_rest(self, resume: Resume) -> None:
        """The cut was for nothing: say what it took, or have it answered again."""
        self._tell(resume)
        self._rest_id = self._new_id("rest")
        self._machine.on_reply(self._clock.now_ms(), self._rest_id)
        await self._wait_for_books(resume.reply_id)
        if self._in_turn and self._began_over_reply:
            await self._abandon_turn()
        unheard = [reply for reply in self._lost if reply.truncated and reply.unheard]
        if self._lost_answer:
            await self.push_frame(LLMRunFrame())
        elif unheard:
            # A phrase that passed the time is not said again where an answer is.
            for reply in [each for each in unheard if each.in_context] or unheard:
                await self.push_frame(TTSSpeakFrame(reply.unheard, append_to_context=reply.in_context))
        else:
            self._note(self._machine.on_bot_stopped(self._clock.now_ms(), self._rest_id))

    async def _take_up(self) -> None:
        """Nobody else asks for the end of a turn whose words were there before it, unless a command is about
        to take their place. It may be due at once, and the reply that it cut stands before it.
        """
        await self._wait_for_books(self._cut_id)
        await self._events.wait_for(BotTurnEnded, within_ms=RECORDED_MS)
        if self._command is None:
            await self._endpoint.take_up()

    async def _wait_for_books(self, reply_id: str | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BOOKS_MS / 1000):
                while reply_id in self._open:
                    self._books.clear()
                    await self._books.wait()

    def _is_rest_left(self) -> bool:
        return self._lost_answer or any(reply.truncated and reply.unheard for reply in self._lost)

    async def _abandon_turn(self) -> None:
        self._is_void = True
        await self._take_back()
        await self._endpoint.abandon()

    async def _take_back(self) -> None:
        """What was understood since the last turn was not meant."""
        if self._has_held_words or self._machine.holds_words:
            return
        if self._words is not None:
            # The stop strategy is shown them next.
            NOT_MEANT.put(self._words, True)
        await self.trigger_reset_aggregation()
        self._events.publish(WordsDiscarded(self._events.now_ms()))
        await self._endpoint.forget()

    def _tell(self, decision: Decision) -> None:
        logger.debug(f"{self}: {decision}")
        self._events.publish(_event_of(decision))

    def _new_id(self, kind: str) -> str:
        """Of a reply that has none yet."""
        self._names += 1
        return f"{kind}.{self._names}"

    # Time.

    async def _keep_time(self) -> None:
        while True:
            await self._until_due()
            while self._todo:
                noted = self._todo.popleft()
                await self._carry_out(noted)
                if isinstance(noted, Cut):
                    await self._take_up()
            now_ms = self._clock.now_ms()
            if self._look_ms is not None and now_ms >= self._look_ms:
                self._look_ms = now_ms + OWN_VOICE_MS
                own = self._is_own() if self._is_own is not None and self.holds_reply else None
                if own is not None:
                    await self._carry_out(self._machine.on_self_voice(now_ms, own=own))
            if self._is_voiced:
                self._tell_level()
            decision = None if self._is_audio_late(now_ms) else self._machine.on_deadline(now_ms)
            await self._carry_out(decision)
            if isinstance(decision, Cut):
                await self._take_up()
            await self._give_floor()
            if self._command is not None and now_ms >= self._command[1]:
                await self._say_command()
            if self._is_stale:
                self._is_stale = False
                await self._endpoint.forget()

    def _follow_audio(self) -> None:
        self._noticed_ms = self._clock.now_ms(), self._heard_ms() if self._heard_ms is not None else 0

    def _is_audio_late(self, now_ms: int) -> bool:
        """Whether the voice may have ended in audio that nobody has judged yet."""
        due_ms = self._machine.next_deadline_ms()
        if self._heard_ms is None or due_ms is None or self._machine.state is not State.ARMED:
            return False
        noticed_ms, heard_ms = self._noticed_ms
        late_ms = (now_ms - noticed_ms) - (self._heard_ms() - heard_ms)
        if late_ms <= AUDIO_LATE_MS or now_ms >= due_ms + AUDIO_WAIT_MS:
            return False
        self._not_before_ms = now_ms + LATE_LOOK_MS
        return True

    async def _until_due(self) -> None:
        """Return at the next deadline, or when something has happened."""
        due_ms = self._machine.next_deadline_ms()
        if due_ms is not None:
            due_ms = max(due_ms, self._not_before_ms)
        command_ms = self._command[1] if self._command is not None else None
        dues_ms = [due for due in (due_ms, self._look_ms, command_ms) if due is not None]
        left_ms = min(dues_ms) - self._clock.now_ms() if dues_ms else None
        with suppress(TimeoutError):
            async with asyncio.timeout(None if left_ms is None else max(0, left_ms) / 1000):
                await self._wake.wait()
        self._wake.clear()


def _confidences(text: str, result: object) -> tuple[float, ...]:
    """How well each word was understood; nothing from a recogniser that does not say."""
    if not isinstance(result, Transcript):
        return ()
    if len(result.words) == len(text.split()):
        return tuple(word.confidence for word in result.words)
    # A partial of an engine of ours has no words and no confidence: it confirms nothing.
    return (result.confidence,)


def _event_of(decision: Decision) -> CallEvent:
    match decision:
        case Duck(at_ms=at_ms):
            return ReplyDucked(at_ms)
        case Restore(at_ms=at_ms):
            return ReplyRestored(at_ms)
        case Cut(at_ms=at_ms, reason=reason, voice_ms=voice_ms):
            return ReplyCut(at_ms, reason.value, voice_ms)
        case Resume(at_ms=at_ms, from_word=from_word):
            return ReplyResumed(at_ms, from_word)
