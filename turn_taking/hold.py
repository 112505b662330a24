"""Hold of a call: its caller pauses it and goes on with it.

Inputs: requests of the caller, a farewell of the bot, and the time. Outputs: whether a hold begins, ends so
that the call goes on, or ends with the call. A hold lasts ``HOLD_MOST_S`` at most, because a call on hold
keeps a line from another caller. The module is pure; times are milliseconds on the session clock.
"""

from collections.abc import Mapping
from enum import Enum

# Longer than a ring at the door takes, and shorter than a meal.
HOLD_MOST_S = 300
# Ends of a hold, as their event has them.
BY_CALLER, BY_TIME, BY_GOODBYE = "caller", "time", "goodbye"


class HoldState(Enum):
    """State of the call."""

    TALKING = "talking"
    HELD = "held"
    LEAVING = "leaving"


class HoldSignal(Enum):
    """Event that may change the state."""

    HOLD = "the caller puts the call on hold"
    GO_ON = "the caller goes on"
    DUE = "the longest time is over"
    FAREWELL = "the bot says goodbye"


class HoldAct(Enum):
    """Act that accompanies a change of state."""

    NOTHING = "nothing"
    BEGIN = "begin"
    RESUME = "resume"
    END = "end"


_S, _E, _A = HoldState, HoldSignal, HoldAct

TRANSITIONS: Mapping[tuple[HoldState, HoldSignal], tuple[HoldState, HoldAct]] = {
    (_S.TALKING, _E.HOLD): (_S.HELD, _A.BEGIN),
    (_S.TALKING, _E.GO_ON): (_S.TALKING, _A.NOTHING),
    (_S.TALKING, _E.FAREWELL): (_S.LEAVING, _A.NOTHING),
    (_S.HELD, _E.HOLD): (_S.HELD, _A.NOTHING),
    (_S.HELD, _E.GO_ON): (_S.TALKING, _A.RESUME),
    (_S.HELD, _E.DUE): (_S.LEAVING, _A.END),
    (_S.HELD, _E.FAREWELL): (_S.LEAVING, _A.END),
    (_S.LEAVING, _E.HOLD): (_S.LEAVING, _A.NOTHING),
    (_S.LEAVING, _E.GO_ON): (_S.LEAVING, _A.NOTHING),
    (_S.LEAVING, _E.FAREWELL): (_S.LEAVING, _A.NOTHING),
}


class HoldMachine:
    """Hold of one call.

    Args:
        most_ms: longest hold.
    """

    def __init__(self, most_ms: int) -> None:
        self._most_ms = most_ms
        self._since_ms = 0
        self.state = HoldState.TALKING

    @property
    def is_held(self) -> bool:
        """True while the call is on hold."""
        return self.state is HoldState.HELD

    def on(self, signal: HoldSignal, at_ms: int) -> HoldAct:
        """Take a signal; return what follows. One that is impossible in the state is an error."""
        self.state, act = TRANSITIONS[self.state, signal]
        if act is HoldAct.BEGIN:
            self._since_ms = at_ms
        return act

    def next_deadline_ms(self) -> int | None:
        """Return when a hold is over at the latest; None without one."""
        return self._since_ms + self._most_ms if self.is_held else None
