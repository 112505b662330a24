"""Transports whose device says how long it holds the bot's audio."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class StatesLatency(Protocol):
    """A transport of a device: its packets are told with the moment at which it took them."""

    @property
    def output_latency_ms(self) -> int:
        """Time from a device taking audio to its sound leaving the loudspeaker, in milliseconds."""
        ...
