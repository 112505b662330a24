"""Parameters with which any transport is opened, and the interface that reports a quiet peer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from parley.runtime.event_stream import CallEvents


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """Requirements of a conversation for its transport.

    Attributes:
        sees: pictures of the caller are required.
        vanish_ms: quiet time after which a peer counts as gone, where the transport can measure it.
        jitter_buffer: leave the caller's packets in aiortc's jitter buffer.
        on_packet: called with the PCM of each packet of the bot's audio, where a transport reports playout;
            must not block.
        events: of the call, which are told how long the bot's audio takes to the ear.
    """

    sees: bool
    vanish_ms: int
    jitter_buffer: bool
    on_packet: Callable[[bytes], None]
    events: CallEvents


@runtime_checkable
class ReportsQuiet(Protocol):
    """Transport that measures for how long its peer has given no sign of life."""

    def quiet_ms(self) -> int:
        """Return that time in milliseconds; 0 before the call is up."""
        ...
