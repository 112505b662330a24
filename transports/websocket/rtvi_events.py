"""Events of a call that reach the transport as messages for RTVI clients."""

from typing import Any

from parley.protocols.client_protocol import Happening, ProtocolError, QueueUpdate, RecognisedWords


def event_of_rtvi(message: dict[str, Any]) -> Happening | ProtocolError | None:
    """Return the event of a message for RTVI clients, where a protocol reports it too; else None."""
    data = message.get("data")
    if not isinstance(data, dict):
        return None
    if message.get("type") == "user-transcription":
        return RecognisedWords(str(data.get("text", "")), bool(data.get("final")))
    if message.get("type") == "error-response":
        return ProtocolError(str(data.get("error", "")), code="not_supported")
    if message.get("type") == "server-message" and data.get("kind") == "queue" and not data.get("refused"):
        wait_s = data.get("wait_s")
        return QueueUpdate(
            int(data.get("position", 0)),
            wait_s if isinstance(wait_s, (int, float)) else None,
            str(data.get("ticket_id", "")),
            int(data.get("length", 0)),
        )
    return None
