"""Media by which the caller of a session takes part at the moment, and the calls that bring them. Pure."""

from collections.abc import Hashable

from parley.core.tiers import Medium


class MediaInUse:
    """Media of one session; without a call the caller writes.

    A call that goes on over a new connection has both for a moment, so that each medium counts by its call.
    """

    def __init__(self) -> None:
        self._uses: set[tuple[Medium, Hashable]] = set()

    @property
    def now(self) -> frozenset[Medium]:
        """Media that some call brings."""
        return frozenset(medium for medium, _ in self._uses)

    def begin(self, medium: Medium, call: Hashable) -> None:
        """Note that a call brings a medium."""
        self._uses.add((medium, call))

    def end(self, medium: Medium, call: Hashable) -> bool:
        """Note that a call brings a medium no longer; return whether the caller has left the last call.

        The end of its voice is the end of the call, with all of its media.
        """
        was_in_call = bool(self._uses)
        gone = {each for each in self._uses if each[1] == call and medium in (Medium.VOICE, each[0])}
        self._uses -= gone
        return was_in_call and not self._uses
