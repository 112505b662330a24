"""Judge what final words and spotted commands mean for the caller's turn; carry nothing out.

Inputs: the machine's result for final words, and the spotter's for a voice. Output: the outcome for the words
(``WordsOutcome``), which the floor carries out, and the command that replaces a guess in the turn.
"""

from dataclasses import dataclass, replace
from enum import Enum

from loguru import logger

from parley.core.clock import Clock
from parley.models.stt import Transcript
from parley.processors.turns.over_bot.decisions import DecisionQueue
from parley.processors.turns.over_bot.turn import TurnOverBot
from parley.processors.turns.over_bot.voice import VoiceOverBot
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.table import BargeInState, Cut

# A command that is spotted so long after the end of its voice has no effect.
COMMAND_LATE_MS = 1_500


class WordsOutcome(Enum):
    """Outcomes of words over the bot."""

    # They stand in the turn that is open, or wait: nothing is to be done.
    STAY = "stay"
    TAKE_BACK = "not meant"
    ABANDON = "not meant, and the turn had no others"
    HOLD = "meant, over a reply that may not be interrupted"
    # A turn begins with these.
    BEGIN = "meant"
    BEGIN_IDLE = "nothing but a sound"
    BEGIN_LATE = "of the turn before, and late"


@dataclass(frozen=True, slots=True)
class SpottedCommand:
    """A command that was spotted and stands in the turn as its words.

    Attributes:
        text: the command.
        due_ms: end of the wait for the recogniser's words of the same voice.
        replaces_words: True when the turn has no other words.
    """

    text: str
    due_ms: int
    replaces_words: bool


