"""Starlette's WebSocket as the other side of a call."""

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from parley.protocols.client_protocol import ProtocolError

# A close frame has room for 123 bytes of UTF-8.
REASON_BYTES = 120
# RFC 6455, 7.4.1.
TOO_LARGE = 1009


class MixedPeer:
    """Peer that sends and takes text and binary messages.

    Args:
        socket: an accepted socket.
        most_bytes: largest message; larger ones are refused.
    """

    def __init__(self, socket: WebSocket, *, most_bytes: int) -> None:
        self._socket = socket
        self._most_bytes = most_bytes

    async def take(self) -> str | bytes | None:
        """Return the next message; None when the socket is closed.

        Raises:
            ProtocolError: the message is too large.
        """
        try:
            message = await self._socket.receive()
        except (WebSocketDisconnect, RuntimeError):
            return None
        if message["type"] != "websocket.receive":
            if message.get("code") == TOO_LARGE:
                # The socket is closed with that code; the next call returns None.
                raise ProtocolError("a message was larger than the limit", code="too_large")
            return None
        text = message.get("text")
        data: str | bytes = text if isinstance(text, str) else message.get("bytes") or b""
        if len(data) > self._most_bytes:
            raise ProtocolError(f"the message is over {self._most_bytes} bytes", code="too_large")
        return data

    async def receive(self) -> str | bytes | None:
        """Return the next message, of text or bytes (``transports.twilio.stream.PhonePeer``)."""
        return await self.take()

    async def send(self, message: str | bytes) -> bool:
        """Send a message; return False when the socket is closed (``SocketPeer``)."""
        try:
            if isinstance(message, bytes):
                await self._socket.send_bytes(message)
            else:
                await self._socket.send_text(message)
        except (WebSocketDisconnect, RuntimeError, OSError):
            return False
        return True

    async def close(self, code: int, reason: str) -> None:
        """Close the socket with the first ``REASON_BYTES`` of the reason; never raises (``SocketPeer``)."""
        if WebSocketState.DISCONNECTED in (self._socket.application_state, self._socket.client_state):
            return
        short = reason.encode()[:REASON_BYTES].decode(errors="ignore")
        try:
            await self._socket.close(code, short)
        except (WebSocketDisconnect, RuntimeError, OSError):
            return


class StarlettePeer(MixedPeer):
    """Peer that sends text alone; see ``transports.websocket.session.SocketPeer``."""

    async def receive(self) -> str | None:
        """Return the next message (``SocketPeer``). Raises ProtocolError for a binary one."""
        message = await self.take()
        if isinstance(message, bytes):
            raise ProtocolError("expected a text message, got bytes", code="invalid_payload")
        return message
