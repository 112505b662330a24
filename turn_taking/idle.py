"""Handle silence of the caller: prompts, patience, goodbye, and the end of the call.

Inputs: when the caller's voice begins and ends, the words of their turns, when the bot speaks and what it
said.
Outputs: ``Prompt``, ``Goodbye``, ``HangUp``, and ``TurnLimit`` for a voice that never ends.

The flow is Unmute's. Silence counts from the moment when the bot has finished and the caller is expected to
speak; each prompt differs from the one before; after a few of them the bot says goodbye; and the bot closes a
call in which goodbye was said. In addition, each wait is longer than the one before, a caller who asked for a
moment gets it, and a caller who speaks after the goodbye keeps the call. A voice without words changes no
state: a cough postpones a prompt and does not restart the silence, so that a caller who only coughs is
prompted like one who is silent. (Pipecat's idle controller also counts from the end of the bot's speech. It
reports once, and after a turn without recognised words it counts only on request.)

States and their changes are ``TRANSITIONS``; all but ``ENDED`` have a deadline. The module is pure; all times
are milliseconds on the session clock. The end of a call in which neither side makes a sound
(``bot.idle_timeout_ms``) is decided elsewhere.

A prompt and the goodbye are part of the conversation, as far as they are heard: "yes" after "Are you still
there?" does not answer the question before it, and a reader of the session sees why the call ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pydantic import Field

from parley.core.errors import IllegalTransition
from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.language import Language, find_language

_GROWTH_LIMIT = 16


class IdleState(Enum):
    """Side whose move it is, and the state of the goodbye."""

    WAITING = "waiting"
    PATIENT = "patient"
    BOT = "bot"
    GOODBYE = "goodbye"
    LEAVING = "leaving"
    ENDED = "ended"


class IdleEvent(Enum):
    """Event that may change the state."""

    ASKED = "the caller said something"
    SPEAKS = "the bot speaks"
    DONE = "the bot has finished"
    DONE_PATIENT = "it has, and the caller asked for a moment"
    DONE_GOODBYE = "it has, and goodbye was said"
    DUE = "the wait is over"
    DUE_LAST = "the wait is over, and so are the prompts"


class IdleAct(Enum):
    """Act that accompanies a change of state."""

    NOTHING = "nothing"
    PROMPT = "prompt"
    GOODBYE = "goodbye"
    HANG_UP = "hang up"


_S, _E, _A = IdleState, IdleEvent, IdleAct

TRANSITIONS: Mapping[tuple[IdleState, IdleEvent], tuple[IdleState, IdleAct]] = {
    (_S.WAITING, _E.ASKED): (_S.BOT, _A.NOTHING),
    (_S.WAITING, _E.SPEAKS): (_S.BOT, _A.NOTHING),
    (_S.WAITING, _E.DUE): (_S.BOT, _A.PROMPT),
    (_S.WAITING, _E.DUE_LAST): (_S.GOODBYE, _A.GOODBYE),
    (_S.PATIENT, _E.ASKED): (_S.BOT, _A.NOTHING),
    (_S.PATIENT, _E.SPEAKS): (_S.BOT, _A.NOTHING),
    (_S.PATIENT, _E.DUE): (_S.BOT, _A.PROMPT),
    (_S.PATIENT, _E.DUE_LAST): (_S.GOODBYE, _A.GOODBYE),
    (_S.BOT, _E.DONE): (_S.WAITING, _A.NOTHING),
    (_S.BOT, _E.DONE_PATIENT): (_S.PATIENT, _A.NOTHING),
    (_S.BOT, _E.DONE_GOODBYE): (_S.LEAVING, _A.NOTHING),
    # An answer that did not end, or did not come.
    (_S.BOT, _E.DUE): (_S.WAITING, _A.NOTHING),
    (_S.BOT, _E.DUE_LAST): (_S.WAITING, _A.NOTHING),
    (_S.GOODBYE, _E.ASKED): (_S.BOT, _A.NOTHING),
    (_S.GOODBYE, _E.DONE): (_S.LEAVING, _A.NOTHING),
    (_S.GOODBYE, _E.DONE_PATIENT): (_S.LEAVING, _A.NOTHING),
    (_S.GOODBYE, _E.DONE_GOODBYE): (_S.LEAVING, _A.NOTHING),
    (_S.GOODBYE, _E.DUE): (_S.ENDED, _A.HANG_UP),
    (_S.GOODBYE, _E.DUE_LAST): (_S.ENDED, _A.HANG_UP),
    (_S.LEAVING, _E.ASKED): (_S.BOT, _A.NOTHING),
    (_S.LEAVING, _E.SPEAKS): (_S.GOODBYE, _A.NOTHING),
    (_S.LEAVING, _E.DUE): (_S.ENDED, _A.HANG_UP),
    (_S.LEAVING, _E.DUE_LAST): (_S.ENDED, _A.HANG_UP),
}

_DONE = frozenset({_E.DONE, _E.DONE_PATIENT, _E.DONE_GOODBYE})
# Events that may come in a state and change nothing there.
IGNORED: Mapping[IdleState, frozenset[IdleEvent]] = {
    _S.WAITING: _DONE,
    _S.PATIENT: _DONE,
    _S.BOT: frozenset({_E.ASKED, _E.SPEAKS}),
    _S.GOODBYE: frozenset({_E.SPEAKS}),
    _S.LEAVING: _DONE,
    _S.ENDED: frozenset(IdleEvent),
}


class IdleSettings(StrictModel):
    """Limits of a silence. Unmute prompts after 7 s and says goodbye after three prompts."""

    prompts: tuple[str, ...] = Field(
        (
            "Are you still there?",
            "Take your time, I am here when you are ready.",
            "I cannot hear you. If you are there, please say something.",
        ),
        min_length=1,
        description="one prompt for each silence in a row; the goodbye follows the last",
    )
    goodbye: str = Field(
        "I will let you go for now. Goodbye!", min_length=1, description="phrase before the call is closed"
    )
    prompt_after_ms: int = Field(7_000, ge=1_000, le=120_000, description="silence before the first prompt")


class IdleTuning(IdleSettings):
    """Idle settings including the values that no deployment sets."""

    # 7, 10.5 and 15.8 s: a caller who did not answer one prompt is not helped by the next one soon after.
    growth_percent: int = Field(150, ge=100, le=400, description="each wait relative to the one before it")
    # Phone calls of a deployment that leaves the end to the caller (``phone.ends_on_goodbye``) stay open.
    hang_up_on_farewell: bool = Field(True, description="close a call after a goodbye")
    longest_wait_ms: int = Field(20_000, ge=1_000, le=300_000)
    patience_ms: int = Field(
        45_000, ge=1_000, le=600_000, description="first wait for a caller who asked for a moment"
    )
    hold_ms: int = Field(
        2_000,
        ge=0,
        le=10_000,
        description="time after a voice in which no prompt is given, because the turn may not be over",
    )
    hang_up_ms: int = Field(
        2_000,
        ge=0,
        le=30_000,
        description="time from the end of the goodbye to the end of the call; a caller who speaks in it "
        "stays",
    )
    bot_longest_ms: int = Field(
        90_000,
        ge=5_000,
        le=3_600_000,
        description="time after which an answer without any sign of playback is over",
    )
    turn_limit_ms: int = Field(
        120_000, ge=10_000, le=3_600_000, description="length from which a continuous voice is reported"
    )


@dataclass(frozen=True, slots=True)
class Prompt:
    """Say this text, or have the model say something similar.

    Attributes:
        at_ms: when it was decided.
        number: index of the prompt in this silence, from 1.
        text: a phrase for it.
    """

    at_ms: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Say this text; ``HangUp`` follows unless the caller speaks."""

    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the call in good order."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class TurnLimit:
    """End a turn whose voice has not ended for ``voice_ms``, with the words recognised so far."""

    at_ms: int
    voice_ms: int


