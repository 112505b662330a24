"""Parameters with which any transport is opened, and the interface that reports a quiet peer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from parley.runtime.event_stream import CallEvents

# A language model takes one picture a turn, a full-duplex engine one in each of its units.
PICTURES_PER_S = 2.0
LONGEST_PX = 1_344


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """Requirements of a conversation for its transport.

    Attributes:
        sees: pictures of the caller are required.
        pictures_per_s: of a camera, where the transport chooses.
        longest_px: side to which a picture is scaled down before it goes on, where the transport chooses.
        vanish_ms: quiet time after which a peer counts as gone, where the transport can measure it.
        on_packet: called with the PCM of each packet of the bot's audio, where a transport reports playout;
            must not block.
        events: of the call; the delay of the bot's audio to the caller is published there.
    """

    sees: bool
    vanish_ms: int
    on_packet: Callable[[bytes], None]
    events: CallEvents
    pictures_per_s: float = PICTURES_PER_S
    longest_px: int = LONGEST_PX


@runtime_checkable
class ReportsQuiet(Protocol):
    """Transport that measures for how long its peer has given no sign of life."""

    def quiet_ms(self) -> int:
        """Return that time in milliseconds; 0 before the call is up."""
        ...
