"""Small tier of a full-duplex agent: decide in each tick which side talks.

Inputs: the caller's voice as voice activity reports it, how complete the turn sounds, recognised words, and
what the bot is saying. Output, once a tick: the acts that follow (``Open``, ``Ask``, ``CloseTurn``,
``DiscardWords``,
``Guess``, ``EmitBackchannel``, ``Volume``, ``Yield``, ``ContinueReply``). The class combines the four
policies of a cascade on one clock: the end of turn (``policies``), interruptions (``barge_in``), backchannels
(``backchannel``) and speculative requests (``speculation``). A cascade spreads these over its processors.
Here they are in one place, because in duplex one engine both listens and speaks.

A turn of the caller opens with a voice while the bot is silent, or with an interruption that is meant. Words
over the bot that are not meant ("mhm") belong to no turn. A turn that ends without a word requests no answer.

The module is pure; all times are milliseconds on one clock, which is that of the units.
"""

from dataclasses import dataclass

from parley.core.errors import IllegalTransition
from parley.core.strict_model import StrictModel
from parley.language import Language, find_language
from parley.language.words import asks
from parley.turn_taking.backchannel import BackchannelPolicy, BackchannelSettings
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import BargeInState, Cut, Decision, Duck, Restore, ResumeReply
from parley.turn_taking.duplex_turn import TRANSITIONS, DuplexTurn, DuplexTurnEvent
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.endpointing.policies import endpoint_policy
from parley.turn_taking.speculation import Guesser, SpeculationSettings

# More cautious than a cascade's about unfinished turns: a caller who is answered too early has to talk
# against the bot.
ENDPOINT = EndpointTuning(
    kind="adaptive",
    complete_without_filler=0.35,
    max_silence_ms=1_200,
    hanging_silence_ms=2_000,
    unfinished_probability=0.9,
    told_silence_ms=1_200,
    cut_silence_ms=640,
)
# Quick to give back a floor that was taken too early: a caller who continues at once had not finished.
BARGE_IN = BargeInTuning(early_ms=1_000, early_confirm_ms=100)


class DuplexPolicySettings(StrictModel):
    """Settings of the four policies.

    Attributes:
        endpoint: end of a turn.
        barge_in: interruption of the bot.
        backchannel: backchannels of the bot; None: it makes none.
        speculation: requests before the end of a turn.
        false_start_silence_ms: least quiet before the end of a turn in which the caller continued over the
            first words of an answer: it had come too early, and should not come again in the next pause.
    """

    endpoint: EndpointTuning = ENDPOINT
    barge_in: BargeInTuning = BARGE_IN
    backchannel: BackchannelSettings | None = BackchannelSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    false_start_silence_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Open:
    """Give the caller the floor: a turn begins."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Request the answer to the caller's turn, which is over.

    Attributes:
        text: the recognised words.
        silence_ms: quiet that had passed by then.
        completeness: how complete it sounded; None when it was not measured.
    """

    text: str
    silence_ms: int = 0
    completeness: float | None = None


@dataclass(frozen=True, slots=True)
class CloseTurn:
    """Close a turn that had no word that was meant.

    Attributes:
        cut: True when the bot had fallen silent for it and does not resume what it was saying.
    """

    cut: bool


@dataclass(frozen=True, slots=True)
class DiscardWords:
    """Discard the last recognised words, which were not meant: they belong to no turn."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Prepare the answer to these words, with which the turn may be over.

    Attributes:
        text: the words; None withdraws the last guess.
    """

    text: str | None


@dataclass(frozen=True, slots=True)
class EmitBackchannel:
    """Say this backchannel without taking the floor."""

    text: str


@dataclass(frozen=True, slots=True)
class Volume:
    """Set the gain of the bot's voice."""

    gain_db: float


@dataclass(frozen=True, slots=True)
class Yield:
    """Fall silent: the caller has the floor."""


@dataclass(frozen=True, slots=True)
class ContinueReply:
    """Resume the reply from this word: the interruption was not meant."""

    from_word: int


Act = Open | Ask | CloseTurn | DiscardWords | Guess | EmitBackchannel | Volume | Yield | ContinueReply


