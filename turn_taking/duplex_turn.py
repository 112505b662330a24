"""State table of the caller's turn in a full-duplex call. It contains data and decides nothing.

``duplex_policy`` runs it.
"""

from collections.abc import Mapping
from enum import Enum


class DuplexTurn(Enum):
    """State of the caller's turn."""

    NONE = "no turn, and the last one had no words"
    # What interrupted a reply may turn out to be unintended only where no words came.
    ASKED = "no turn, and the last one had words"
    OPEN = "open, without words"
    OPEN_CUT = "open, without words, and it cut a reply"
    WORDED = "open, with words"
    WORDED_CUT = "open, with words, and it cut a reply"

    @property
    def is_open(self) -> bool:
        """Return whether a turn is open."""
        return self not in (DuplexTurn.NONE, DuplexTurn.ASKED)

    @property
    def has_words(self) -> bool:
        """Return whether the open turn, or else the last one, has words that were meant."""
        return self in (DuplexTurn.ASKED, DuplexTurn.WORDED, DuplexTurn.WORDED_CUT)

    @property
    def has_cut(self) -> bool:
        """Return whether the open turn cut a reply."""
        return self in (DuplexTurn.OPEN_CUT, DuplexTurn.WORDED_CUT)


class DuplexTurnEvent(Enum):
    """Event that may change the state."""

    BEGINS = "the caller has the floor"
    WORDS = "words that were meant"
    CUT = "a reply is cut"
    ENDS = "the turn is over"
    RESUMES = "the reply that was cut is resumed"


_S, _E = DuplexTurn, DuplexTurnEvent

TRANSITIONS: Mapping[tuple[DuplexTurn, DuplexTurnEvent], DuplexTurn] = {
    (_S.NONE, _E.BEGINS): _S.OPEN,
    (_S.NONE, _E.RESUMES): _S.NONE,
    (_S.ASKED, _E.BEGINS): _S.OPEN,
    (_S.ASKED, _E.RESUMES): _S.ASKED,
    (_S.OPEN, _E.BEGINS): _S.OPEN,
    (_S.OPEN, _E.WORDS): _S.WORDED,
    (_S.OPEN, _E.CUT): _S.OPEN_CUT,
    (_S.OPEN, _E.ENDS): _S.NONE,
    (_S.OPEN, _E.RESUMES): _S.NONE,
    (_S.OPEN_CUT, _E.BEGINS): _S.OPEN_CUT,
    (_S.OPEN_CUT, _E.WORDS): _S.WORDED_CUT,
    (_S.OPEN_CUT, _E.CUT): _S.OPEN_CUT,
    (_S.OPEN_CUT, _E.ENDS): _S.NONE,
    (_S.OPEN_CUT, _E.RESUMES): _S.NONE,
    (_S.WORDED, _E.BEGINS): _S.WORDED,
    (_S.WORDED, _E.WORDS): _S.WORDED,
    (_S.WORDED, _E.CUT): _S.WORDED_CUT,
    (_S.WORDED, _E.ENDS): _S.ASKED,
    (_S.WORDED, _E.RESUMES): _S.WORDED,
    (_S.WORDED_CUT, _E.BEGINS): _S.WORDED_CUT,
    (_S.WORDED_CUT, _E.WORDS): _S.WORDED_CUT,
    (_S.WORDED_CUT, _E.CUT): _S.WORDED_CUT,
    (_S.WORDED_CUT, _E.ENDS): _S.ASKED,
    (_S.WORDED_CUT, _E.RESUMES): _S.WORDED_CUT,
}
