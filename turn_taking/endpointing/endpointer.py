"""Decide when the caller's turn is over.

The decision weighs two costs: a late answer is felt on every turn, an early one cuts the caller off. Three
policies (``policies``) take it behind one interface, ``EndpointPolicy``. This module holds their common part
and the oldest policy, ``adaptive``. It waits after the last voice for a time that depends on how complete the
turn sounds (a model's probability) and reads (its last words): short after a complete clause, long after a
conjunction or a filler.

Inputs: events and their times. Output: at most one ``Endpoint`` per turn. All times are milliseconds on the
session clock. The decision waits for the final transcript, so that the answer is to the words that were said,
but only for a bounded time. A turn without recognised words ends as ``EMPTY`` after ``empty_ms``, so that a
cough never holds the floor.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from pydantic import Field, model_validator

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.language import Language, find_language
from parley.language.cue_words import QuestionKind
from parley.language.words import last_word
from parley.turn_taking.endpointing.evidence_voice import CallerVoiceAverage, VoiceEnd, VoiceSigns
from parley.turn_taking.endpointing.pauses import SHORTEST_MS, CallerHabits

# With ``learn``, the general share of holds counts as so many pauses added to the caller's own.
SHARE_WEIGHT = 20


class EndpointSettings(StrictModel):
    """Settings of the end of a caller's turn. The defaults suit web conversations; a bank may wait longer."""

    kind: Literal["timer", "adaptive", "predictive"] = Field(
        "predictive",
        description="predictive: the wait with the lowest expected cost given everything observed; "
        "adaptive: between two waits, by how complete the turn sounds and reads; timer: ``timer_ms`` in "
        "every case (docs/explanation/turn_taking_policies.md)",
    )
    # The least at which at most 10 % of the holds of the tuning callers are cut (8.5 %; 0.5: 10.8 %).
    patience: float = Field(
        0.6,
        ge=0,
        le=1,
        description="predictive: patience of the agent. 0 answers at once and often cuts in, 1 hardly ever "
        "cuts in and waits long (docs/explanation/turn_taking.md lists the effect of each step)",
    )
    timer_ms: int = Field(800, ge=100, le=10_000, description="timer: silence that ends a turn")


