"""Audio streams of Plivo.

A stream has no message before ``start`` and none at its end: when the caller is gone, the socket closes. A
mark is a ``checkpoint``. It comes back as ``playedStream`` when it has been reached, and does not come back
after a ``clearAudio``.

Source: plivo.com/docs, "Audio Streaming".
"""

from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer

from parley.protocols.client_protocol import Message as JsonMessage
from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_media import ENCODING, RATE_HZ, Started, part, text
from parley.transports.telephony.serialized import (
    NetworkMessageKind,
    SerializedStream,
    check_format,
    check_payload,
)


class PlivoStream(SerializedStream):
    """Audio stream of Plivo."""

    kinds = {
        "start": NetworkMessageKind.STARTED,
        "media": NetworkMessageKind.AUDIO,
        "dtmf": NetworkMessageKind.KEY,
        "playedStream": NetworkMessageKind.MARK_BACK,
        "clearedAudio": NetworkMessageKind.NOTHING,
        "stop": NetworkMessageKind.STOPPED,
    }

    def started(self, message: JsonMessage) -> tuple[Started, FrameSerializer]:
        facts = part(message, "start")
        check_format(part(facts, "mediaFormat"), "sampleRate", encoding=(ENCODING,))
        if facts.get("tracks", ["inbound"]) != ["inbound"]:
            raise ProtocolError(
                "tracks: expected only the caller's", code="not_supported", param="start.tracks"
            )
        stream_id = text(facts, "streamId")
        serializer = PlivoFrameSerializer(
            stream_id,
            # The closed stream ends the call.
            params=PlivoFrameSerializer.InputParams(auto_hang_up=False, sample_rate=RATE_HZ),
        )
        return Started(stream_id, text(facts, "callId"), ""), serializer

    def stream_id(self, message: JsonMessage) -> str:
        return text(message, "streamId")

    def check_audio(self, message: JsonMessage) -> None:
        media = part(message, "media")
        if media.get("track", "inbound") != "inbound":
            raise ProtocolError("media.track: expected inbound", code="invalid_payload", param="media.track")
        check_payload(media.get("payload"))

    def mark_message(self, name: str) -> JsonMessage:
        return {"event": "checkpoint", "streamId": self._stream_id, "name": name}

    def mark_name(self, message: JsonMessage) -> str:
        return text(message, "name")
