"""A Starlette WebSocket as the other side of a call."""

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from protocols.surface import Refusal

# A close frame has room for 123 bytes of UTF-8.
REASON_BYTES = 120
# RFC 6455, 7.4.1.
TOO_LARGE = 1009


class StarlettePeer:
    """See ``transports.websocket.session.Peer``.

    Args:
        socket: accepted.
        most_bytes: of a message; larger ones are refused.
    """

    def __init__(self, socket: WebSocket, *, most_bytes: int) -> None:
        self._socket = socket
        self._most_bytes = most_bytes

    async def receive(self) -> str | None:
        """See ``Peer``."""
        try:
            message = await self._socket.receive()
        except (WebSocketDisconnect, RuntimeError):
            return None
        if message["type"] != "websocket.receive":
            if message.get("code") == TOO_LARGE:
                # The socket is closed with that; the next call says so.
                raise Refusal("a message was larger than one side reads", code="too_large")
            return None
        text = message.get("text")
        if not isinstance(text, str):
            raise Refusal("expected a text message, got bytes", code="invalid_payload")
        if len(text) > self._most_bytes:
            raise Refusal(f"the message is over {self._most_bytes} bytes", code="too_large")
        return text

    async def send(self, text: str) -> bool:
        """See ``Peer``."""
        try:
            await self._socket.send_text(text)
        except (WebSocketDisconnect, RuntimeError, OSError):
            return False
        return True

    async def close(self, code: int, reason: str) -> None:
        """See ``Peer``."""
        if WebSocketState.DISCONNECTED in (self._socket.application_state, self._socket.client_state):
            return
        short = reason.encode()[:REASON_BYTES].decode(errors="ignore")
        try:
            await self._socket.close(code, short)
        except (WebSocketDisconnect, RuntimeError, OSError):
            return
