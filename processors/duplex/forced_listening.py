"""Decide when an engine is made to listen, and which part of its speech is dropped.

A caller who interrupts an engine that speaks makes it listen in the next unit, and as long as the caller
continues. Speech of the unit that was in progress is dropped; since the engine believes that it was said, it
has one more reason to listen. The module is pure.
"""

from enum import Enum

from parley.core.errors import IllegalTransition


class Hold(Enum):
    """Part of a reply that an interruption holds back.

    Attributes:
        NOTHING: the engine is free to talk.
        UNIT: speech of the unit that is in progress.
        NEXT: speech of the next unit.
        BOTH: both.
    """

    NOTHING = "nothing"
    UNIT = "unit"
    NEXT = "next"
    BOTH = "both"


class Cue(Enum):
    """Events that change what is held back."""

    INTERRUPTED = "interrupted"
    INTERRUPTED_SPEAKING = "interrupted while the engine speaks"
    UNIT_BEGUN = "unit begun"
    UNIT_BEGUN_OVER_CALLER = "unit begun while the caller speaks"
    SPOKE = "the engine spoke"


TRANSITIONS: dict[tuple[Hold, Cue], Hold] = {
    (Hold.NOTHING, Cue.INTERRUPTED): Hold.UNIT,
    (Hold.NOTHING, Cue.INTERRUPTED_SPEAKING): Hold.BOTH,
    (Hold.NOTHING, Cue.UNIT_BEGUN): Hold.NOTHING,
    (Hold.NOTHING, Cue.UNIT_BEGUN_OVER_CALLER): Hold.NOTHING,
    (Hold.NOTHING, Cue.SPOKE): Hold.NOTHING,
    (Hold.UNIT, Cue.INTERRUPTED): Hold.UNIT,
    (Hold.UNIT, Cue.INTERRUPTED_SPEAKING): Hold.BOTH,
    (Hold.UNIT, Cue.UNIT_BEGUN): Hold.NOTHING,
    (Hold.UNIT, Cue.UNIT_BEGUN_OVER_CALLER): Hold.NOTHING,
    (Hold.UNIT, Cue.SPOKE): Hold.BOTH,
    (Hold.NEXT, Cue.INTERRUPTED): Hold.BOTH,
    (Hold.NEXT, Cue.INTERRUPTED_SPEAKING): Hold.BOTH,
    (Hold.NEXT, Cue.UNIT_BEGUN): Hold.NOTHING,
    (Hold.NEXT, Cue.UNIT_BEGUN_OVER_CALLER): Hold.NEXT,
    (Hold.NEXT, Cue.SPOKE): Hold.NEXT,
    (Hold.BOTH, Cue.INTERRUPTED): Hold.BOTH,
    (Hold.BOTH, Cue.INTERRUPTED_SPEAKING): Hold.BOTH,
    (Hold.BOTH, Cue.UNIT_BEGUN): Hold.NOTHING,
    (Hold.BOTH, Cue.UNIT_BEGUN_OVER_CALLER): Hold.NEXT,
    (Hold.BOTH, Cue.SPOKE): Hold.BOTH,
}


class ForcedListening:
    """State machine of one call.

    Attributes:
        caller_speaks: True when the caller has the floor.
    """

    def __init__(self) -> None:
        self._hold = Hold.NOTHING
        self.caller_speaks = False

    def follow_caller(self, *, speaks: bool) -> None:
        """Record that the caller takes the floor, or gives it back."""
        self.caller_speaks = speaks

    def interrupt(self, *, engine_speaks: bool) -> None:
        """Handle an interruption: only an engine that speaks has something to give up."""
        self._enter(Cue.INTERRUPTED_SPEAKING if engine_speaks else Cue.INTERRUPTED)

    def begin_unit(self) -> bool:
        """Return whether the engine has to listen in the unit that begins."""
        before = self._enter(Cue.UNIT_BEGUN_OVER_CALLER if self.caller_speaks else Cue.UNIT_BEGUN)
        return before in (Hold.NEXT, Hold.BOTH)

    def drops(self) -> bool:
        """Return whether the engine's speech in its unit is dropped."""
        return self._enter(Cue.SPOKE) in (Hold.UNIT, Hold.BOTH)

    def _enter(self, cue: Cue) -> Hold:
        before = self._hold
        if (before, cue) not in TRANSITIONS:
            raise IllegalTransition(before.value, cue.value)
        self._hold = TRANSITIONS[before, cue]
        return before
