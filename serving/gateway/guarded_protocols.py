"""uvicorn's protocols with bounds: a request head that is too long, or too late, is refused before it costs.

uvicorn has no limit of either: it takes in a head for as long as it comes, and a value that grows piece by
piece is copied with each piece (measured: at 4 MB/s a control call stood for 5 to 9 s). Bytes are counted
that lead to nothing: no complete head, no body. That covers the address, the headers and the trailers of a
chunked body. They are given to the parser in pieces of the limit, so that the parser never sees more than
twice that.
"""

import json
from typing import Any

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from serving.gateway.connections import Connection, ConnectionTable, Phase, counted_address

# Of one request. Each costs a call into Python; browsers send some 20.
MOST_HEADERS = 100
# Requests that are sent before the one in front of them is answered. uvicorn takes in any number of them
# (measured: 450,000 in 12 s, at 100 % of the loop); browsers send none.
MOST_PIPELINED = 8
HEALTH_PATH = "/health"
FULL = "every connection of this server, or of this address, is in use: try again later"
LATE = "the head of the request did not arrive in time"


class ExcessError(Exception):
    """A client sends more headers, or more requests at once, than are read."""


class GuardedHttp(HttpToolsProtocol):
    """Connection until it ends or becomes a socket. Made by a subclass with these set.

    Attributes:
        table: of the server.
        max_head_bytes: of a request head.
    """

    table: ConnectionTable
    max_head_bytes: int
    _fruitless_bytes = 0
    _is_reading_head = False

    def connection_made(self, transport: Any) -> None:
        """See ``asyncio.Protocol``."""
        super().connection_made(transport)
        self.table.opened(transport, counted_address(self.client[0] if self.client else ""), self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self.table.closed(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        most = self.max_head_bytes
        for start in range(0, len(data), most):
            piece = data[start : start + most]
            self._fruitless_bytes += len(piece)
            super().data_received(piece)
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            if self._fruitless_bytes > most:
                self._refuse(431, f"the head of a request is over {most} bytes")
                return

    def on_message_begin(self) -> None:
        """See httptools. Raises ExcessError: the parser ends with it, and the connection."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ExcessError
        super().on_message_begin()
        self._is_reading_head = True
        if self._is_between_requests:
            self.table.moved(self.transport, Phase.HEAD, self.loop.time())

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools. Raises ExcessError: the parser ends with it, and the answer is 400."""
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            raise ExcessError

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._fruitless_bytes = 0
        self._is_reading_head = False
        self.table.moved(self.transport, Phase.REQUEST, self.loop.time())
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._fruitless_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._fruitless_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._is_between_requests:
            return
        phase = Phase.HEAD if self._is_reading_head else Phase.KEPT
        self.table.moved(self.transport, phase, self.loop.time())

    def handle_websocket_upgrade(self) -> None:
        """See uvicorn."""
        if self.table.is_full(self.transport):
            self._refuse(503, FULL)
        else:
            super().handle_websocket_upgrade()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if cycle.scope["path"] != HEALTH_PATH and self.table.is_full(self.transport):
            app = _full
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """See uvicorn."""
        self._refuse(400, msg)

    def time_out(self) -> None:
        """Close a connection whose request has not come."""
        # A client that has sent nothing, or has its answer, expects none.
        if self._is_reading_head:
            self._refuse(408, LATE)
        else:
            self.transport.close()

    @property
    def _is_between_requests(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    def _refuse(self, status: int, why: str) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_refusal(status, why))
        # What is answered at this moment is cut off: nothing more can be read of the connection.
        self.transport.close()


class GuardedSocket(WebSocketsSansIOProtocol):
    """Connection that has become a socket.

    Attributes:
        table: of the server.
    """

    table: ConnectionTable

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self.table.closed(self.transport)
        super().connection_lost(exc)


def close_late(connection: Connection, protocol: object) -> None:
    """Close a connection whose request has not come."""
    if isinstance(protocol, GuardedHttp):
        protocol.time_out()
    else:
        connection.transport.abort()


def _refusal(status: int, why: str) -> bytes:
    body = json.dumps({"error": why}).encode()
    headers = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[status] + headers.encode() + body


async def _full(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    body = json.dumps({"error": FULL}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"5"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
