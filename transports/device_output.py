"""Transports whose device takes the bot's audio on a thread of its own."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class TellsTaken(Protocol):
    """A transport that knows better than the event loop when its audio was played."""

    @property
    def output_latency_ms(self) -> int:
        """From the moment a device takes audio to the moment its sound leaves the loudspeaker."""
        ...

    def tell_taken(self, told: Callable[[bytes, int, int], None]) -> None:
        """Have ``told`` called on the event loop for every piece: PCM, its rate, when it was taken.

        The time is the event loop's (``LoopClock``), in microseconds.
        """
        ...
