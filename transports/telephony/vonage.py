"""WebSockets of Vonage's Voice API.

Audio comes in binary messages, as 16-bit PCM at 8 kHz, which the answer to the call has requested
(``protocols.vonage``); all other messages are text. A socket names neither a stream nor a call: the call's
name comes back from the answer, in a header. A mark is a ``notify``. When the caller is gone, the socket
closes.

Source: developer.vonage.com, "WebSockets" of the Voice API.
"""

from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer

from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.protocols.client_protocol import Message as JsonMessage
from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_media import MOST_PAYLOAD_BYTES, RATE_HZ, Event, Started, part, text
from parley.protocols.vonage import CONTENT_TYPE
from parley.transports.telephony.serialized import NetworkMessageKind, SerializedStream


class VonageStream(SerializedStream):
    """Socket of Vonage's Voice API."""

    kinds = {
        "websocket:connected": NetworkMessageKind.STARTED,
        "websocket:dtmf": NetworkMessageKind.KEY,
        "websocket:notify": NetworkMessageKind.MARK_BACK,
        "websocket:cleared": NetworkMessageKind.NOTHING,
    }

    def started(self, message: JsonMessage) -> tuple[Started, FrameSerializer]:
        if message.get("content-type") != CONTENT_TYPE:
            raise ProtocolError(f"expected {CONTENT_TYPE}", code="not_supported", param="content-type")
        call_id = text(message, "call")
        serializer = VonageFrameSerializer(
            VonageFrameSerializer.InputParams(vonage_sample_rate=RATE_HZ, sample_rate=RATE_HZ)
        )
        return Started(call_id, call_id, ""), serializer

    async def read_bytes(self, message: bytes) -> Event | None:
        if self._serializer is None:
            raise ProtocolError("audio before the start", code="wrong_order")
        if len(message) > MOST_PAYLOAD_BYTES * PCM_BYTES_PER_SAMPLE or len(message) % PCM_BYTES_PER_SAMPLE:
            raise ProtocolError("audio: too long, or not a whole number of samples", code="invalid_payload")
        return await self._translated(self._serializer, message)

    def key(self, message: JsonMessage) -> str:
        return text(message, "digit")

    def check_audio(self, message: JsonMessage) -> None:
        """Refuse audio in a text message: it comes in binary messages only."""
        raise ProtocolError("expected audio as bytes", code="invalid_payload")

    def mark_message(self, name: str) -> JsonMessage:
        return {"action": "notify", "payload": {"name": name}}

    def mark_name(self, message: JsonMessage) -> str:
        return text(part(message, "payload"), "name")
