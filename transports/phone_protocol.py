"""What ``PhoneStream`` needs of one telephone network: how its messages are read and written."""

from collections.abc import Sequence
from typing import Protocol

from protocols.twilio_media import Event

Message = str | bytes


class StreamProtocol(Protocol):
    """Messages of one stream, from its first one to its end. Audio is mu-law at 8 kHz on this side.

    Attributes:
        is_continuous: audio has to go on while the bot says nothing: what was sent last leaves with what
            follows it.
    """

    is_continuous: bool

    async def read(self, message: Message) -> Event | None:
        """Return what a message says; None where that is nothing.

        Raises:
            Refusal: it is none, or comes in the wrong order.
        """
        ...

    async def media(self, mu_law: bytes) -> Sequence[Message]:
        """Return the messages that have audio played behind what was sent before; maybe none yet."""
        ...

    async def mark(self, name: str) -> Sequence[Message]:
        """Return the messages behind which the network reports that what is before them has been played."""
        ...

    async def clear(self) -> Sequence[Message]:
        """Return the messages that have what is not played yet forgotten."""
        ...
