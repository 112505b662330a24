"""Streams of Exotel's Voicebot applet.

Audio is 16-bit PCM at 8 kHz in base64. Exotel requires pieces of at least 100 ms that are multiples of 320
bytes, so packets of 20 ms are gathered here, five at a time. (The documentation says 100 ms and 3.2 KB, which
are 200 ms at this rate; Exotel itself sends 100 ms.) A mark waits for the piece that holds the audio before
it. The end of a reply waits for the noise or the silence that fills its piece, 80 ms at most.

Source: developer.exotel.com, "WebSocket protocol" and "Working with the Stream and Voicebot Applet".
"""

from collections.abc import Sequence

from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.exotel import ExotelFrameSerializer

from parley.protocols.client_protocol import Message as JsonMessage
from parley.protocols.twilio_media import PACKET_BYTES, RATE_HZ, Started, part, text
from parley.transports.phone_protocol import Message
from parley.transports.telephony.serialized import (
    NetworkMessageKind,
    SerializedStream,
    check_format,
    check_payload,
)

PIECE_BYTES = 5 * PACKET_BYTES


class ExotelStream(SerializedStream):
    """Stream of Exotel's Voicebot applet."""

    kinds = {
        "connected": NetworkMessageKind.NOTHING,
        "start": NetworkMessageKind.STARTED,
        "media": NetworkMessageKind.AUDIO,
        "dtmf": NetworkMessageKind.KEY,
        "mark": NetworkMessageKind.MARK_BACK,
        "stop": NetworkMessageKind.STOPPED,
    }
    is_continuous = True

    def __init__(self) -> None:
        super().__init__()
        self._gathered = b""
        # To be sent after the piece that is being gathered.
        self._marks: list[Message] = []

    def started(self, message: JsonMessage) -> tuple[Started, FrameSerializer]:
        facts = part(message, "start")
        check_format(part(facts, "media_format"), "sample_rate")
        stream_id = text(message, "stream_sid")
        serializer = ExotelFrameSerializer(
            stream_id, params=ExotelFrameSerializer.InputParams(sample_rate=RATE_HZ)
        )
        return Started(stream_id, text(facts, "call_sid"), ""), serializer

    def stream_id(self, message: JsonMessage) -> str:
        return text(message, "stream_sid")

    def check_audio(self, message: JsonMessage) -> None:
        check_payload(part(message, "media").get("payload"))

    async def media(self, mu_law: bytes) -> Sequence[Message]:
        self._gathered += mu_law
        if len(self._gathered) < PIECE_BYTES:
            return ()
        piece, self._gathered = self._gathered, b""
        marks, self._marks = self._marks, []
        return (*await super().media(piece), *marks)

    async def mark(self, name: str) -> Sequence[Message]:
        messages = await super().mark(name)
        if not self._gathered:
            return messages
        self._marks.extend(messages)
        return ()

    async def clear(self) -> Sequence[Message]:
        self._gathered, self._marks = b"", []
        return await super().clear()

    def mark_message(self, name: str) -> JsonMessage:
        return {"event": "mark", "stream_sid": self._stream_id, "mark": {"name": name}}

    def mark_name(self, message: JsonMessage) -> str:
        return text(part(message, "mark"), "name")
