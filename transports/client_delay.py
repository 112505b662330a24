"""Transports that know how long their audio takes to the ear."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class TellsClientDelay(Protocol):
    """A transport that states or measures the time from a packet's leaving to its sound at the ear."""

    def tell_client_delay(self, told: Callable[[int], None]) -> None:
        """Have ``told`` called on the event loop, in milliseconds, now or whenever there is news."""
        ...


@runtime_checkable
class TellsUnplayed(Protocol):
    """A transport whose client flushes: it knows how much of what had its time is not played then."""

    def tell_unplayed(self, told: Callable[[int], None]) -> None:
        """Have ``told`` called on the event loop, in milliseconds, now or whenever there is news."""
        ...
