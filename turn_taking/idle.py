"""What happens when nobody says anything: prompts, patience, goodbye, and the end of the call.

In: when the caller's voice is heard, what they said in a turn, when the bot speaks and what it said. Out:
``Prompt``, ``Goodbye``, ``HangUp``, and ``TurnLimit`` for a voice that never ends.

The flow is Unmute's: silence counts from the moment when the bot has finished and the caller is expected to
speak; each prompt differs from the one before; after a few of them the bot says goodbye; and a call in which
goodbye was said is closed by the bot. Beyond that each wait is longer than the one before, a caller who asked
for a moment gets it, and a caller who speaks after the goodbye keeps the call. A voice alone moves nothing: a
cough puts a prompt off and does not start the silence anew, so that somebody who only coughs is asked like
somebody who says nothing. (Pipecat's idle controller counts from the end of the bot's speech too, tells it
once, and after a turn in which nothing was understood counts only when it is told to.)

States and their changes are ``TRANSITIONS``; all but ``ENDED`` have a deadline. Pure; all times are
milliseconds on the session clock. That a call in which neither side makes a sound ends at last
(``bot.idle_timeout_ms``) is not decided here.

A prompt and the goodbye are part of the conversation, as far as they are heard: "yes" behind "Are you still
there?" is no answer to the question before it, and whoever reads the session sees why the call ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pydantic import Field

from core.errors import IllegalTransition
from core.strict_model import StrictModel
from core.tuning import tuned
from turn_taking.caller_intents import asks_for_a_moment, ends_in, ends_in_farewell
from turn_taking.utterances import plain

_GROWTH_LIMIT = 16


class State(Enum):
    """Whose move it is."""

    WAITING = "waiting"
    PATIENT = "patient"
    BOT = "bot"
    GOODBYE = "goodbye"
    LEAVING = "leaving"
    ENDED = "ended"


class Event(Enum):
    """What may change it."""

    ASKED = "the caller said something"
    SPEAKS = "the bot speaks"
    DONE = "the bot has finished"
    DONE_PATIENT = "it has, and the caller asked for a moment"
    DONE_GOODBYE = "it has, and goodbye was said"
    DUE = "the wait is over"
    DUE_LAST = "the wait is over, and so are the prompts"


class Act(Enum):
    """What is done on the way."""

    NOTHING = "nothing"
    PROMPT = "prompt"
    GOODBYE = "goodbye"
    HANG_UP = "hang up"


_S, _E, _A = State, Event, Act

TRANSITIONS: Mapping[tuple[State, Event], tuple[State, Act]] = {
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
    # Whatever it was that did not end, or did not come.
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
IGNORED: Mapping[State, frozenset[Event]] = {
    _S.WAITING: _DONE,
    _S.PATIENT: _DONE,
    _S.BOT: frozenset({_E.ASKED, _E.SPEAKS}),
    _S.GOODBYE: frozenset({_E.SPEAKS}),
    _S.LEAVING: _DONE,
    _S.ENDED: frozenset(Event),
}


class IdleSettings(StrictModel):
    """How long a silence may be. Unmute prompts after 7 s and says goodbye after three prompts."""

    prompts: tuple[str, ...] = Field(
        (
            "Are you still there?",
            "Take your time, I am here when you are ready.",
            "I cannot hear you. If you are there, please say something.",
        ),
        min_length=1,
        description="one for each silence in a row; the last one is followed by the goodbye",
    )
    goodbye: str = Field(
        "I will let you go for now. Goodbye!", min_length=1, description="said before the call is closed"
    )
    prompt_after_ms: int = Field(7_000, ge=1_000, le=120_000, description="silence before the first prompt")
    growth_percent: int = Field(150, ge=100, le=400, description="each wait to the one before it")
    hang_up_on_farewell: bool = Field(True, description="a call in which goodbye was said is closed")


class IdleTuning(IdleSettings):
    """Settings with the values beside them that no deployment sets."""

    longest_wait_ms: int = Field(20_000, ge=1_000, le=300_000)
    patience_ms: int = Field(
        45_000, ge=1_000, le=600_000, description="the first wait of a caller who asked for a moment"
    )
    hold_ms: int = Field(
        2_000, ge=0, le=10_000, description="no prompt so soon after a voice: its turn may not be over"
    )
    hang_up_ms: int = Field(
        2_000, ge=0, le=30_000, description="from the end of the goodbye; whoever speaks until then stays"
    )
    bot_longest_ms: int = Field(
        90_000, ge=5_000, le=3_600_000, description="an answer that is not heard of for so long is over"
    )
    turn_limit_ms: int = Field(
        120_000, ge=10_000, le=3_600_000, description="a voice that goes on for so long is reported"
    )


@dataclass(frozen=True, slots=True)
class Prompt:
    """Say this, or have the model say something of the kind.

    Attributes:
        at_ms: when it was decided.
        number: of the prompts in this silence, from 1.
        text: a phrase for it.
    """

    at_ms: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Say this; ``HangUp`` follows unless the caller speaks."""

    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the call in good order."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class TurnLimit:
    """The caller's voice has not ended for ``voice_ms``: end the turn with what was understood."""

    at_ms: int
    voice_ms: int


