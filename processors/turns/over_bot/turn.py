"""State of the caller's turn, from the viewpoint of barge-in."""

from enum import Enum


class TurnPhase(Enum):
    """State of the caller's turn."""

    CLOSED = "closed"
    # Words that were meant came over a reply that may not be interrupted: a turn begins when it is over.
    HELD = "held"
    OPEN = "open"
    # Open, and none of its words were meant after all.
    VOID = "void"


class TurnOverBot:
    """The turn of one caller.

    Attributes:
        phase: the current state.
        began_over_reply: True when a voice over a reply began it.
        has_words: True when it has words that were meant.
    """

    def __init__(self) -> None:
        self.phase = TurnPhase.CLOSED
        self.began_over_reply = self.has_words = False

    @property
    def is_open(self) -> bool:
        """Return whether a turn is open."""
        return self.phase in (TurnPhase.OPEN, TurnPhase.VOID)

    @property
    def is_void(self) -> bool:
        """Return whether the open turn is void."""
        return self.phase is TurnPhase.VOID

    @property
    def has_held_words(self) -> bool:
        """Return whether words wait for a turn."""
        return self.phase is TurnPhase.HELD

    def start(self, *, over_reply: bool) -> None:
        """Open a turn, with the words that were held."""
        self.began_over_reply, self.has_words = over_reply, self.has_held_words
        self.phase = TurnPhase.OPEN

    def note_words(self, *, meant: bool) -> None:
        """Record whether the turn has words that were meant."""
        self.has_words = meant

    def stop(self) -> None:
        """Close the turn."""
        if self.is_open:
            self.phase = TurnPhase.CLOSED

    def hold_words(self) -> None:
        """Hold words for a turn to come."""
        if self.phase is TurnPhase.CLOSED:
            self.phase = TurnPhase.HELD

    def void(self) -> None:
        """Mark the open turn as void."""
        if self.is_open:
            self.phase = TurnPhase.VOID

    def take_up(self) -> None:
        """Mark the open turn as valid after all."""
        if self.is_open:
            self.phase = TurnPhase.OPEN
