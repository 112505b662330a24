"""Measure the caller's voice for barge-in: its level, its origin, and the engines' results about it.

Inputs: the beginning and end of a voice, from the start strategy; its first sign and its pauses, as events;
its level and its audio, as voice activity has judged them. Output: the facts that the machine needs about it.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from parley.core.call_events import ReplyFinished, ReplyStarted, VoicePaused, VoiceSuspected
from parley.core.clock import Clock
from parley.models.stt import Transcript
from parley.processors.turns.looks import EarlyLooks
from parley.processors.turns.over_bot.decisions import DecisionQueue
from parley.processors.turns.stop_words import StopWordSpotter
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.speaker_level import SpeakerLevel
from parley.turn_taking.barge_in.table import BargeInState, Decision

# A voice lasts as long as its audio does. When voice activity is late by more than a window and a frame, a
# voice that ended long ago may seem to continue: the decision about it waits, but no longer than this from
# the first look at it. After a stop of the process that is later than the decision was due.
AUDIO_LATE_MS = 60
AUDIO_WAIT_MS = 500
LATE_LOOK_MS = 20
# The check for the bot's own voice looks back as far (``SelfVoiceSettings.look_ms``): earlier it would judge
# sound from before the voice.
OWN_VOICE_MS = 320
# For so long after a reply its echo may still be audible.
ECHO_OVER_MS = 200


class CallerSound(Protocol):
    """Sound of the caller, as voice activity and echo control measure it. No method may block."""

    @property
    def finds_own(self) -> bool:
        """True where the bot's own voice can be distinguished from the caller's."""
        ...

    def heard_ms(self) -> int | None:
        """Return how much of the audio voice activity has judged; None: it counts as never late."""
        ...

    def level_db(self) -> float | None:
        """Return the level of the present voice so far, dBFS; None where it is not measured."""
        ...

    def is_own(self) -> bool | None:
        """Return whether the last sound is the bot's own voice; None when that is not known."""
        ...

    def are_own(self, text: str) -> bool:
        """Return whether words are the bot's own of a moment ago."""
        ...