Decision = Prompt | Goodbye | HangUp | TurnLimit


def says_goodbye(text: str) -> bool:
    """Whether a text of any length, the bot's, ends with "bye"."""
    return ends_in(plain(text), ("bye", "goodbye"))


class IdleWatch:
    """The silences of one call.

    Args:
        settings: see the model.
        started_ms: when the call began.
    """

    def __init__(self, settings: IdleSettings | None = None, *, started_ms: int = 0) -> None:
        self._settings = tuned(IdleTuning, settings)
        self._state = State.WAITING
        self._since_ms = started_ms
        self._prompts = 0
        self._asked_for_a_moment = False
        self._said_farewell = False
        self._voice_since_ms: int | None = None
        self._hold_until_ms = started_ms

    @property
    def state(self) -> State:
        """Whose move it is."""
        return self._state

    @property
    def prompts(self) -> int:
        """How many prompts there were in this silence."""
        return self._prompts

    @property
    def hears_voice(self) -> bool:
        """Whether the caller makes a sound."""
        return self._voice_since_ms is not None

    def on_voice_started(self, at_ms: int) -> None:
        """The caller makes a sound."""
        if self._voice_since_ms is None:
            self._voice_since_ms = at_ms

    def on_voice_stopped(self, at_ms: int) -> None:
        """The sound is over; whether it was a turn is not known yet."""
        self._voice_since_ms = None
        self._hold_until_ms = at_ms + self._settings.hold_ms

    def on_turn_ended(self, at_ms: int, text: str, *, written: bool = False) -> None:
        """The caller's turn is over. Without words it was none.

        Args:
            at_ms: when.
            text: what was said.
            written: it was typed. Who writes reads the answer and writes the next line: that takes as long as
                somebody takes who asked for a moment.
        """
        if not text.strip():
            return
        self._prompts = 0
        self._asked_for_a_moment = written or asks_for_a_moment(text)
        self._said_farewell = self._settings.hang_up_on_farewell and ends_in_farewell(text)
        self._move(Event.ASKED, at_ms)

    def on_bot_started(self, at_ms: int) -> None:
        """The bot is heard."""
        self._move(Event.SPEAKS, at_ms)

    def on_bot_stopped(self, at_ms: int, text: str = "") -> None:
        """The bot has finished, or was cut.

        Args:
            at_ms: when.
            text: what was heard of it.
        """
        if self._said_farewell or (self._settings.hang_up_on_farewell and says_goodbye(text)):
            self._move(Event.DONE_GOODBYE, at_ms)
        else:
            self._move(Event.DONE_PATIENT if self._asked_for_a_moment else Event.DONE, at_ms)

    def next_deadline_ms(self) -> int | None:
        """When ``on_deadline`` is to be called; None when nothing will ever be due."""
        if self._state is State.ENDED:
            return None
        if self._voice_since_ms is not None:
            return self._voice_since_ms + self._settings.turn_limit_ms
        wait_ms = self._wait_ms()
        return None if wait_ms is None else max(self._since_ms + wait_ms, self._hold_until_ms)

    def on_deadline(self, at_ms: int) -> Decision | None:
        """The decision that is due at ``at_ms``, if one is."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or at_ms < deadline_ms:
            return None
        if self._voice_since_ms is not None:
            voice_ms = at_ms - self._voice_since_ms
            # A voice that goes on is reported again after as long again.
            self._voice_since_ms = at_ms
            return TurnLimit(at_ms, voice_ms)
        is_last = self._prompts >= len(self._settings.prompts)
        act = self._move(Event.DUE_LAST if is_last else Event.DUE, at_ms)
        if act is Act.PROMPT:
            self._prompts += 1
            self._asked_for_a_moment = False
            return Prompt(at_ms, self._prompts, self._settings.prompts[self._prompts - 1])
        if act is Act.GOODBYE:
            return Goodbye(at_ms, self._settings.goodbye)
        return HangUp(at_ms) if act is Act.HANG_UP else None

    def _wait_ms(self) -> int | None:
        """How long the present state may last."""
        chosen = self._settings
        if self._state in (State.BOT, State.GOODBYE):
            return chosen.bot_longest_ms
        if self._state is State.LEAVING:
            return chosen.hang_up_ms
        if self._state is State.PATIENT:
            return chosen.patience_ms
        wait_ms = chosen.prompt_after_ms
        for _ in range(min(self._prompts, _GROWTH_LIMIT)):
            wait_ms = wait_ms * chosen.growth_percent // 100
        return max(chosen.prompt_after_ms, min(wait_ms, chosen.longest_wait_ms))

    def _move(self, event: Event, at_ms: int) -> Act:
        """Take an event, by the table.

        Raises:
            IllegalTransition: the table does not know it in this state.
        """
        row = TRANSITIONS.get((self._state, event))
        if row is None:
            if event not in IGNORED[self._state]:
                raise IllegalTransition(self._state, event)
            if self._state is State.BOT or self._state is State.GOODBYE:
                self._since_ms = at_ms
            return Act.NOTHING
        self._state, act = row
        self._since_ms = at_ms
        return act
