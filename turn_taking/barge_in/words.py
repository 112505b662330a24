"""Judge recognised words for ``barge_in``: a listener's word, a stop word, a turn, or a guess at a sound.

Inputs: partial and final words of the recogniser, and the spotter's result for a voice that has ended.
Output: the meaning of the words, on which the state machine acts. Final words that may be a guess wait for
the spotter, where there is one. The module has no access to replies; each method receives what it needs of
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from parley.language.vocabulary import UtteranceVocabulary
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import BargeInState
from parley.turn_taking.barge_in.voice import VoiceFinding, VoiceFindings
from parley.turn_taking.barge_in.words_table import TRANSITIONS, WordsEvent, WordsPhase
from parley.turn_taking.utterances import Classifier, Utterance, UtteranceKind

# Findings that exclude that a short voice begins what the caller says.
NOT_CALLERS = (
    VoiceFinding.OWN,
    VoiceFinding.FAR,
    VoiceFinding.LEFT,
    VoiceFinding.LISTENS,
    VoiceFinding.SOUNDS_LISTENING,
)


class SpotVerdict(Enum):
    """Consequence of a spotter's result for a voice."""

    STOP = "a stop word"
    COMMAND = "a command that is meant"
    WANTS_FLOOR = "the voice wants the floor by how it sounds"
    # These two decide on the words that wait.
    BELIEVE_HELD = "the words that wait are believed"
    DROP_HELD = "the words that wait were a guess"
    NOTHING = "nothing is decided"


@dataclass(frozen=True, slots=True)
class JudgedWords:
    """Final words and their interpretation.

    Attributes:
        voice: number of the voice to which they belong.
        text: the words.
        kind: how they were classified; None before any, and for the bot's own words.
        is_guess: True when they claim nothing, or may be a guess at a short sound.
    """

    voice: int = 0
    text: str = ""
    kind: UtteranceKind | None = None
    is_guess: bool = False


@dataclass(frozen=True, slots=True)
class HeldWords:
    """Final words that wait for the spotter's result for their voice.

    Attributes:
        kinds: kind of the recogniser's words of each voice, should they be believed, by number of the voice.
        until_ms: when they are believed although no result has arrived.
    """

    kinds: Mapping[int, UtteranceKind]
    until_ms: int

    @property
    def claims_floor(self) -> bool:
        """Return whether any of the words claim the floor; a hum after words of weight changes nothing."""
        return any(kind.claims_floor for kind in self.kinds.values())

    def without(self, voice: int) -> "HeldWords":
        """Return the words of the other voices."""
        return replace(self, kinds={each: kind for each, kind in self.kinds.items() if each != voice})


NOTHING_HELD = HeldWords({}, 0)


