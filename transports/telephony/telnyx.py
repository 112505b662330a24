"""Media streams of Telnyx.

Telnyx states at the beginning of a stream in which law the caller's audio comes, mu or A. It is sent mu-law,
which the answer to the call has requested (``protocols.texml``). A stream names its call by the
``call_control_id``, which is the ``CallSid`` of the webhook.

Source: developers.telnyx.com, "Stream call media over WebSocket".
"""

from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer

from parley.protocols.client_protocol import Message as JsonMessage
from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_media import RATE_HZ, Started, part, text
from parley.transports.telephony.serialized import (
    NetworkMessageKind,
    SerializedStream,
    check_format,
    check_payload,
)

SENT = "PCMU"


class TelnyxStream(SerializedStream):
    """Media stream of Telnyx."""

    kinds = {
        "connected": NetworkMessageKind.NOTHING,
        "start": NetworkMessageKind.STARTED,
        "media": NetworkMessageKind.AUDIO,
        "dtmf": NetworkMessageKind.KEY,
        "mark": NetworkMessageKind.MARK_BACK,
        "stop": NetworkMessageKind.STOPPED,
        "error": NetworkMessageKind.NOTHING,
    }

    def started(self, message: JsonMessage) -> tuple[Started, FrameSerializer]:
        facts = part(message, "start")
        format_ = part(facts, "media_format")
        check_format(format_, "sample_rate", encoding=("PCMU", "PCMA"), channels=(1,))
        stream_id = text(message, "stream_id")
        serializer = TelnyxFrameSerializer(
            stream_id,
            outbound_encoding=text(format_, "encoding"),
            inbound_encoding=SENT,
            # The closed stream ends the call.
            params=TelnyxFrameSerializer.InputParams(auto_hang_up=False, sample_rate=RATE_HZ),
        )
        return Started(stream_id, text(facts, "call_control_id"), ""), serializer

    def stream_id(self, message: JsonMessage) -> str:
        return text(message, "stream_id")

    def check_audio(self, message: JsonMessage) -> None:
        media = part(message, "media")
        if media.get("track") != "inbound":
            raise ProtocolError("media.track: expected inbound", code="invalid_payload", param="media.track")
        check_payload(media.get("payload"))

    def mark_message(self, name: str) -> JsonMessage:
        return {"event": "mark", "mark": {"name": name}}

    def mark_name(self, message: JsonMessage) -> str:
        return text(part(message, "mark"), "name")
