"""Socket of a client of Pipecat's whose message was refused: it is closed once."""

from collections.abc import MutableMapping
from typing import Any

from starlette.websockets import WebSocket

from parley.transports.websocket.pipecat_socket import UNSUPPORTED, CheckedSocket


async def test_a_refused_client_is_closed_once_also_when_its_transport_closes_it_again():
    received: list[dict[str, Any]] = [
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": "no frame"},
    ]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return received.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    accepted = WebSocket({"type": "websocket", "headers": [], "subprotocols": []}, receive, send)
    await accepted.accept()
    socket = CheckedSocket(accepted)
    assert (await socket.receive())["code"] == UNSUPPORTED
    await socket.close()
    assert [message["code"] for message in sent if message["type"] == "websocket.close"] == [UNSUPPORTED]
