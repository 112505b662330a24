"""Interface through which ``PhoneStream`` reads and writes the messages of one phone network."""

from collections.abc import Sequence
from typing import Protocol

from parley.protocols.twilio_media import Event

Message = str | bytes


class StreamProtocol(Protocol):
    """Messages of one stream, from its first one to its end. Audio is mu-law at 8 kHz on this side.

    Attributes:
        is_continuous: audio must go on while the bot is silent, because the last piece sent leaves only with
            the audio that follows it.
    """

    is_continuous: bool

    async def read(self, message: Message) -> Event | None:
        """Return the event that a message carries; None when it carries none.

        Raises:
            ProtocolError: the message is malformed, or comes in the wrong order.
        """
        ...

    async def media(self, mu_law: bytes) -> Sequence[Message]:
        """Return the messages that queue audio for playback after what was sent before; possibly none yet."""
        ...

    async def mark(self, name: str) -> Sequence[Message]:
        """Return the messages that make the network report when all audio sent before them was played."""
        ...

    async def clear(self) -> Sequence[Message]:
        """Return the messages that make the network discard audio that has not been played."""
        ...