Decision = Prompt | Goodbye | HangUp | TurnLimit


class IdleWatch:
    """Monitor of the silences of one call.

    Args:
        settings: waits and phrases; None for the defaults.
        started_ms: when the call began.
        language: that of the call; None for the default language.
    """

    def __init__(
        self,
        settings: IdleSettings | None = None,
        *,
        started_ms: int = 0,
        language: Language | None = None,
    ) -> None:
        self._settings = tuned(IdleTuning, settings)
        self._intents = (language or find_language()).intents
        self._state = IdleState.WAITING
        self._since_ms = started_ms
        self._prompts = 0
        self._asked_for_a_moment = False
        self._said_farewell = False
        self._voice_since_ms: int | None = None
        self._hold_until_ms = started_ms

    @property
    def state(self) -> IdleState:
        """The current state."""
        return self._state

    @property
    def prompts(self) -> int:
        """The number of prompts in this silence."""
        return self._prompts

    @property
    def has_voice(self) -> bool:
        """True while the caller makes a sound."""
        return self._voice_since_ms is not None

    def on_voice_started(self, at_ms: int) -> None:
        """Register that the caller makes a sound."""
        if self._voice_since_ms is None:
            self._voice_since_ms = at_ms

    def on_voice_stopped(self, at_ms: int) -> None:
        """Register that the sound is over; it is not known yet whether it was a turn."""
        self._voice_since_ms = None
        self._hold_until_ms = at_ms + self._settings.hold_ms

    def on_turn_ended(self, at_ms: int, text: str, *, written: bool = False) -> None:
        """Register the end of the caller's turn. A turn without words is ignored.

        Args:
            at_ms: when it ended.
            text: its words.
            written: True for a typed turn. A caller who types reads the answer and writes the next line,
                which takes as long as for a caller who asked for a moment.
        """
        if not text.strip():
            return
        self._prompts = 0
        self._asked_for_a_moment = written or self._intents.asks_for_a_moment(text)
        self._said_farewell = self._settings.hang_up_on_farewell and self._intents.ends_in_farewell(text)
        self._move(IdleEvent.ASKED, at_ms)

    def on_bot_started(self, at_ms: int) -> None:
        """Register that the bot is heard."""
        self._move(IdleEvent.SPEAKS, at_ms)

    def on_bot_stopped(self, at_ms: int, text: str = "") -> None:
        """Register that the bot has finished, or was cut.

        Args:
            at_ms: when it stopped.
            text: the words that were heard of it.
        """
        said_goodbye = self._settings.hang_up_on_farewell and self._intents.says_goodbye(text)
        if self._said_farewell or said_goodbye:
            self._move(IdleEvent.DONE_GOODBYE, at_ms)
        else:
            self._move(IdleEvent.DONE_PATIENT if self._asked_for_a_moment else IdleEvent.DONE, at_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when ``on_deadline`` must be called; None when nothing will ever be due."""
        if self._state is IdleState.ENDED:
            return None
        if self._voice_since_ms is not None:
            return self._voice_since_ms + self._settings.turn_limit_ms
        wait_ms = self._wait_ms()
        return None if wait_ms is None else max(self._since_ms + wait_ms, self._hold_until_ms)

    def on_deadline(self, at_ms: int) -> Decision | None:
        """Return the decision that is due at ``at_ms``; None when there is none."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or at_ms < deadline_ms:
            return None
        if self._voice_since_ms is not None:
            voice_ms = at_ms - self._voice_since_ms
            # A voice that continues is reported again after as long again.
            self._voice_since_ms = at_ms
            return TurnLimit(at_ms, voice_ms)
        is_last = self._prompts >= len(self._settings.prompts)
        act = self._move(IdleEvent.DUE_LAST if is_last else IdleEvent.DUE, at_ms)
        if act is IdleAct.PROMPT:
            self._prompts += 1
            self._asked_for_a_moment = False
            return Prompt(at_ms, self._prompts, self._settings.prompts[self._prompts - 1])
        if act is IdleAct.GOODBYE:
            return Goodbye(at_ms, self._settings.goodbye)
        return HangUp(at_ms) if act is IdleAct.HANG_UP else None

    def _wait_ms(self) -> int | None:
        """Return how long the present state may last."""
        chosen = self._settings
        if self._state in (IdleState.BOT, IdleState.GOODBYE):
            return chosen.bot_longest_ms
        if self._state is IdleState.LEAVING:
            return chosen.hang_up_ms
        if self._state is IdleState.PATIENT:
            return chosen.patience_ms
        wait_ms = chosen.prompt_after_ms
        for _ in range(min(self._prompts, _GROWTH_LIMIT)):
            wait_ms = wait_ms * chosen.growth_percent // 100
        return max(chosen.prompt_after_ms, min(wait_ms, chosen.longest_wait_ms))

    def _move(self, event: IdleEvent, at_ms: int) -> IdleAct:
        """Handle an event according to the table.

        Raises:
            IllegalTransition: the table has no row for it in this state.
        """
        row = TRANSITIONS.get((self._state, event))
        if row is None:
            if event not in IGNORED[self._state]:
                raise IllegalTransition(self._state, event)
            if self._state is IdleState.BOT or self._state is IdleState.GOODBYE:
                self._since_ms = at_ms
            return IdleAct.NOTHING
        self._state, act = row
        self._since_ms = at_ms
        return act