class DuplexPolicy:
    """Policy of one conversation.

    Args:
        settings: settings of the four policies; None for the defaults.
        language: that of the conversation; None for the default language.
    """

    def __init__(
        self, settings: DuplexPolicySettings | None = None, *, language: Language | None = None
    ) -> None:
        chosen = settings or DuplexPolicySettings()
        language = language or find_language()
        self._endpoint = endpoint_policy(chosen.endpoint, language)
        self._barge_in = BargeIn(chosen.barge_in, vocabulary=language.vocabulary)
        self._backchannels = (
            BackchannelPolicy(chosen.backchannel, language=language)
            if chosen.backchannel is not None
            else None
        )
        self._guesser = Guesser(chosen.speculation)
        self._acts: list[Act] = []
        self._turn = DuplexTurn.NONE
        self._is_voiced = self._ends_turn = False
        # A command that was spotted in the open turn.
        self._command = ""
        # The bot began too early in this turn; the time at which the caller last fell silent.
        self._was_early = False
        self._early_ms = chosen.barge_in.early_ms
        self._false_start_ms = chosen.false_start_silence_ms
        self._quiet_ms: int | None = None
        # Time at which the current reply was first heard.
        self._heard_from_ms: int | None = None
        self._replies = 0
        self._reply_id: str | None = None
        self._protected = False

    @property
    def voice_number(self) -> int:
        """The number of the last voice."""
        return self._barge_in.voice_number

    @property
    def in_turn(self) -> bool:
        """True while a turn of the caller is open."""
        return self._turn.is_open

    @property
    def awaits_end(self) -> bool:
        """True when a voice has fallen silent and its turn is not decided yet."""
        return self._endpoint.next_deadline_ms() is not None

    @property
    def weighs_cut(self) -> bool:
        """True while it is undecided whether the caller meant to interrupt: the rest may be resumed."""
        return self._barge_in.state is BargeInState.CUT

    @property
    def may_speak(self) -> bool:
        """True when an answer that is ready may begin: the caller does not have the floor."""
        return not self.in_turn and not self._is_voiced

    # Events of the caller.

    def on_onset(self, at_ms: int) -> None:
        """Register a sound that may be a voice."""
        self._endpoint.on_maybe_voice(at_ms)
        self._follow(self._barge_in.on_maybe_voice(at_ms), at_ms)

    def on_pause(self, at_ms: int) -> None:
        """Register that the voice may have ended."""
        self._barge_in.on_maybe_quiet(at_ms)
        if self.in_turn:
            self._guess(self._guesser.on_pause())

    def on_resume(self, at_ms: int) -> None:
        """Register that the voice had not ended."""
        self._guesser.on_resume()

    def on_voice_started(self, at_ms: int, *, voiced_ms: int) -> None:
        """Register a voice that began ``voiced_ms`` before ``at_ms``."""
        self._is_voiced = True
        self._endpoint.on_voice_started(at_ms)
        if self._backchannels is not None:
            self._backchannels.on_voice_started(at_ms, voiced_ms=voiced_ms)
        if self._guesser.on_voice():
            self._acts.append(Guess(None))
        self._follow(self._barge_in.on_voice_started(at_ms, voiced_ms=voiced_ms), at_ms)
        if self._barge_in.state in (BargeInState.LISTENING, BargeInState.CUT):
            self._open_turn()

    def on_level(self, at_ms: int, level_db: float) -> None:
        """Register the level of the voice relative to the caller's usual one."""
        self._follow(self._barge_in.on_level(at_ms, level_db), at_ms)

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> None:
        """Register that the voice fell silent ``silence_ms`` before ``at_ms``."""
        self._is_voiced = False
        self._quiet_ms = at_ms - silence_ms
        self._endpoint.on_voice_stopped(at_ms, silence_ms=silence_ms)
        if self._backchannels is not None:
            self._backchannels.on_voice_stopped(at_ms, silence_ms=silence_ms)
        self._follow(self._barge_in.on_voice_stopped(at_ms, silence_ms=silence_ms), at_ms)

    def on_completeness(self, probability: float, *, filler_log_odds: float | None = None) -> None:
        """Register how complete the turn sounds in this pause, and the log odds that it stops on a filler."""
        self._endpoint.on_completeness(probability, filler_log_odds=filler_log_odds)
        if self._backchannels is not None:
            self._backchannels.on_completeness(probability)

    def on_partial(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> None:
        """Register the words of the present voice so far."""
        self._follow(self._barge_in.on_partial(at_ms, text, confidences=confidences), at_ms)
        if self.in_turn:
            self._guess(self._guesser.on_partial(text))

    def on_final(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> None:
        """Register the final words of the voice that ended last."""
        self._follow(self._barge_in.on_final(at_ms, text, confidences=confidences), at_ms)
        kind, has_reply = self._barge_in.last_kind, self._reply_id is not None
        is_idle = kind is None or kind.leaves_floor
        # Over a reply a turn begins with a cut, or with words that claim the floor.
        is_unsure = has_reply and not self.in_turn and not (kind is not None and kind.claims_floor)
        if not text or is_unsure or (is_idle and (has_reply or not self.in_turn)):
            # The words were not meant: they belong to no turn.
            self._acts.append(DiscardWords())
            return
        self._open_turn()
        self._step(DuplexTurnEvent.WORDS)
        last = confidences[-1] if confidences else 1.0
        self._endpoint.on_transcript(at_ms, text, last_word_confidence=last)
        if self._backchannels is not None:
            self._backchannels.on_text(self._endpoint.text)
        self._guess(self._guesser.on_final(text))

    def on_self_voice(self, at_ms: int, *, own: bool) -> None:
        """Register that the sound is the bot's own voice, or certainly is not."""
        self._follow(self._barge_in.on_self_voice(at_ms, own=own), at_ms)

    def on_spotting(self) -> None:
        """Register that a keyword spotter examines the voice that just ended."""
        self._barge_in.on_spotting()

    def on_spotted(
        self, at_ms: int, text: str, *, voice: int | None = None, floor_log_odds: float | None = None
    ) -> None:
        """Register the spotter's result for the voice of this number: a command, or nothing."""
        decision = self._barge_in.on_spotted(at_ms, text, voice=voice, floor_log_odds=floor_log_odds)
        self._follow(decision, at_ms)
        if self._barge_in.spotted_command and self.in_turn and not self._turn.has_words:
            # The recogniser may write another word of it, or none: the command stands in the turn.
            self._command = text

    # Events of the bot.

    def on_reply_coming(self, at_ms: int, *, protected: bool = False, reply_id: str = "") -> None:
        """Register an answer that is about to be spoken.

        Args:
            at_ms: when it was announced.
            protected: True when only a stop word interrupts it.
            reply_id: the name where replies have names; otherwise the coming reply is meant from here on.
        """
        self._replies += 1
        self._reply_id = reply_id or f"reply.{self._replies}"
        self._protected = protected
        self._busy(True)
        self._follow(self._barge_in.on_reply(at_ms, self._reply_id, protected=protected), at_ms)

    def on_saying(self, text: str) -> None:
        """Register words that the reply is about to say."""
        if self._reply_id is not None:
            self._barge_in.on_saying(self._reply_id, text)

    def on_bot_started(self, at_ms: int) -> None:
        """Register the first audio of the reply."""
        if self._reply_id is not None:
            self._heard_from_ms = at_ms
            decision = self._barge_in.on_bot_started(at_ms, self._reply_id, protected=self._protected)
            self._follow(decision, at_ms)

    def on_heard(self, last_word: int, *, is_rest_heard: bool = False) -> None:
        """Register how much of the reply was heard."""
        if self._reply_id is not None:
            self._barge_in.on_heard(self._reply_id, last_word, is_rest_heard=is_rest_heard)

    def on_bot_stopped(self, at_ms: int, said: str, *, reply_id: str = "") -> None:
        """Register the end of the reply, or that it does not come (nothing was said).

        ``reply_id`` is given where replies have names; another may have been announced by then.
        """
        over = reply_id or self._reply_id
        if over == self._reply_id:
            self._reply_id = self._heard_from_ms = None
            self._busy(False)
        reply_id = over or ""
        if said:
            self._endpoint.on_bot_said(said)
            if asks(said):
                self._barge_in.on_question(at_ms)
        if reply_id:
            self._follow(self._barge_in.on_bot_stopped(at_ms, reply_id), at_ms)

    # Time.

    def on_tick(self, at_ms: int) -> list[Act]:
        """Return the acts that follow from all events until now, in order."""
        while (due_ms := self._barge_in.next_deadline_ms()) is not None and due_ms <= at_ms:
            self._follow(self._barge_in.on_deadline(due_ms), due_ms)
            if self._barge_in.next_deadline_ms() == due_ms:
                # Decided, and not to be decided again in this tick.
                break
        if self._is_voiced and self._barge_in.caller_has_floor:
            self._open_turn()
        due_ms = self._endpoint.next_deadline_ms() if self.in_turn else None
        if self._backchannels is not None:
            self._backchannels.on_endpoint_due(due_ms)
            hum = self._backchannels.on_deadline(at_ms) if self.in_turn else None
            if hum is not None:
                self._acts.append(EmitBackchannel(hum.text))
        if due_ms is not None and self._was_early and self._quiet_ms is not None:
            due_ms = max(due_ms, self._quiet_ms + self._false_start_ms)
        end = self._endpoint.on_deadline(at_ms) if due_ms is not None and due_ms <= at_ms else None
        if end is not None:
            self._end_turn(end.silence_ms, end.completeness)
        elif self._ends_turn and self.in_turn:
            self._end_turn(0, None)
        self._ends_turn = False
        acts, self._acts = self._acts, []
        return acts

    def end_turn(self) -> None:
        """End the turn with the next tick, with the words so far, for a voice that never ends."""
        self._ends_turn = True

    def _open_turn(self) -> None:
        was_open = self.in_turn
        self._step(DuplexTurnEvent.BEGINS)
        if not was_open:
            self._command = ""
            self._acts.append(Open())
            self._guess(self._guesser.on_turn())

    def _end_turn(self, silence_ms: int, completeness: float | None) -> None:
        text, has_cut = self._endpoint.text, self._turn.has_cut
        if not self._turn.has_words and self._command:
            text = self._command
            self._step(DuplexTurnEvent.WORDS)
        self._step(DuplexTurnEvent.ENDS)
        self._was_early = False
        self._endpoint.reset()
        self._guesser.reset()
        self._barge_in.on_turn_ended()
        if self._backchannels is not None:
            self._backchannels.on_turn_ended()
        if self._turn.has_words:
            self._acts.append(Ask(text, silence_ms, completeness))
        else:
            # While the rest may still be resumed, the silence needs no explanation.
            is_settled = self._barge_in.state is BargeInState.LISTENING
            self._acts += [Guess(None), CloseTurn(has_cut and is_settled)]

    def _step(self, event: DuplexTurnEvent) -> None:
        """Move the turn according to its table.

        Raises:
            IllegalTransition: the table has no row for the event in this state.
        """
        try:
            self._turn = TRANSITIONS[self._turn, event]
        except KeyError:
            raise IllegalTransition(self._turn, event) from None

    def _guess(self, text: str | None) -> None:
        if text is not None:
            self._acts.append(Guess(text))

    def _busy(self, busy: bool) -> None:
        if self._backchannels is not None:
            self._backchannels.on_bot_busy(busy)

    def _follow(self, decision: Decision | None, at_ms: int) -> None:
        if isinstance(decision, Duck):
            self._acts.append(Volume(decision.gain_db))
        elif isinstance(decision, Restore):
            self._acts.append(Volume(0.0))
        elif isinstance(decision, Cut):
            began_ms, heard_ms = at_ms - decision.voice_ms, self._heard_from_ms
            self._was_early = heard_ms is None or began_ms < heard_ms + self._early_ms
            self._reply_id = self._heard_from_ms = None
            self._busy(False)
            self._acts += [Yield(), Volume(0.0)]
            self._open_turn()
            self._step(DuplexTurnEvent.CUT)
            if not self._was_early:
                self._endpoint.on_cut()
        elif isinstance(decision, ResumeReply):
            self._step(DuplexTurnEvent.RESUMES)
            if not self._turn.has_words:
                self._endpoint.reset()
                self._guesser.reset()
            self._acts.append(ContinueReply(decision.from_word))
