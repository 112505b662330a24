"""State table of final words whose meaning is open: data that decides nothing. ``words`` runs it."""

from collections.abc import Mapping
from enum import Enum


class WordsPhase(Enum):
    """State of the final words over the bot."""

    SETTLED = "nothing is open"
    HELD = "words wait for the spotter"
    DOUBTED = "the last words were not believed, and may be the caller's all the same"
    HELD_AND_DOUBTED = "words wait, after words that were not believed"

    @property
    def holds(self) -> bool:
        """Return whether words wait for the spotter."""
        return self in (WordsPhase.HELD, WordsPhase.HELD_AND_DOUBTED)

    @property
    def doubts(self) -> bool:
        """Return whether the last words that were judged are not believed."""
        return self in (WordsPhase.DOUBTED, WordsPhase.HELD_AND_DOUBTED)


class WordsEvent(Enum):
    """Event that may change the state."""

    HOLD = "words wait for the spotter"
    SETTLE = "the words that waited are decided, or are of no account any more"
    DOUBT = "words are not believed, and may be the caller's"
    FORGET = "the words that were not believed are in a turn, or are taken back; others were judged"


_S, _E = WordsPhase, WordsEvent

TRANSITIONS: Mapping[tuple[WordsPhase, WordsEvent], WordsPhase] = {
    (_S.SETTLED, _E.HOLD): _S.HELD,
    (_S.SETTLED, _E.SETTLE): _S.SETTLED,
    (_S.SETTLED, _E.DOUBT): _S.DOUBTED,
    (_S.SETTLED, _E.FORGET): _S.SETTLED,
    (_S.HELD, _E.HOLD): _S.HELD,
    (_S.HELD, _E.SETTLE): _S.SETTLED,
    (_S.HELD, _E.DOUBT): _S.HELD_AND_DOUBTED,
    (_S.HELD, _E.FORGET): _S.HELD,
    (_S.DOUBTED, _E.HOLD): _S.HELD_AND_DOUBTED,
    (_S.DOUBTED, _E.SETTLE): _S.DOUBTED,
    (_S.DOUBTED, _E.DOUBT): _S.DOUBTED,
    (_S.DOUBTED, _E.FORGET): _S.SETTLED,
    (_S.HELD_AND_DOUBTED, _E.HOLD): _S.HELD_AND_DOUBTED,
    (_S.HELD_AND_DOUBTED, _E.SETTLE): _S.DOUBTED,
    (_S.HELD_AND_DOUBTED, _E.DOUBT): _S.HELD_AND_DOUBTED,
    (_S.HELD_AND_DOUBTED, _E.FORGET): _S.HELD,
}
