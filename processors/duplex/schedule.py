"""Schedule units on a grid that does not move, whatever a unit has cost.

Unit n is due when the units before it have passed, counted from the first. After a late unit the next one is
taken at once. Missed units are left out, not made up for: an engine that needs one and a half units for each
takes two of three, and never falls behind by more than its current one.

The module is pure: times come in, in microseconds on any clock.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Due:
    """A unit that is to be taken.

    Attributes:
        slot: its place on the grid.
        at_us: when it is due.
        missed: number of units before it that were due and not taken.
    """

    slot: int
    at_us: int
    missed: int


class UnitSchedule:
    """Unit schedule of one conversation.

    Args:
        unit_ms: length of a unit.
        first_unit_ms: length of the first one.
        began_us: when the first one begins; it is due at its end.
    """

    def __init__(self, unit_ms: int, first_unit_ms: int, began_us: int) -> None:
        self._unit_us = unit_ms * 1000
        self._first_us = began_us + first_unit_ms * 1000
        self._next = 0

    def due(self, now_us: int) -> Due:
        """Return the next unit to take; the latest one that is due when there are several."""
        passed = (now_us - self._first_us) // self._unit_us
        slot = max(self._next, passed)
        return Due(slot, self._first_us + slot * self._unit_us, slot - self._next)

    def taken(self, due: Due) -> None:
        """Mark a unit as taken: the next one follows it."""
        self._next = due.slot + 1
