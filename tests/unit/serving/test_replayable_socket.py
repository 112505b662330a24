"""Messages of a socket that are read early and replayed."""

from typing import Any

import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect

from parley.serving.gateway.sockets.replayable_socket import ReplayableSocket


async def accepted(*texts: str) -> tuple[ReplayableSocket, list[Any]]:
    """Return a socket whose client sends these and leaves, and the list of its messages to the client."""
    arriving: list[dict[str, Any]] = [
        {"type": "websocket.connect"},
        *({"type": "websocket.receive", "text": text} for text in texts),
        {"type": "websocket.disconnect", "code": 1000},
    ]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return arriving.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    websocket = WebSocket({"type": "websocket", "path": "/ws", "headers": []}, receive, send)
    await websocket.accept()
    return ReplayableSocket(websocket), sent


async def test_what_is_put_back_comes_again_ahead_of_the_rest_and_in_order():
    socket, _ = await accepted("one", "two", "three")
    early = [await socket.receive(), await socket.receive()]
    socket.put_back(early)
    assert [await socket.receive_text() for _ in range(3)] == ["one", "two", "three"]
    with pytest.raises(WebSocketDisconnect):
        await socket.receive_text()


async def test_what_is_sent_arrives_and_ends_with_the_close():
    socket, sent = await accepted()
    await socket.send_text("hello")
    await socket.close(1000)
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.send", "websocket.close"]
    with pytest.raises(RuntimeError):
        await socket.send_text("more")
