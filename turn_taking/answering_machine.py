"""Decide whether a person or a machine answered an outbound call, and when to leave the message.

``judge`` classifies the transcript by rules, for a deployment without a model that could decide.
``AnswerScreen`` decides what follows. A person is greeted. A silent line counts as a person once ``hello_ms``
have passed. A machine is given the message when its greeting is over: after its beep, or after ``quiet_ms``
of silence where there is none.

The module is pure; all times are milliseconds on one clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pydantic import Field

from parley.core.errors import IllegalTransition
from parley.core.strict_model import StrictModel
from parley.language import find_language
from parley.language.vocabulary import AnsweringPhrases
from parley.language.words import plain

# Text that stands for a tone in a transcript.
BEEP = "(beep)"
# A beep is reported at its end, and also detected as a voice: a voice so soon after it is the beep itself.
_BEEP_IS_VOICE_MS = 250
# Pause between a beep and the first word: machines begin to record with it.
_BEHIND_BEEP_MS = 300

# People who answer a call say less than this before they wait for an answer.
_MANY_WORDS = 22
_FEW_WORDS = 3


class VoicemailSettings(StrictModel):
    """Behaviour when a machine answers an outbound call."""

    message: str | None = Field(
        None,
        max_length=2_000,
        description="message after the machine's greeting; null: the call ends at once",
    )


class VoicemailTuning(VoicemailSettings):
    """Voicemail settings including the values that no deployment sets."""

    decide_ms: int = Field(
        700,
        ge=0,
        le=5_000,
        description="wait after the end of a turn: a machine's greeting continues after its pauses, and a "
        "person waits this much longer for the first answer",
    )
    hello_ms: int = Field(
        3_000,
        ge=500,
        le=20_000,
        description="initial silence after which a person is assumed to wait for the bot to speak",
    )
    undecided_ms: int = Field(40_000, ge=5_000, le=300_000, description="longest time without a decision")
    quiet_ms: int = Field(
        2_500, ge=200, le=20_000, description="silence after a greeting without a beep, before the message"
    )
    answer_ms: int = Field(
        1_500, ge=100, le=10_000, description="time for a language model to decide; after it the rules do"
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """Judgement of a transcript.

    Attributes:
        is_machine: True for a machine, False for a person.
        confidence: 0.5 to 1.
    """

    is_machine: bool
    confidence: float


def judge(heard: str, phrases: AnsweringPhrases | None = None) -> Judgement:
    """Return whether a machine or a person says this.

    Args:
        heard: the whole transcript so far, with ``BEEP`` where there was one.
        phrases: those of the language that is spoken; None for the default language.
    """
    phrases = phrases or find_language().answering
    has_beep = BEEP in heard
    spoken = plain(heard.replace(BEEP, " "))
    text, words = f" {' '.join(spoken)} ", len(spoken)
    asks = "?" in heard or any(f" {phrase} " in text for phrase in phrases.person)
    if any(f" {phrase} " in text for phrase in phrases.machine):
        return Judgement(True, 0.7 if asks else 0.95)
    if has_beep and (words == 0 or words > _FEW_WORDS):
        return Judgement(True, 0.9)
    hints = sum(f" {phrase} " in text for phrase in phrases.hints)
    if asks:
        return Judgement(False, 0.9)
    if hints >= 2 and words > _FEW_WORDS:
        return Judgement(True, min(0.9, 0.55 + 0.1 * hints))
    if words >= _MANY_WORDS:
        return Judgement(True, 0.7)
    return Judgement(False, 0.9 if words <= _FEW_WORDS else 0.7)


class VoicemailState(Enum):
    """State of the decision."""

    RINGING = "ringing"
    LISTENING = "listening"
    # The bot speaks first; a machine may still answer.
    NOBODY = "nobody"
    PERSON = "person"
    MACHINE = "machine"
    DONE = "done"


class VoicemailEvent(Enum):
    """Event that may change the state."""

    CONNECTED = "the line is there"
    PERSON = "a person, it was decided"
    MACHINE = "a machine, it was decided"
    DUE = "the wait is over"


_S, _E = VoicemailState, VoicemailEvent

TRANSITIONS: Mapping[tuple[VoicemailState, VoicemailEvent], VoicemailState] = {
    (_S.RINGING, _E.CONNECTED): _S.LISTENING,
    (_S.LISTENING, _E.CONNECTED): _S.LISTENING,
    (_S.LISTENING, _E.PERSON): _S.PERSON,
    (_S.LISTENING, _E.MACHINE): _S.MACHINE,
    (_S.LISTENING, _E.DUE): _S.NOBODY,
    (_S.NOBODY, _E.CONNECTED): _S.NOBODY,
    (_S.NOBODY, _E.PERSON): _S.PERSON,
    (_S.NOBODY, _E.MACHINE): _S.MACHINE,
    (_S.PERSON, _E.CONNECTED): _S.PERSON,
    (_S.MACHINE, _E.CONNECTED): _S.MACHINE,
    (_S.MACHINE, _E.DUE): _S.DONE,
    (_S.DONE, _E.CONNECTED): _S.DONE,
}


class AnswerScreen:
    """State machine of one outbound call.

    Args:
        settings: waits and the message.

    Attributes:
        state: the current state.
    """

    def __init__(self, settings: VoicemailTuning) -> None:
        self._settings = settings
        self.state = VoicemailState.RINGING
        self._connected_ms = self._machine_ms = 0
        # End of the last voice; None while it is on, and before any.
        self._quiet_since_ms: int | None = None
        self._has_spoken = self._speaks = False
        self._beep_ms: int | None = None

    def on_event(self, event: VoicemailEvent, at_ms: int) -> None:
        """Handle a decision about the answerer, or the end of a wait.

        Raises:
            IllegalTransition: the event cannot occur in this state.
        """
        try:
            state = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalTransition(self.state, event) from None
        if state is not self.state:
            if state is VoicemailState.LISTENING:
                self._connected_ms = at_ms
            elif state is VoicemailState.MACHINE:
                self._machine_ms = at_ms
        self.state = state

    def on_voice(self, speaks: bool, at_ms: int) -> None:
        """Register that a voice begins, or is over."""
        if speaks:
            if self._beep_ms is not None and at_ms - self._beep_ms > _BEEP_IS_VOICE_MS:
                # The greeting continues: it was another tone.
                self._beep_ms = None
            self._has_spoken = True
        else:
            self._quiet_since_ms = at_ms
        self._speaks = speaks

    def on_beep(self, at_ms: int) -> None:
        """Register the end of a beep."""
        self._beep_ms = at_ms

    def next_deadline_ms(self) -> int | None:
        """Return when ``VoicemailEvent.DUE`` is due; None while nothing is awaited."""
        settings = self._settings
        if self.state is VoicemailState.LISTENING:
            wait_ms = settings.undecided_ms if self._has_spoken else settings.hello_ms
            return self._connected_ms + wait_ms
        if self.state is not VoicemailState.MACHINE:
            return None
        if settings.message is None:
            return self._machine_ms
        last_ms = self._machine_ms + settings.undecided_ms
        if self._beep_ms is not None:
            return min(last_ms, self._beep_ms + _BEHIND_BEEP_MS)
        if self._speaks or self._quiet_since_ms is None:
            return last_ms
        return min(last_ms, self._quiet_since_ms + settings.quiet_ms)
