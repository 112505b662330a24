"""Protocols of uvicorn with bounds: a request head that is too long or too late is refused early.

uvicorn limits neither. It accepts a head for as long as it comes, and copies a value that grows piece by
piece with each piece (measured: at 4 MB/s a control call stood for 5 to 9 s). Bytes that complete no head and
carry no body are counted. That covers the address, the headers and the trailers of a chunked body. They are
given to the parser in pieces of the limit, so that the parser never sees more than twice that.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from parley.serving.gateway.http.connections import (
    Connection,
    ConnectionPhase,
    ConnectionTable,
    counted_address,
)
from parley.serving.uvicorn_internals import RequestStarts, disconnect

# Headers of one request. Each costs a call into Python; browsers send some 20.
MOST_HEADERS = 100
# Requests that are sent before the previous one is answered. uvicorn accepts any number of them (measured:
# 450,000 in 12 s, at 100 % of the loop); browsers send none.
MOST_PIPELINED = 8
# Fragments of one message of a socket. A browser sends none, a client that streams a picture some.
MOST_FRAGMENTS = 1_000
# Reading of a socket: frames are read for this time at most, in pieces of these sizes (341 empty frames take
# some 2 ms). Then the socket rests for ``REST`` times as long.
SLICE_S, REST = 0.002, 20
LEAST_PIECE_BYTES, MOST_PIECE_BYTES = 1_024, 32_768
# Each resumption of reading brings up to 256 kB.
MOST_UNREAD_BYTES = 2_000_000
# Requested by supervisors and balancers, which must not mistake a full server for a dead one.
PROBE_PATHS = ("/health", "/ready")
FULL = "every connection of this server, or of this address, is in use: try again later"
LATE = "the head of the request did not arrive in time"
# Extension of the scope of a socket: hands its connection over to another process before the handshake.
HAND_OVER = "parley.hand_over"

TenantOf = Callable[[HTTPConnection], str | None]


class ExcessError(Exception):
    """A client sends more headers, or more requests at once, than are accepted."""


class GuardedHttp(RequestStarts):
    """HTTP connection until it ends or becomes a socket. A subclass sets the attributes.

    Attributes:
        table: of the server.
        max_head_bytes: of a request head.
        tenant_of: returns the tenant whose credential a request presents; None: the server has no tenants.
    """

    table: ConnectionTable
    max_head_bytes: int
    tenant_of: ClassVar[TenantOf | None] = None
    _fruitless_bytes = 0
    _is_reading_head = False
    _answered: RequestResponseCycle | None = None

    def connection_made(self, transport: Any) -> None:
        """Register the connection in the table (``asyncio.Protocol``)."""
        super().connection_made(transport)
        self.table.opened(transport, counted_address(self.client[0] if self.client else ""), self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the table (``asyncio.Protocol``)."""
        self.table.closed(self.transport)
        super().connection_lost(exc)
        # uvicorn reports it to the last request of the connection, which is not the one that is being
        # answered while others wait. A response that is generated for as long as a client reads it would
        # never end.
        if self._answered is not None:
            disconnect(self._answered)
        self._answered = None
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Pass received data to the parser in bounded pieces (``asyncio.Protocol``)."""
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
        """Begin a request (httptools).

        Raises:
            ExcessError: too many requests wait; the parser and the connection end with it.
        """
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ExcessError
        super().on_message_begin()
        self._is_reading_head = True
        if self._is_between_requests:
            self.table.moved(self.transport, ConnectionPhase.HEAD, self.loop.time())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header (httptools).

        Raises:
            ExcessError: too many headers; the parser ends with it, and the answer is 400.
        """
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            raise ExcessError

    def on_headers_complete(self) -> None:
        """Complete the head of a request (httptools)."""
        self._fruitless_bytes = 0
        self._is_reading_head = False
        self.table.moved(self.transport, ConnectionPhase.REQUEST, self.loop.time())
        super().on_headers_complete()
        # uvicorn stops reading while a request waits, and would not notice that the client leaves.
        # ``MOST_PIPELINED`` bounds what is read.
        if self.pipeline:
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body (httptools)."""
        self._fruitless_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Complete a request (httptools)."""
        self._fruitless_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Record the next phase of the connection (uvicorn)."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._is_between_requests:
            return
        phase = ConnectionPhase.HEAD if self._is_reading_head else ConnectionPhase.KEPT
        self.table.moved(self.transport, phase, self.loop.time())

    def handle_websocket_upgrade(self) -> None:
        """Turn the connection into a socket, or refuse it where the table is full (uvicorn)."""
        if self._is_full(self.scope):
            self._refuse(503, FULL)
        else:
            super().handle_websocket_upgrade()
            # It holds this object in a reference cycle, and reads no more of the connection.
            self.parser = None  # type: ignore[assignment]

    def start_request(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:
        """Start a request, or answer 503 where the table is full (``RequestStarts``)."""
        self._answered = cycle
        if cycle.scope["path"] not in PROBE_PATHS and self._is_full(cycle.scope):
            app = _full
        super().start_request(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request with 400 (uvicorn)."""
        self._refuse(400, msg)

    def time_out(self) -> None:
        """Close a connection whose request has not come."""
        # A client that has sent nothing, or has its answer, expects none.
        if self._is_reading_head:
            self._refuse(408, LATE)
        else:
            self.transport.close()

    def _is_full(self, scope: Any) -> bool:
        tenant_of = type(self).tenant_of
        if tenant_of is None:
            return self.table.is_full(self.transport)
        return self.table.is_full(self.transport, lambda: tenant_of(HTTPConnection(_as_socket(scope))))

    @property
    def _is_between_requests(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    def _refuse(self, status: int, why: str) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_refusal(status, why))
        # The response in progress is cut off: nothing more can be read of the connection.
        self.transport.close()


class GuardedSocket(WebSocketsSansIOProtocol):
    """Connection that has become a socket: its frames are read in pieces and in time slices.

    The cost of reading depends on frames and not on bytes, and no rule of a conversation sees control frames
    and fragments. Measured with uvicorn's own: empty pings at 4 MB/s hold the event loop for 3.5 s, empty
    fragments for 15 s. When a client's frames cost more than a slice (``SLICE_S``), the rest is read after
    ``REST`` times that. A socket thus has at most 5 % of the loop, and a message that waits for its reader
    stops further reading.

    Attributes:
        table: of the server.
    """

    table: ConnectionTable
    _piece_bytes = LEAST_PIECE_BYTES
    _fragments = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = bytearray()
        self._next_slice: asyncio.Handle | None = None
        self._extensions: dict[str, Any] = {}

    def handle_connect(self, event: Request) -> None:
        """Begin the handshake, and offer to hand the connection over (uvicorn)."""
        super().handle_connect(event)
        if not self.close_sent:
            self._extensions = cast(dict[str, Any], self.scope["extensions"])
            self._extensions[HAND_OVER] = self.hand_over

    def hand_over(self) -> tuple[int, bytes]:
        """Return the descriptor of the connection, which its receiver closes, and the answer to send.

        The connection is no longer one of this process. Its client may not send before that answer, so
        nothing of it has been read here.

        Raises:
            OSError: the connection is closed.
        """
        opened = self.transport.get_extra_info("socket")
        if opened is None or self.transport.is_closing():
            raise OSError("the connection is closed")
        self.transport.pause_reading()
        descriptor = os.dup(opened.fileno())
        self.conn.send_response(self.response)
        response = b"".join(self.conn.data_to_send())
        self.handshake_complete = self.close_sent = True
        # Nothing is sent: the descriptor keeps the connection open.
        self.transport.abort()
        return descriptor, response

    def connection_lost(self, exc: Exception | None) -> None:
        """Discard unread data and remove the connection from the table (``asyncio.Protocol``)."""
        # The scope refers to this object, which has the scope: a connection is freed at once.
        self._extensions.pop(HAND_OVER, None)
        if self._next_slice is not None:
            self._next_slice.cancel()
        self._unread.clear()
        self.table.closed(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Queue received data and read a slice of it (``asyncio.Protocol``)."""
        self._unread += data
        if len(self._unread) > MOST_UNREAD_BYTES:
            self.transport.abort()
        elif self._next_slice is None:
            self._read_slice()
        else:
            self.transport.pause_reading()

    def _read_slice(self) -> None:
        self._next_slice = None
        began_s = before_s = time.perf_counter()
        while self._unread and not self.transport.is_closing():
            if self.read_paused and not self.close_sent:
                # A message waits for its reader; ``receive`` continues the reading.
                break
            size = self._piece_bytes
            piece = bytes(self._unread[:size])
            del self._unread[:size]
            super().data_received(piece)
            now_s = time.perf_counter()
            if now_s - before_s > SLICE_S / 4:
                self._piece_bytes = max(LEAST_PIECE_BYTES, size // 2)
            else:
                self._piece_bytes = min(MOST_PIECE_BYTES, size * 2)
            if now_s - began_s > SLICE_S and self._unread:
                self._next_slice = self.loop.call_later(REST * (now_s - began_s), self._read_slice)
                break
            before_s = now_s
        if self.transport.is_closing():
            self._unread.clear()
        elif self._unread:
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _read_on(self) -> None:
        if self._unread and self._next_slice is None and not self.transport.is_closing():
            self.transport.pause_reading()
            self._next_slice = self.loop.call_soon(self._read_slice)

    async def receive(self) -> Any:
        """Return the next message and continue the reading (ASGI)."""
        message = await super().receive()
        if not self.read_paused:
            self._read_on()
        return message

    async def send(self, message: Any) -> None:
        """Send a message (ASGI)."""
        await super().send(message)
        if self.close_sent:
            # Read the client's confirmation of the close.
            self._read_on()

    def handle_text(self, event: Frame) -> None:
        """Begin a text message, with a new count of fragments (uvicorn)."""
        self._fragments = 0
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        """Begin a binary message, with a new count of fragments (uvicorn)."""
        self._fragments = 0
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        """Continue a message, or close the socket where it has too many fragments (uvicorn)."""
        self._fragments += 1
        if self._fragments <= MOST_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message of over {MOST_FRAGMENTS} fragments")
            self.handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """Pass on a complete message, or close the socket where its text is not UTF-8 (uvicorn).

        uvicorn writes a traceback of its own call stack to the log for each such message.
        """
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(self.frames):
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA, "the text is not UTF-8")
            self.handle_parser_exception()
        else:
            super().send_receive_event_to_app()


def _is_utf8(frames: Sequence[bytes]) -> bool:
    # Most messages are ASCII, which is found without making a text of them.
    if all(frame.isascii() for frame in frames):
        return True
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_socket(scope: Any) -> dict[str, Any]:
    """Return the scope of a request with the subprotocols that a handshake offers, in the form of ASGI."""
    offered = [value for name, value in scope["headers"] if name == b"sec-websocket-protocol"]
    subprotocols = b",".join(offered).decode("latin-1").split(",")
    return {**scope, "subprotocols": [name.strip() for name in subprotocols]}


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


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    body = json.dumps({"error": FULL}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"5"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
