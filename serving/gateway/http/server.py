"""Run the application with uvicorn.

Input: a bound socket. A stopping server makes the application refuse new calls and end the running ones
(``serving.gateway.calls``). Only then does it stop accepting connections, close the open ones and wait
``stop_requests_s`` for requests in flight. uvicorn alone would close every WebSocket first, and callers would
not get a reason. A second signal ends the wait.

Connections are bounded (``connections``) and so are request heads (``guarded_protocols``). A client that
sends half a request, none, or an endless one takes no other client's place and no time of the event loop.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from loguru import logger

from parley.core.tuning import tuned
from parley.runtime.descriptors import raise_descriptor_limit
from parley.serving.gateway.http.connections import (
    ConnectionTable,
    Deadlines,
    connection_limit,
)
from parley.serving.gateway.http.guarded_protocols import GuardedHttp, GuardedSocket, TenantOf, close_late
from parley.serving.gateway.settings import MAX_SOCKET_BYTES, ServerSettings, ServerTuning
from parley.telemetry.log_throttle import LogThrottle

LOOK_S = 0.1
# Connections that wait to be accepted. Each takes a descriptor before it is counted.
BACKLOG = 128
# Warnings of uvicorn for each request that cannot be read. A client may send any number of them.
UNREADABLE = ("Invalid HTTP request received.", "Unsupported upgrade request.")
# Error that uvicorn logs for every socket that is refused with a reason.
REFUSED = "ASGI callable returned without completing handshake."

Drain = Callable[[], Awaitable[None]]


class GatewayServer(uvicorn.Server):
    """Server that ends its calls before it closes connections.

    Args:
        config: of uvicorn.
        drain: ends the calls; None where there are none.
        connections: table of the open ones.

    Attributes:
        is_serving: set when connections are accepted.
    """

    def __init__(self, config: uvicorn.Config, drain: Drain | None, connections: ConnectionTable) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()
        self._drain = drain
        self._connections = connections
        self._next_look: asyncio.TimerHandle | None = None
        self._evictions = LogThrottle(10.0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server and the checks of its connections (uvicorn)."""
        await super().startup(sockets)
        self._look()
        if self.started:
            self.is_serving.set()

    def _look(self) -> None:
        """Close the connections whose time is over, now and every ``look_s``."""
        loop, table = asyncio.get_running_loop(), self._connections
        now_s = loop.time()
        self._next_look = loop.call_later(table.deadlines.look_s, self._look)
        for connection in table.late(now_s):
            try:
                close_late(connection, connection.transport.get_protocol())
            except RuntimeError:
                # uvloop raises it where the peer has reset the connection since; no answer is possible.
                connection.transport.abort()
        for connection in table.look(now_s):
            connection.transport.abort()
        if (evicted := table.take_evicted()) and (
            line := self._evictions.line(f"{evicted} connections without a request made room", now_s)
        ):
            logger.warning(line)

    def stop(self) -> None:
        """End the calls and stop, as after a signal."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Force the exit at any second signal; in uvicorn only a second Ctrl-C does (uvicorn)."""
        if self.should_exit:
            self.force_exit = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the calls, then the server (uvicorn)."""
        # The server listens until then: a new call is refused with a reason, and requests of running calls
        # are answered.
        if self._drain is not None:
            draining = asyncio.ensure_future(self._drain())
            try:
                # A second signal only sets a flag, so it is polled.
                while not draining.done() and not self.force_exit:
                    await asyncio.wait({draining}, timeout=LOOK_S)
            finally:
                draining.cancel()
            [ended] = await asyncio.gather(draining, return_exceptions=True)
            if isinstance(ended, Exception):
                logger.opt(exception=ended).error("the calls could not be ended properly")
        await super().shutdown(sockets)
        if self._next_look is not None:
            self._next_look.cancel()


def http_server(app: FastAPI, settings: ServerSettings) -> GatewayServer:
    """Return a server for ``app``, to be run with ``serve(sockets=[...])``."""
    settings = tuned(ServerTuning, settings)
    descriptors = raise_descriptor_limit()
    table = ConnectionTable(
        settings.max_connections or connection_limit(descriptors, max_calls=settings.max_calls),
        Deadlines(head_s=settings.head_s, kept_s=settings.keep_alive_s, stall_s=settings.reader_stall_s),
        trusted_proxies=settings.trusted_proxies,
    )
    tenant_of: TenantOf | None = getattr(app.state, "tenant_of", None)
    bounds = {"table": table, "max_head_bytes": settings.max_head_bytes}
    config = uvicorn.Config(
        app,
        http=type("GatewayHttp", (GuardedHttp,), {**bounds, "tenant_of": tenant_of}),
        ws=type("GatewaySocket", (GuardedSocket,), bounds),
        backlog=BACKLOG,
        # Its lines are written as all others (``telemetry.standard_log``).
        log_config=None,
        log_level="warning",
        lifespan="on",
        ws_max_size=MAX_SOCKET_BYTES,
        # Audio in base64 is hardly compressible, and a second of it takes 4 ms each way, on the loop.
        ws_per_message_deflate=False,
        # A path holds the id of a session, which without client keys gives access to it.
        access_log=False,
        # Its own handling of X-Forwarded-For trusts every process on this machine: see ``client_of``.
        proxy_headers=False,
        # Without it one request whose body never comes would keep a stopping server running for ever.
        timeout_graceful_shutdown=settings.stop_requests_s,
        timeout_keep_alive=settings.keep_alive_s,
    )
    log = logging.getLogger("uvicorn.error")
    log.addFilter(is_no_refusal)
    log.addFilter(_Unreadable())
    return GatewayServer(config, getattr(app.state, "drain", None), table)


class _Unreadable(logging.Filter):
    """Filter that passes one line in ten seconds about requests that cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = LogThrottle(10.0)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged (``logging.Filter``)."""
        if record.msg not in UNREADABLE:
            return True
        line = self._lines.line(record.msg, time.monotonic())
        record.msg = line or record.msg
        return line is not None


def is_no_refusal(record: logging.LogRecord) -> bool:
    """Return whether a record is not about a refused socket: those are logged where they are refused."""
    return record.msg != REFUSED