class WordArbiter:
    """Interpreter of the recognised words of one call.

    Args:
        settings: thresholds of the barge-in.
        findings: findings about voices, shared with the voice tracker.
        vocabulary: words of the language that is spoken; None for the default language.

    Attributes:
        phase: state of the words whose meaning is open.
        last: the last final words.
        spotted_command: True when the last spotted words are a command that is meant.
        echo_words: number of words recognised while the voice was the bot's own.
        may_listen: True when the words so far begin as a listener's.
    """

    def __init__(
        self, settings: BargeInTuning, findings: VoiceFindings, *, vocabulary: UtteranceVocabulary | None
    ) -> None:
        self._settings = settings
        self._findings = findings
        self._classifier = Classifier(settings.utterances, vocabulary=vocabulary)
        self.phase = WordsPhase.SETTLED
        self._held = NOTHING_HELD
        self.last = JudgedWords()
        self.spotted_command = False
        self.echo_words = 0
        self.may_listen = False
        # The words so far of the present voice, or the final ones of the last.
        self._text = ""
        self._confidences: tuple[float, ...] = ()
        # The decision on words that waited, until it is read.
        self._verdict: bool | None = None

    @property
    def held(self) -> HeldWords | None:
        """Return the words that wait for the spotter; None where none wait."""
        return self._held if self.phase.holds else None

    @property
    def is_doubted(self) -> bool:
        """Return whether the last final words were not believed, and may be the caller's all the same."""
        return self.phase.doubts

    def _step(self, event: WordsEvent) -> None:
        self.phase = TRANSITIONS[self.phase, event]

    def begin_voice(self, *, echo_words: int = 0) -> None:
        """Forget the words of the voice before.

        Args:
            echo_words: number of the coming words that were already recognised, and are the bot's own.
        """
        self._text, self._confidences = "", ()
        self.may_listen, self.echo_words = False, echo_words

    def end_turn(self) -> None:
        """Forget the waiting words and the findings about voices: the turn is being answered."""
        self._verdict = None
        self._step(WordsEvent.SETTLE)
        self._step(WordsEvent.FORGET)
        self._findings.drop(
            VoiceFinding.SPOTTING,
            VoiceFinding.NO_COMMAND,
            VoiceFinding.WANTS_FLOOR,
            VoiceFinding.LISTENS,
            VoiceFinding.SOUNDS_LISTENING,
        )

    # Words of the present voice.

    @property
    def has_words(self) -> bool:
        """Return whether any words were recognised in the present voice."""
        return bool(self._text)

    def utterance(self, stretches_ms: tuple[int, ...], level_db: float | None, *, is_over: bool) -> Utterance:
        """Return the words so far with a voice of these lengths and this level."""
        return Utterance(self._text, self._confidences, stretches_ms, is_over, level_db)

    def kind(self, heard: Utterance, *, asked: bool = False) -> UtteranceKind:
        """Return the kind of an utterance."""
        return self._classifier.kind(heard, question_open=asked)

    def keep(self, text: str, confidences: tuple[float, ...]) -> None:
        """Store these as the words so far."""
        self._text, self._confidences = text, confidences

    def note_echo(self, text: str) -> None:
        """Record words that were recognised while the voice is the bot's own."""
        self.echo_words = len(text.split())

    def without_echo(self, text: str, confidences: tuple[float, ...]) -> tuple[str, tuple[float, ...]]:
        """Return the words after those that were recognised while the voice was the bot's own."""
        words, skipped = text.split(), self.echo_words
        per_word = len(confidences) == len(words)
        return " ".join(words[skipped:]), confidences[skipped:] if per_word else confidences

    # Partial words.

    def note_partial(self, text: str, confidences: tuple[float, ...], *, asked: bool) -> None:
        """Store the words recognised in the present voice so far."""
        self.keep(text, confidences)
        # Once is enough: the next partial of an "okay" may be "okay and her".
        if not asked and self._classifier.may_be_backchannel(text):
            self.may_listen = True

    def confirms(self, kind: UtteranceKind, heard: Utterance) -> bool:
        """Return whether words of this kind are meant before they are final."""
        enough = self._classifier.content_words(heard) >= self._settings.confirm_words
        return kind is UtteranceKind.ANSWER or (kind is UtteranceKind.SUBSTANTIVE and enough)

    # Final words.

    def discard_final(self) -> None:
        """Mark the last final words as empty, or as the bot's own."""
        self._step(WordsEvent.FORGET)
        self.last = replace(self.last, kind=None, is_guess=True)

    def take_final(
        self,
        heard: Utterance,
        voice: int,
        *,
        asked: bool,
        state: BargeInState,
        is_far: bool,
        held_until_ms: int,
    ) -> UtteranceKind | None:
        """Classify the final words of a voice; return None when they wait for the spotter.

        Args:
            heard: the words, with the voice to which they belong.
            voice: number of the voice.
            asked: True when the bot has just asked something.
            state: the state of the interruption.
            is_far: True when the voice was far away.
            held_until_ms: when words that wait are believed.
        """
        kind = self.kind(heard, asked=asked)
        if asked and heard.text and kind is not UtteranceKind.NOISE and not kind.claims_floor:
            # A caller who was asked and makes a sound is about to answer, whatever the transcript of it.
            kind = UtteranceKind.ANSWER
        is_guess = self._is_guess(kind, heard) and not asked
        counts_as_guess = is_guess or not kind.claims_floor
        if heard.text and self._findings.holds(VoiceFinding.WANTS_FLOOR, voice) and not kind.claims_floor:
            # The voice sounded as if it wants the floor, whatever the transcript of it.
            kind, is_guess = UtteranceKind.SUBSTANTIVE, False
        is_over_reply = state in (BargeInState.ARMED, BargeInState.WEIGHED) and not is_far
        may_be_more = is_over_reply and self._may_be_more(kind, heard)
        if self._surely_listens(kind, heard):
            self._findings.note(VoiceFinding.LISTENS, voice)
        waits = (is_guess or may_be_more) and state is not BargeInState.CUT
        if waits and self._findings.holds(VoiceFinding.SPOTTING, voice):
            self.last = JudgedWords(voice, heard.text, kind, counts_as_guess)
            kinds = self.held.kinds if self.held is not None else {}
            self._held = HeldWords({**kinds, voice: kind}, held_until_ms)
            self._step(WordsEvent.HOLD)
            return None
        is_doubted = False
        if waits and is_guess and self._findings.holds(VoiceFinding.NO_COMMAND, voice):
            is_doubted = self._may_be_callers(kind, voice)
            kind = UtteranceKind.BACKCHANNEL
        self._step(WordsEvent.DOUBT if is_doubted else WordsEvent.FORGET)
        self.last = JudgedWords(voice, heard.text, kind, counts_as_guess)
        return kind

    def _is_guess(self, kind: UtteranceKind, heard: Utterance) -> bool:
        """Return whether words that claim the floor may be a guess at a hum or a listener's word."""
        if kind not in (UtteranceKind.SUBSTANTIVE, UtteranceKind.HESITATION):
            return False
        # A longer voice is cut by its length.
        longest_ms = self._settings.confirm_ms + self._settings.end_lag_ms
        if not heard.confidences or heard.voiced_ms > longest_ms:
            return False
        is_sure = min(heard.confidences) >= self._settings.sure_confidence
        return not (is_sure and len(heard.text.split()) > 1)

    def _may_be_more(self, kind: UtteranceKind, heard: Utterance) -> bool:
        """Return whether words over a reply that claim nothing may be a guess at something that does."""
        if kind.claims_floor or not heard.text or not heard.confidences:
            return False
        return not self._surely_listens(kind, heard)

    def _surely_listens(self, kind: UtteranceKind, heard: Utterance) -> bool:
        """Return whether a listener's word was certainly recognised.

        A word that recognisers write for any vowel does not count.
        """
        if not kind.leaves_floor or not heard.text:
            return False
        is_sure = min(heard.confidences, default=1.0) >= self._settings.sure_confidence
        return is_sure and self._classifier.may_be_backchannel(heard.text)

    def _may_be_callers(self, kind: UtteranceKind, voice: int) -> bool:
        """Return whether words that are not believed may be the beginning of what the caller says.

        Those of a voice that was certainly a listener's, another person's or the bot's are not.
        """
        return kind.claims_floor and not any(self._findings.holds(each, voice) for each in NOT_CALLERS)

    # Words that wait.

    def drop_held(self) -> None:
        """Forget the words that wait: certain words have included them."""
        self._step(WordsEvent.SETTLE)

    def settle_held(self, *, meant: bool) -> bool:
        """Decide on the words that wait, and return whether they are meant."""
        held = self.held or NOTHING_HELD
        is_doubted = not meant and any(
            self._may_be_callers(kind, voice) for voice, kind in held.kinds.items()
        )
        self._step(WordsEvent.SETTLE)
        self._step(WordsEvent.DOUBT if is_doubted else WordsEvent.FORGET)
        self._verdict = meant and held.claims_floor
        return self._verdict

    def forget_doubted(self) -> None:
        """Note that the words that were not believed are in a turn now, or were taken back."""
        self._step(WordsEvent.FORGET)

    def believe_held(self, voice: int) -> bool:
        """Believe the words that wait if some belong to this voice; return whether there were any."""
        if self.held is None or voice not in self.held.kinds:
            return False
        self._verdict = True
        self._step(WordsEvent.SETTLE)
        return True

    def take_verdict(self) -> bool | None:
        """Return once whether the words that waited were meant; None when nothing was decided since."""
        verdict, self._verdict = self._verdict, None
        return verdict

    # Results of the spotter.

    def begin_spotted(self, voice: int) -> None:
        """Note that the spotter has examined a voice."""
        self.spotted_command = False
        self._findings.drop(VoiceFinding.SPOTTING, of=voice)

    def take_spotted(self, text: str, voice: int, log_odds: float | None) -> SpotVerdict:
        """Handle the spotter's result for a voice and return its consequence.

        Args:
            text: the command; empty when there was none.
            voice: number of the voice.
            log_odds: log odds that it wants the floor, by its sound; None when they are unknown.
        """
        is_stop = self.kind(Utterance(text)) is UtteranceKind.STOP
        if self._is_command(text, log_odds) or self._agree(voice, text):
            self.spotted_command = True
            self._verdict = True if self.held is not None else self._verdict
            self._step(WordsEvent.SETTLE)
            return SpotVerdict.STOP if is_stop else SpotVerdict.COMMAND
        if self._wants_floor(log_odds):
            self._findings.note(VoiceFinding.WANTS_FLOOR, voice)
            return SpotVerdict.WANTS_FLOOR
        if self._is_no_command(log_odds):
            text = ""
            self._findings.note(VoiceFinding.SOUNDS_LISTENING, voice)
        if not text:
            self._findings.note(VoiceFinding.NO_COMMAND, voice)
        if self.held is None or voice not in self.held.kinds:
            return SpotVerdict.NOTHING
        if len(self.held.kinds) > 1 and not text:
            self._held = self.held.without(voice)
            return SpotVerdict.NOTHING
        # On a single word the recogniser decides.
        return SpotVerdict.BELIEVE_HELD if text else SpotVerdict.DROP_HELD

    def _is_command(self, command: str, log_odds: float | None) -> bool:
        """Return whether a spotted command was really said, and is meant whatever the recogniser wrote.

        A single word ("what") resembles a hum as much as itself, unless the voice sounds as if it wants the
        floor. A voice that sounds as if it only listens contains no command.
        """
        heard = Utterance(command)
        if not command or self._is_no_command(log_odds):
            return False
        if self._wants_floor(log_odds) or self.kind(heard) is UtteranceKind.STOP:
            return True
        return self._classifier.is_claim(heard, least_words=self._settings.confirm_words)

    def _wants_floor(self, log_odds: float | None) -> bool:
        return log_odds is not None and log_odds >= self._settings.floor_log_odds

    def _is_no_command(self, log_odds: float | None) -> bool:
        return log_odds is not None and log_odds < self._settings.command_floor_log_odds

    def _agree(self, voice: int, command: str) -> bool:
        """Return whether the recogniser and the spotter found the same words in a voice.

        This holds for a question of one word, or that very word: two that agree are right, however low either
        confidence is.
        """
        is_same_voice = bool(command) and self.last.voice == voice
        return is_same_voice and self._classifier.says_the_same(self.last.text, command)
