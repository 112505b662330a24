"""State table of an interruption: states, events and acts. It contains data and decides nothing.

``barge_in`` runs it; the diagram in ``docs/explanation/turn_taking.md`` is drawn from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class BargeInState(Enum):
    """State of an interruption."""

    LISTENING = "listening"
    REPLYING = "replying"
    PROTECTED = "protected"
    ARMED = "armed"
    WEIGHED = "weighed"
    CUT = "cut"


class BargeInEvent(Enum):
    """Event that may change the state."""

    REPLY = "a reply is on its way or heard"
    OVER = "the reply is over"
    PROTECT = "the reply may not be interrupted"
    RELEASE = "it may be again"
    VOICE = "a voice over the reply"
    QUIET = "the voice ended early"
    DISMISSED = "nothing was meant"
    MEANT = "the caller means it"
    STOP = "a stop word"


class BargeInAct(Enum):
    """Act that accompanies a change of state."""

    NOTHING = "nothing"
    DUCK = "duck"
    RESTORE = "restore"
    CUT = "cut"
    RESUME = "resume"


_S, _E, _A = BargeInState, BargeInEvent, BargeInAct

TRANSITIONS: Mapping[tuple[BargeInState, BargeInEvent], tuple[BargeInState, BargeInAct]] = {
    (_S.LISTENING, _E.REPLY): (_S.REPLYING, _A.NOTHING),
    (_S.REPLYING, _E.OVER): (_S.LISTENING, _A.NOTHING),
    (_S.REPLYING, _E.PROTECT): (_S.PROTECTED, _A.NOTHING),
    (_S.REPLYING, _E.VOICE): (_S.ARMED, _A.DUCK),
    # Words that arrive when the volume is up again.
    (_S.REPLYING, _E.MEANT): (_S.CUT, _A.CUT),
    (_S.REPLYING, _E.STOP): (_S.LISTENING, _A.CUT),
    (_S.PROTECTED, _E.OVER): (_S.LISTENING, _A.NOTHING),
    (_S.PROTECTED, _E.RELEASE): (_S.REPLYING, _A.NOTHING),
    (_S.PROTECTED, _E.STOP): (_S.LISTENING, _A.CUT),
    (_S.ARMED, _E.OVER): (_S.LISTENING, _A.RESTORE),
    (_S.ARMED, _E.PROTECT): (_S.PROTECTED, _A.RESTORE),
    (_S.ARMED, _E.QUIET): (_S.WEIGHED, _A.NOTHING),
    (_S.ARMED, _E.DISMISSED): (_S.REPLYING, _A.RESTORE),
    (_S.ARMED, _E.MEANT): (_S.CUT, _A.CUT),
    (_S.ARMED, _E.STOP): (_S.LISTENING, _A.CUT),
    (_S.WEIGHED, _E.OVER): (_S.LISTENING, _A.RESTORE),
    (_S.WEIGHED, _E.PROTECT): (_S.PROTECTED, _A.RESTORE),
    (_S.WEIGHED, _E.VOICE): (_S.ARMED, _A.NOTHING),
    (_S.WEIGHED, _E.DISMISSED): (_S.REPLYING, _A.RESTORE),
    (_S.WEIGHED, _E.MEANT): (_S.CUT, _A.CUT),
    (_S.WEIGHED, _E.STOP): (_S.LISTENING, _A.CUT),
    (_S.CUT, _E.REPLY): (_S.REPLYING, _A.NOTHING),
    (_S.CUT, _E.OVER): (_S.LISTENING, _A.NOTHING),
    (_S.CUT, _E.DISMISSED): (_S.REPLYING, _A.RESUME),
    (_S.CUT, _E.MEANT): (_S.LISTENING, _A.NOTHING),
    (_S.CUT, _E.STOP): (_S.LISTENING, _A.NOTHING),
}

# Events that may come in a state and change nothing there.
IGNORED: Mapping[BargeInState, frozenset[BargeInEvent]] = {
    _S.LISTENING: frozenset(
        {_E.OVER, _E.PROTECT, _E.RELEASE, _E.VOICE, _E.QUIET, _E.DISMISSED, _E.MEANT, _E.STOP}
    ),
    _S.REPLYING: frozenset({_E.REPLY, _E.RELEASE, _E.QUIET, _E.DISMISSED}),
    _S.PROTECTED: frozenset({_E.REPLY, _E.PROTECT, _E.VOICE, _E.QUIET, _E.DISMISSED, _E.MEANT}),
    _S.ARMED: frozenset({_E.REPLY, _E.RELEASE, _E.VOICE}),
    _S.WEIGHED: frozenset({_E.REPLY, _E.RELEASE, _E.QUIET}),
    _S.CUT: frozenset({_E.PROTECT, _E.RELEASE, _E.VOICE, _E.QUIET}),
}


class CutReason(Enum):
    """Reason for which a reply was cut."""

    DURATION = "duration"
    WORDS = "words"
    STOP_WORD = "stop_word"
    SOUND = "sound"


@dataclass(frozen=True, slots=True)
class Duck:
    """Continue the reply at a lower volume.

    Attributes:
        at_ms: when it was decided.
        gain_db: gain of the bot's voice, at most 0.
    """

    at_ms: int
    gain_db: float


@dataclass(frozen=True, slots=True)
class Restore:
    """Return to full volume."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Flush the whole reply; the next one is at full volume.

    Attributes:
        at_ms: when it was decided.
        reply_id: the reply; None when it has no name yet.
        reason: the reason for the cut.
        voice_ms: how long the caller's voice had lasted.
    """

    at_ms: int
    reply_id: str | None
    reason: CutReason
    voice_ms: int


@dataclass(frozen=True, slots=True)
class ResumeReply:
    """Say the rest of a reply that was cut for nothing; pass the name of the rest to ``on_reply`` at once.

    Attributes:
        at_ms: when it was decided.
        reply_id: the reply that was cut.
        from_word: index of its first word that was not heard; 0 repeats it all.
    """

    at_ms: int
    reply_id: str | None
    from_word: int


Decision = Duck | Restore | Cut | ResumeReply