class VoiceOverBot:
    """The caller's voice in one call.

    Args:
        machine: barge-in state machine of this call.
        events: events of the call.
        decisions: destination of decisions.
        clock: clock of the event loop.
        sound: sound of the caller.
        stop_words: spots commands in voices over a reply.
        looks: takes early looks at voices over a reply.

    Attributes:
        is_on: True while the caller speaks.
        stopped_ms: when voice activity reported the last end.
        over_reply: True when the last voice began during a reply, in a turn that is open or to come.
    """

    def __init__(
        self,
        machine: BargeIn,
        events: CallEvents,
        decisions: DecisionQueue,
        clock: Clock,
        *,
        sound: CallerSound,
        stop_words: StopWordSpotter,
        looks: EarlyLooks,
    ) -> None:
        self._machine = machine
        self._decisions = decisions
        self._clock = clock
        self._sound = sound
        self._usual = SpeakerLevel()
        self._stop_words = stop_words
        self._looks = looks
        self.is_on = self.over_reply = False
        self.stopped_ms = self._started_ms = 0
        # A reply was heard while the present voice was on: its level may be the bot's.
        self._met_reply = False
        # End of the last reply.
        self._over_ms = 0
        # Time at which the present voice was noticed, and the length of the audio that had come by then.
        self._noticed_ms = (0, 0)
        self._not_before_ms = 0
        # Audio of the present voice that the engines have heard when they begin.
        self._heard_of_voice_ms = 0
        # First look at a due decision about this voice that found the audio late.
        self._late_from_ms: int | None = None
        # Time of the next check for the bot's own voice.
        self._look_ms: int | None = None
        events.subscribe(VoiceSuspected, self._on_voice_suspected)
        events.subscribe(VoicePaused, self._on_voice_paused)
        events.subscribe(ReplyStarted, self._on_reply_started)
        events.subscribe(ReplyFinished, self._on_reply_finished)

    @property
    def meets_reply(self) -> bool:
        """Return whether a reply is current, announced, or about to be resumed."""
        return self._machine.state is not BargeInState.LISTENING

    def close(self) -> None:
        """Release the engines."""
        self._stop_words.close()
        self._looks.close()

    def begin(self, needed_ms: int, *, ahead_ms: int = 0, judged_ms: int | None = None) -> Decision | None:
        """Register a voice and return the decision.

        Args:
            needed_ms: length of its audio that voice activity needed to be certain.
            ahead_ms: audio after that which came in the same piece: the voice began as much earlier.
            judged_ms: length of the call's audio before that; None: all of it up to now.
        """
        now_ms, voiced_ms = self._clock.now_ms(), needed_ms + ahead_ms
        self._follow_audio(None if judged_ms is None else judged_ms + ahead_ms)
        # Audio passes on while this report of the voice waits.
        heard_ms = self._sound.heard_ms()
        overtaken_ms = heard_ms - judged_ms if heard_ms is not None and judged_ms is not None else 0
        self._heard_of_voice_ms = needed_ms + max(0, overtaken_ms)
        self.is_on = True
        self.over_reply = self.meets_reply or now_ms - voiced_ms <= self._over_ms
        self._met_reply = self.meets_reply
        self._look_ms = now_ms - voiced_ms + OWN_VOICE_MS if self._sound.finds_own else None
        if self.meets_reply:
            self._stop_words.on_voice_started(self._heard_of_voice_ms)
        self._started_ms = now_ms - voiced_ms
        return self._machine.on_voice_started(now_ms, voiced_ms=voiced_ms)

    def look_at_beginning(self) -> None:
        """Measure a voice that has begun, after its first decision was carried out."""
        self.report_level()
        if self._machine.state is BargeInState.ARMED:
            on_look = partial(self._on_look, self._machine.voice_number)
            self._looks.on_voice_started(self._heard_of_voice_ms, on_look)

    def end(self, silence_ms: int, on_spotted: Callable[[int, int, Transcript], None]) -> Decision | None:
        """Register that the voice fell silent ``silence_ms`` ago, and return the decision.

        Args:
            silence_ms: how long it has been silent.
            on_spotted: called with the number of the voice, when its end was reported, and the spotter's
                result.
        """
        self._look_ms = None
        self._looks.on_voice_over()
        self.is_on, self.stopped_ms = False, self._clock.now_ms()
        self.report_level(learns_of_ms=self.stopped_ms - silence_ms - self._started_ms)
        # Where the caller has the floor there is nothing left to stop.
        spotted = partial(on_spotted, self._machine.voice_number, self.stopped_ms)
        if self._stop_words.on_voice_stopped(spotted if self.meets_reply else None):
            self._machine.on_spotting()
        return self._machine.on_voice_stopped(self._clock.now_ms(), silence_ms=silence_ms)

    def end_turn(self) -> None:
        """Note that the caller's turn is over: coming words belong to no voice over a reply."""
        self.over_reply = False

    def report_level(self, *, learns_of_ms: int | None = None) -> None:
        """Report the level of the voice to the machine, relative to the caller's usual one.

        Args:
            learns_of_ms: length of a voice that has ended, from which the usual level is learnt; None while
                it is on.
        """
        level_db = self._sound.level_db()
        if level_db is None:
            return
        above_usual_db = self._usual.above_usual_db(level_db)
        if above_usual_db is not None:
            decision = self._machine.on_level(self._clock.now_ms(), above_usual_db)
            if decision is not None:
                # Only with a decision: the task of the deadlines calls this too, and must not wake itself.
                self._decisions.note(decision)
        is_alone = not self._met_reply and self._started_ms - self._over_ms > ECHO_OVER_MS
        if learns_of_ms is not None and is_alone:
            self._usual.learn(level_db, voiced_ms=learns_of_ms)

    def echoes(self, text: str) -> bool:
        """Return whether words that came over a reply are the reply's."""
        return self.over_reply and self._sound.are_own(text)

    # Deadlines.

    def dues_ms(self) -> list[int]:
        """Return when a deadline of the machine or a check is due."""
        due_ms = self._machine.next_deadline_ms()
        if due_ms is not None:
            due_ms = max(due_ms, self._not_before_ms)
        return [due for due in (due_ms, self._look_ms) if due is not None]

    def look_for_own(self, now_ms: int) -> Decision | None:
        """Check whether the voice is the bot's own if that is due, and return the decision."""
        if self._look_ms is None or now_ms < self._look_ms:
            return None
        self._look_ms = now_ms + OWN_VOICE_MS
        own = self._sound.is_own() if self.meets_reply else None
        return self._machine.on_self_voice(now_ms, own=own) if own is not None else None

    def keep_deadline(self, now_ms: int) -> Decision | None:
        """Return the decision that is due, unless the audio is late."""
        return None if self._is_audio_late(now_ms) else self._machine.on_deadline(now_ms)

    def _follow_audio(self, arrived_ms: int | None = None) -> None:
        """Expect the audio after this moment; what has arrived may not be judged yet."""
        self._late_from_ms = None
        judged_ms = self._sound.heard_ms() or 0
        self._noticed_ms = self._clock.now_ms(), judged_ms if arrived_ms is None else arrived_ms

    def _is_audio_late(self, now_ms: int) -> bool:
        """Return whether the voice may have ended in audio that is not judged yet."""
        due_ms, judged_ms = self._machine.next_deadline_ms(), self._sound.heard_ms()
        if judged_ms is None or due_ms is None or self._machine.state is not BargeInState.ARMED:
            return False
        noticed_ms, heard_ms = self._noticed_ms
        late_ms = (now_ms - noticed_ms) - (judged_ms - heard_ms)
        if late_ms <= AUDIO_LATE_MS:
            return False
        if now_ms >= due_ms and self._late_from_ms is None:
            self._late_from_ms = now_ms
        if self._late_from_ms is not None and now_ms >= max(due_ms, self._late_from_ms) + AUDIO_WAIT_MS:
            return False
        self._not_before_ms = now_ms + LATE_LOOK_MS
        return True

    # Events.

    def _on_voice_suspected(self, _event: VoiceSuspected) -> None:
        self._follow_audio()
        self._decisions.note(self._machine.on_maybe_voice(self._clock.now_ms()))

    def _on_voice_paused(self, _event: VoicePaused) -> None:
        self._machine.on_maybe_quiet(self._clock.now_ms())

    def _on_reply_started(self, _event: ReplyStarted) -> None:
        self._met_reply = True

    def _on_reply_finished(self, _event: ReplyFinished) -> None:
        self._over_ms = self._clock.now_ms()

    def _on_look(self, voice: int, look: int, log_odds: float) -> None:
        """Handle the result of an early look; the task carries out the cut that may follow."""
        self.report_level()
        self._decisions.note(self._machine.on_look(self._clock.now_ms(), look, log_odds, voice=voice))
        if self._machine.state is not BargeInState.ARMED:
            self._looks.on_voice_over()