class EndpointTuning(EndpointSettings):
    """Endpoint settings including the values that no deployment sets.

    ``told_silence_ms`` to ``unfinished_probability`` belong to ``adaptive``, the rest to all policies.
    """

    learn: bool = Field(
        False, description="adaptive and predictive waits adapt to the caller's pauses in this call"
    )
    caller_spread: float = Field(
        0.35,
        ge=0,
        le=1,
        description="variation between callers: standard deviation of the logarithm of their pause lengths",
    )
    cut_in_window_ms: int = Field(
        1_000,
        ge=0,
        le=5_000,
        description="time after the end of a turn in which a caller who speaks again had been cut off",
    )
    told_silence_ms: int | None = Field(
        None,
        ge=100,
        le=10_000,
        description="wait after a statement that requests nothing, when the bot had asked nothing either, "
        "because a caller who narrates usually continues; null: the usual wait",
    )
    cut_silence_ms: int | None = Field(
        None,
        ge=100,
        le=5_000,
        description="``max_silence_ms`` of a turn that interrupted the bot, without the wait of "
        "``told_silence_ms``, because a caller who interrupts wants an answer; null: as usual",
    )
    min_silence_ms: int = Field(
        190, ge=100, le=2_000, description="wait after a turn that is certainly complete"
    )
    max_silence_ms: int = Field(640, ge=100, le=5_000, description="wait after a turn that sounds incomplete")
    hanging_silence_ms: int = Field(
        900, ge=100, le=10_000, description="wait after a conjunction, an article or a filler"
    )
    complete_probability: float = Field(
        0.5, gt=0, lt=1, description="probability from which the turn counts as complete"
    )
    # See docs/explanation/turn_taking_policies.md.
    complete_without_filler: float = Field(
        0.2, gt=0, lt=1, description="the same when the caller is known not to have stopped on a filler"
    )
    unfinished_probability: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="probability below which the turn sounds unfinished, and a possibly trailing word "
        "counts as hanging",
    )
    heard_for_fillers: tuple[str, ...] = Field(
        (),
        description='last words that the recogniser writes for "um", after which the wait is that of an '
        "incomplete turn. If not set: those of the deployment's recogniser",
    )
    # ``research.turn_taking.filler``: 2 in 100 other pauses lie above -0.7, and 96 in 100 fillers.
    filler_log_odds: float | None = Field(
        0.0,
        ge=-20,
        le=20,
        description="log odds of a filler before the pause from which the wait is that after a hanging "
        "word; null: only words decide",
    )
    hanging_confidence: float = Field(
        0.15,
        ge=0,
        le=1,
        description="confidence below which the last word is ignored",
    )
    onset_hold_ms: int = Field(
        150, ge=0, le=1_000, description="time by which a possible voice delays the end of the turn"
    )
    transcript_wait_ms: int = Field(700, ge=0, le=10_000, description="longest wait for the final words")
    owed_wait_ms: int = Field(
        10_000,
        ge=0,
        le=60_000,
        description="longest wait for the final words of a recogniser that reports that it owes them",
    )
    empty_ms: int = Field(
        1_500, ge=200, le=10_000, description="silence after which a turn without recognised words ends"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "EndpointTuning":
        if not self.min_silence_ms <= self.max_silence_ms <= self.hanging_silence_ms:
            raise ValueError("expected min_silence_ms <= max_silence_ms <= hanging_silence_ms")
        return self


class EndpointKind(Enum):
    """Kind of the end of a turn."""

    COMPLETE = "complete"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Decision that the turn is over.

    Attributes:
        at_ms: when it was taken.
        silence_ms: silence that had passed by then.
        completeness: the probability on which it was based; None when none arrived in time.
        kind: ``COMPLETE`` when there are words to answer, else ``EMPTY``.
    """

    at_ms: int
    silence_ms: int
    completeness: float | None
    kind: EndpointKind


@dataclass(frozen=True, slots=True)
class Grounds:
    """Evidence for the end of a turn, in log odds.

    Attributes:
        score: evidence of the completeness model alone, as it was calibrated.
        otherwise: evidence of everything else.
    """

    score: float
    otherwise: float


class EndpointPolicy(Protocol):
    """Decides when one caller's turn is over. All times are milliseconds on one clock."""

    @property
    def text(self) -> str:
        """Words recognised in this turn so far."""
        ...

    @property
    def wants_voice_end(self) -> bool:
        """True when the policy uses ``on_voice_end``."""
        ...

    def reset(self) -> None:
        """Forget the turn: the next voice starts another."""
        ...

    def on_voice_started(self, at_ms: int) -> None:
        """Register that the caller speaks, for the first time or again."""
        ...

    def on_maybe_voice(self, at_ms: int) -> None:
        """Register a sound that may be the caller's voice."""
        ...

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> None:
        """Register that the caller fell silent ``silence_ms`` before ``at_ms``."""
        ...

    def is_complete(self, probability: float, *, filler_log_odds: float | None = None) -> bool:
        """Return whether more evidence could not shorten the wait any further."""
        ...

    def on_completeness(self, probability: float, *, filler_log_odds: float | None = None) -> None:
        """Register how complete the turn sounds, 0..1, and the log odds that it stops on a filler."""
        ...

    def on_voice_end(self, end: VoiceEnd) -> None:
        """Register the measurement of how the voice ends; the last one of a pause counts."""
        ...

    def on_transcript(self, at_ms: int, text: str, *, last_word_confidence: float = 1.0) -> None:
        """Register final words of the speech that just ended."""
        ...

    @property
    def is_owed(self) -> bool:
        """True while the recogniser says that it owes words."""
        ...

    def on_words_owed(self, is_owed: bool) -> None:
        """Register that the recogniser owes the words of speech that is over, or owes none any more."""
        ...

    def on_bot_said(self, text: str) -> None:
        """Register the last words of the bot, before the caller answers."""
        ...

    def on_cut(self) -> None:
        """Note that the current turn interrupted the bot."""
        ...

    def next_look_ms(self) -> int | None:
        """Return when the model is to be asked again; None when no answer would be waited for."""
        ...

    def on_look(self, at_ms: int) -> None:
        """Note that the model is being asked again; its next estimate is of this look."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Return when ``on_deadline`` must be called; None while the caller speaks or the turn is decided."""
        ...

    def on_deadline(self, at_ms: int) -> Endpoint | None:
        """Return the decision when it is due at ``at_ms``; at most once per turn."""
        ...


class TurnSilence(ABC):
    """Common base of the policies.

    It follows voice, words and possible voices, waits for ``wait_ms``, gives the final words their time, and
    remembers how the caller paused.

    A pause was a hold when the caller continued before the turn had ended, or so soon after that they cannot
    have answered; otherwise it was an end. Coughs count as voices here, as they do everywhere.

    Args:
        settings: settings of the endpoint; None for the defaults.
        language: that of the caller; None for the default language.
    """

    def __init__(self, settings: EndpointSettings | None = None, *, language: Language | None = None) -> None:
        chosen = self._settings = tuned(EndpointTuning, settings)
        self._cues = (language or find_language()).cues
        self._habits = (
            CallerHabits(spread=chosen.caller_spread, share_weight=SHARE_WEIGHT) if chosen.learn else None
        )
        self._voice = False
        self._fell_silent_ms: int | None = None
        self._maybe_ms: int | None = None
        # The last turn that was ended: when, since when it had been silent, and the evidence for its end. It
        # outlives the turn.
        self._ended_ms: tuple[int, int] | None = None
        self._ended_on: Grounds | None = None
        self._asked = QuestionKind.NOTHING
        # The recogniser says that it owes words; a turn that waited for them in vain ends this.
        self._is_owed = False
        # End of the voice at this pause; the facts about the caller's own voice outlive the turn.
        self._voice_end: VoiceEnd | None = None
        self._own_voice = CallerVoiceAverage()
        self.reset()

    @abstractmethod
    def wait_ms(self) -> int:
        """Return the silence after which the turn is over, on the present evidence."""

    def reset(self) -> None:
        """Forget the turn: the next voice starts another."""
        self._silent_since_ms: int | None = None
        self._completeness: float | None = None
        self._filler_log_odds: float | None = None
        self._text = ""
        self._last_word_confidence = 0.0
        self._transcript_due_ms: int | None = None
        self._hold_until_ms: int | None = None
        self._remember_voice()
        self._looked_ms = 0
        self._has_looked_again = False
        self._done = self._has_cut = False

    @property
    def text(self) -> str:
        """Words recognised in this turn so far."""
        return self._text

    @property
    def wants_voice_end(self) -> bool:
        """True when the policy uses ``on_voice_end``."""
        return False

    def on_voice_started(self, at_ms: int) -> None:
        """Register that the caller speaks (again): all conclusions from the pause are void."""
        self._judge_pause(at_ms)
        self._voice = True
        self._silent_since_ms = None
        self._completeness = self._filler_log_odds = None
        self._transcript_due_ms = None
        self._hold_until_ms = None
        self._remember_voice()
        self._done = False

    def _judge_pause(self, at_ms: int) -> None:
        """Decide, now that the caller speaks again, whether the last pause was a hold or the end."""
        onset_ms = at_ms if self._maybe_ms is None else self._maybe_ms
        self._maybe_ms = None
        ended, self._ended_ms = self._ended_ms, None
        ended_on, self._ended_on = self._ended_on, None
        if self._habits is None:
            return
        if ended is None:
            if self._silent_since_ms is not None:
                self._judged(self.grounds(), ended=False)
                self._habits.on_hold(onset_ms - self._silent_since_ms)
            return
        decided_ms, silent_since_ms = ended
        if onset_ms - decided_ms <= self._settings.cut_in_window_ms:
            # The caller cannot have recognised anything of the answer by then: they kept their own time.
            self._judged(ended_on, ended=False)
            self._habits.on_hold(onset_ms - silent_since_ms)
        else:
            self._judged(ended_on, ended=True)
            self._habits.on_end()

    def grounds(self) -> "Grounds | None":
        """Return the present evidence for an end, for a policy that learns; None for the others."""
        return None

    def _judged(self, grounds: "Grounds | None", *, ended: bool) -> None:
        """Learn whether a pause with this evidence was the end; the base does nothing."""
        return None

    def on_maybe_voice(self, at_ms: int) -> None:
        """Register a sound that may be the caller's voice.

        Voice activity needs a while to be certain; a turn that ended meanwhile would cut the caller off.
        """
        self._hold_until_ms = at_ms + self._settings.onset_hold_ms
        self._maybe_ms = at_ms

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> None:
        """Register that the caller fell silent ``silence_ms`` before ``at_ms``.

        A completeness estimate and words are expected.
        """
        self._voice = False
        self._silent_since_ms = self._fell_silent_ms = at_ms - silence_ms
        self._maybe_ms = None
        self._completeness = self._filler_log_odds = None
        self._looked_ms = silence_ms
        self._has_looked_again = False
        self._transcript_due_ms = at_ms + self._settings.transcript_wait_ms

    def is_complete(self, probability: float, *, filler_log_odds: float | None = None) -> bool:
        """Return whether more evidence could not shorten the wait any further."""
        if self._is_filler(filler_log_odds):
            return False
        return probability >= self._complete_from(filler_log_odds)

    def _is_filler(self, log_odds: float | None) -> bool:
        least = self._settings.filler_log_odds
        return log_odds is not None and least is not None and log_odds >= least

    def _complete_from(self, filler_log_odds: float | None) -> float:
        chosen = self._settings
        is_known = filler_log_odds is not None and chosen.filler_log_odds is not None
        return chosen.complete_without_filler if is_known else chosen.complete_probability

    def on_completeness(self, probability: float, *, filler_log_odds: float | None = None) -> None:
        """Register how complete the turn sounds, 0..1, and the log odds that it stops on a filler.

        The line that detects fillers was fitted on the first look at a pause, and the threshold here was
        chosen with it. Given more silence, it takes complete sentences for fillers, so a later look leaves
        those odds as they are.
        """
        self._completeness = probability
        if not self._has_looked_again:
            self._filler_log_odds = filler_log_odds

    def on_transcript(self, at_ms: int, text: str, *, last_word_confidence: float = 1.0) -> None:
        """Register final words of the speech that just ended. They add to earlier ones and may be empty.

        Words may arrive when the turn has long ended, or without a detected voice. Then they are a turn of
        their own, and the silence after it began when the voice did end. Recognisers fill noise with short
        words ("the", "and"): the last word counts as far as its confidence allows.
        """
        if text:
            self._last_word_confidence = last_word_confidence
            if not self._voice and self._silent_since_ms is None:
                self._silent_since_ms = self._fell_silent_ms if self._fell_silent_ms is not None else at_ms
        self._text = f"{self._text} {text}".strip()
        self._transcript_due_ms = None

    @property
    def is_owed(self) -> bool:
        """True while the recogniser says that it owes words."""
        return self._is_owed

    def on_words_owed(self, is_owed: bool) -> None:
        """Register that the recogniser owes the words of speech that is over, or owes none any more."""
        self._is_owed = is_owed
        if not is_owed:
            self._transcript_due_ms = None

    def on_voice_end(self, end: VoiceEnd) -> None:
        """Register the measurement of how the voice ends; the last one of a pause counts."""
        self._voice_end = end

    def _signs(self) -> VoiceSigns | None:
        """Return how the voice ended relative to this caller's usual voice; None without a measurement."""
        return None if self._voice_end is None else self._own_voice.signs(self._voice_end)

    def _remember_voice(self) -> None:
        """Add the measurement of the pause that is over to the caller's own voice."""
        if self._voice_end is not None:
            self._own_voice.on_voice_end(self._voice_end)
            self._voice_end = None

    def on_bot_said(self, text: str) -> None:
        """Register the last words of the bot, before the caller answers."""
        self._asked = self._cues.asked_for(text)

    def on_cut(self) -> None:
        """Note that the current turn interrupted the bot."""
        self._has_cut = True

    def next_look_ms(self) -> int | None:
        """Return None: no answer would be waited for."""
        return None

    def on_look(self, at_ms: int) -> None:
        """Note that the model is being asked again."""
        if self._silent_since_ms is not None:
            self._looked_ms = at_ms - self._silent_since_ms
            self._has_looked_again = True

    def next_deadline_ms(self) -> int | None:
        """Return when ``on_deadline`` must be called; None while the caller speaks or the turn is decided."""
        if self._silent_since_ms is None or self._done:
            return None
        chosen = self._settings
        if self._is_owed:
            # Whatever was recognised so far, the words are not all there.
            return max(self._silent_since_ms + chosen.owed_wait_ms, self._hold_until_ms or 0)
        if not self._text:
            return max(self._silent_since_ms + chosen.empty_ms, self._hold_until_ms or 0)
        due_ms = self._silent_since_ms + self.wait_ms()
        if self._transcript_due_ms is not None:
            due_ms = max(due_ms, self._transcript_due_ms)
        return max(due_ms, self._hold_until_ms or 0)

    def on_deadline(self, at_ms: int) -> Endpoint | None:
        """Return the decision when it is due at ``at_ms``; at most once per turn."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or self._silent_since_ms is None or at_ms < deadline_ms:
            return None
        self._done = True
        self._is_owed = False
        self._ended_ms = at_ms, self._silent_since_ms
        self._ended_on = self.grounds()
        kind = EndpointKind.COMPLETE if self._text else EndpointKind.EMPTY
        return Endpoint(at_ms, at_ms - self._silent_since_ms, self._completeness, kind)


class Endpointer(TurnSilence):
    """``adaptive`` policy: wait between two times, by how complete the turn sounds and reads."""

    def wait_ms(self) -> int:
        """Return the silence after which the turn is over, on the present evidence."""
        wait_ms = self._unlearnt_ms()
        if self._habits is None or wait_ms <= SHORTEST_MS:
            return wait_ms
        # The wait that cuts as many of this caller's holds as the other cuts of all callers'.
        return SHORTEST_MS + round((wait_ms - SHORTEST_MS) * self._habits.factor)

    def _unlearnt_ms(self) -> int:
        chosen, wait_ms = self._settings, self._by_completeness_ms()
        waits_for_more = chosen.told_silence_ms is not None and not self._has_cut
        if waits_for_more and self._asked is QuestionKind.NOTHING and self._cues.is_statement(self._text):
            assert chosen.told_silence_ms is not None
            wait_ms = max(wait_ms, chosen.told_silence_ms)
        return wait_ms

    def _by_completeness_ms(self) -> int:
        chosen = self._settings
        if self._last_word_confidence >= chosen.hanging_confidence and self._cues.ends_hanging(self._text):
            return chosen.hanging_silence_ms
        if self._is_filler(self._filler_log_odds):
            return chosen.hanging_silence_ms
        sounds_unfinished = self._completeness is not None and (
            self._completeness < chosen.unfinished_probability
        )
        if sounds_unfinished and self._cues.may_trail(self._text):
            return chosen.hanging_silence_ms
        max_ms = chosen.max_silence_ms
        if self._has_cut and chosen.cut_silence_ms is not None:
            max_ms = max(chosen.min_silence_ms, min(max_ms, chosen.cut_silence_ms))
        if self._completeness is None or last_word(self._text) in chosen.heard_for_fillers:
            return max_ms
        # The estimate is graded, so the wait is: a threshold would treat 0.79 as 0.01.
        share = min(1.0, self._completeness / self._complete_from(self._filler_log_odds))
        return round(max_ms - (max_ms - chosen.min_silence_ms) * share)
