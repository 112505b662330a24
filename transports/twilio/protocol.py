"""Adapter of Twilio's messages (``protocols.twilio_media``) to the ``StreamProtocol`` of ``PhoneStream``."""

from collections.abc import Sequence

from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_media import Event, MediaStream, Started, ToCaller
from parley.transports.phone_protocol import Message


class TwilioProtocol:
    """Media stream of Twilio."""

    is_continuous = False

    def __init__(self) -> None:
        self._stream = MediaStream()
        self._to_caller = ToCaller("")

    async def read(self, message: Message) -> Event | None:
        """Return the event of a text message (``StreamProtocol``). Raises ProtocolError for a binary one."""
        if isinstance(message, bytes):
            raise ProtocolError("expected a text message, got bytes", code="invalid_payload")
        event = self._stream.read(message)
        if isinstance(event, Started):
            self._to_caller = ToCaller(event.stream_sid)
        return event

    async def media(self, mu_law: bytes) -> Sequence[Message]:
        """Return one message with audio (``StreamProtocol``)."""
        return (self._to_caller.media(mu_law),)

    async def mark(self, name: str) -> Sequence[Message]:
        """Return the message of a mark, which comes back after the audio before it (``StreamProtocol``)."""
        return (self._to_caller.mark(name),)

    async def clear(self) -> Sequence[Message]:
        """Return the message that drops unplayed audio (``StreamProtocol``)."""
        return (self._to_caller.clear,)