class WordsOverBot:
    """Words of one caller.

    Args:
        machine: barge-in state machine of this call.
        turn: turn of the caller.
        voice: voice of the caller.
        decisions: destination of decisions.
        clock: clock of the event loop.
        name: name of the strategy, for the log.

    Attributes:
        command: the command that was spotted and is not in the turn yet.
    """

    def __init__(
        self,
        machine: BargeIn,
        turn: TurnOverBot,
        voice: VoiceOverBot,
        decisions: DecisionQueue,
        clock: Clock,
        *,
        name: str,
    ) -> None:
        self._machine = machine
        self._turn = turn
        self._voice = voice
        self._decisions = decisions
        self._clock = clock
        self._name = name
        self.command: SpottedCommand | None = None
        # Final words of the last voice have come, and they claim nothing or are a guess.
        self._has_final = self._is_guessed = False
        # The open turn had words that were meant before the last voice.
        self._had_words = False
        # Words wait for the spotter; its results for the voices up to this one are too late.
        self._waits_for_spotter = False
        self._answered_voice = 0

    @property
    def replaces_guess(self) -> bool:
        """Return whether the command replaces the only words of the turn, which were a guess."""
        return self.command is not None and self.command.replaces_words and self._is_guessed

    # Words that were not believed.

    def keep_doubted(self) -> bool:
        """Return whether words that were not believed stay, for the turn of a voice that follows."""
        return not self._turn.is_open and self._machine.holds_doubted(self._clock.now_ms())

    @property
    def keeps_doubted(self) -> bool:
        """Return whether words that were not believed are in the aggregator, without a turn."""
        return self._machine.has_doubted and not self._turn.is_open

    def doubted_due_ms(self) -> int | None:
        """Return when kept words have to be taken back; None without any, and while a voice is on."""
        return self._machine.doubted_due_ms() if self.keeps_doubted else None

    def is_doubt_over(self, now_ms: int) -> bool:
        """Return whether kept words have to be taken back now."""
        return self.keeps_doubted and not self._machine.holds_doubted(now_ms)

    def forget_doubted(self) -> None:
        """Note that kept words are in a turn now, or are taken back."""
        self._machine.forget_doubted()

    # The caller's turn.

    def end_voice(self) -> None:
        """Note that the voice ended: the next final words are about it."""
        self._has_final = self._is_guessed = False
        self._had_words = self._turn.is_open and self._turn.has_words

    def end_turn(self, *, is_answered: bool) -> None:
        """Note that the caller's turn is over."""
        if is_answered:
            # A command spotted in its voices from here on must not cut the answer.
            self._answered_voice = self._machine.voice_number - self._voice.is_on
            self._machine.on_turn_ended()
            self._waits_for_spotter = False
        self.command = None

    def take_spotted(self, voice: int, stopped_ms: int, heard: Transcript) -> None:
        """Handle the spotter's result for a voice that stopped at ``stopped_ms``."""
        now_ms, machine = self._clock.now_ms(), self._machine
        text, floor = heard.text, heard.floor_log_odds
        if now_ms - stopped_ms > COMMAND_LATE_MS:
            logger.debug(f"{self._name}: a command was spotted too late, after {now_ms - stopped_ms} ms")
            return
        if voice <= self._answered_voice:
            return
        was_cut, waited = machine.state is BargeInState.CUT, machine.holds_words
        decision = machine.on_spotted(now_ms, text, voice=voice, floor_log_odds=floor)
        is_taken_up = isinstance(decision, Cut) or (was_cut and machine.state is BargeInState.LISTENING)
        if machine.spotted_command and (is_taken_up or (waited and not machine.holds_words)):
            # The recogniser's words of it are there or about to come, unless they were of another voice.
            waits = stopped_ms == self._voice.stopped_ms and not self._has_final and not self._voice.is_on
            due_ms = stopped_ms + machine.settings.words_wait_ms if waits else now_ms
            # Words stay that were meant and waited for a protected reply, or stand in a turn that is open.
            replaces = not self._turn.has_held_words and not self._had_words
            self.command = SpottedCommand(text, due_ms, replaces)
        self._decisions.note(decision)

    def is_command_due(self, now_ms: int) -> bool:
        """Return whether the wait for the recogniser's words of a command is over."""
        return self.command is not None and now_ms >= self.command.due_ms

    def take_command(self) -> SpottedCommand | None:
        """Return the command, once, with ``replaces_words`` set when it replaces a guess."""
        command, replaces = self.command, self.replaces_guess
        self.command = None
        return None if command is None else replace(command, replaces_words=replaces)

    def note_final(self) -> None:
        """Note that the machine has judged final words."""
        self._has_final, self._is_guessed = not self._voice.is_on, self._machine.last_is_guess

    def is_guess_at_command(self) -> bool:
        """Return whether final words are the recogniser's guess at a command, which replaces them.

        Other words replace the command.
        """
        if self.command is None or not self._turn.is_open:
            return False
        if self._is_guessed:
            return True
        self.command = None
        return False

    def judge_final(self) -> WordsOutcome:
        """Return the outcome for the final words that the machine has judged."""
        kind = self._machine.last_kind
        is_idle = kind is None or kind.leaves_floor
        if self._turn.is_open:
            return self._judge_in_turn(is_idle)
        if self._machine.holds_words:
            # The spotter's result for the voice decides whether they are meant.
            self._waits_for_spotter = True
            return WordsOutcome.STAY
        state, over_reply = self._machine.state, self._voice.over_reply
        if state in (BargeInState.LISTENING, BargeInState.CUT):
            if not is_idle:
                return WordsOutcome.BEGIN
            return WordsOutcome.TAKE_BACK if over_reply else WordsOutcome.BEGIN_IDLE
        if state is BargeInState.PROTECTED and not is_idle:
            return WordsOutcome.HOLD
        return WordsOutcome.TAKE_BACK if is_idle or over_reply else WordsOutcome.BEGIN_LATE

    def _judge_in_turn(self, is_idle: bool) -> WordsOutcome:
        turn, waits = self._turn, self._machine.holds_words
        if turn.is_void:
            return WordsOutcome.TAKE_BACK
        if not waits and self._machine.holds_doubted(self._clock.now_ms()):
            # They are of an earlier voice than the one that began the turn.
            return WordsOutcome.STAY
        has_none = not turn.has_words and not waits
        if is_idle and turn.began_over_reply and has_none and not self._voice.meets_reply:
            # It was only a sign of listening, and the reply ended meanwhile.
            return WordsOutcome.ABANDON
        if waits:
            self._waits_for_spotter = True
        else:
            turn.note_words(meant=True)
        return WordsOutcome.STAY

    def settle(self) -> WordsOutcome:
        """Return the outcome for words that waited for the spotter, where no cut has begun their turn."""
        if not self._waits_for_spotter or self._machine.holds_words or not self._decisions.is_empty:
            return WordsOutcome.STAY
        self._waits_for_spotter = False
        meant = self._machine.take_verdict()
        if meant is None:
            return WordsOutcome.STAY
        if self._turn.is_open:
            self._turn.note_words(meant=self._turn.has_words or meant)
            return WordsOutcome.STAY
        if not meant:
            return WordsOutcome.TAKE_BACK
        return WordsOutcome.HOLD if self._machine.state is BargeInState.PROTECTED else WordsOutcome.BEGIN
