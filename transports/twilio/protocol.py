"""Twilio's messages, read and written by ``protocols.twilio_media``, as ``PhoneStream`` needs them."""

from collections.abc import Sequence

from protocols.surface import Refusal
from protocols.twilio_media import Event, MediaStream, Started, ToCaller
from transports.phone_protocol import Message


class TwilioProtocol:
    """One stream of Twilio's."""

    is_continuous = False

    def __init__(self) -> None:
        self._stream = MediaStream()
        self._to_caller = ToCaller("")

    async def read(self, message: Message) -> Event | None:
        """See ``StreamProtocol``."""
        if isinstance(message, bytes):
            raise Refusal("expected a text message, got bytes", code="invalid_payload")
        event = self._stream.read(message)
        if isinstance(event, Started):
            self._to_caller = ToCaller(event.stream_sid)
        return event

    async def media(self, mu_law: bytes) -> Sequence[Message]:
        """See ``StreamProtocol``."""
        return (self._to_caller.media(mu_law),)

    async def mark(self, name: str) -> Sequence[Message]:
        """See ``StreamProtocol``: it comes back when what was sent before it has been played."""
        return (self._to_caller.mark(name),)

    async def clear(self) -> Sequence[Message]:
        """See ``StreamProtocol``."""
        return (self._to_caller.clear,)
