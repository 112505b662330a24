"""Interfaces of a phone call: the messages of its network below, and its stream above.

``PhoneStream`` reads and writes the messages of a network through a ``StreamProtocol``. The transport of a
call, and the session that it belongs to, use the stream as a ``CallerStream``: that of this process, or one
that another process keeps (``transports.keeping``).
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from parley.protocols.twilio_media import Event, Started

if TYPE_CHECKING:
    from parley.transports.twilio.stream import Listener, PhoneTuning

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


class CallerStream(Protocol):
    """Media stream of one call; its members are those of ``transports.twilio.stream.PhoneStream``."""

    settings: "PhoneTuning"
    gone: asyncio.Event
    end: tuple[str, str]
    keys: asyncio.Queue[tuple[str, int]]

    @property
    def started(self) -> Started | None: ...

    @property
    def quiet_ms(self) -> int: ...

    async def open(self) -> Started | None: ...

    async def close(self, reason: str = "") -> None: ...

    def listen(self, listener: "Listener") -> None: ...

    def stop_listening(self, listener: "Listener") -> None: ...

    async def say(self, mu_law: bytes) -> bool: ...

    def press(self, mu_law: bytes) -> bool: ...

    def mark(self) -> str: ...

    def end_reply(self) -> None: ...

    def clear(self) -> None: ...

    async def played_out(self, within_s: float) -> bool: ...
