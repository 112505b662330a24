"""How uvicorn serves the application.

In: a bound socket. A stopping server takes no connection more, has the application end its calls
(``serving.gateway.calls``), and only then closes what is open and waits ``stop_requests_s`` for requests in
flight. uvicorn by itself closes every WebSocket first, and nobody could tell a caller why. A second Ctrl-C
waits for nobody.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from fastapi import FastAPI
from loguru import logger

from serving.gateway.settings import ServerSettings

LOOK_S = 0.1
# Said by uvicorn, as an error, of every socket that is refused with a reason.
REFUSED = "ASGI callable returned without completing handshake."

Drain = Callable[[], Awaitable[None]]


class GatewayServer(uvicorn.Server):
    """A server that ends its calls first.

    Args:
        config: uvicorn's.
        drain: ends the calls; None where there are none.
    """

    def __init__(self, config: uvicorn.Config, drain: Drain | None) -> None:
        super().__init__(config)
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        for server in self.servers:
            server.close()
        for each in sockets or []:
            each.close()
        if self._drain is not None:
            draining = asyncio.ensure_future(self._drain())
            try:
                # Only a flag says that it is told once more.
                while not draining.done() and not self.force_exit:
                    await asyncio.wait({draining}, timeout=LOOK_S)
            finally:
                draining.cancel()
            [ended] = await asyncio.gather(draining, return_exceptions=True)
            if isinstance(ended, Exception):
                logger.opt(exception=ended).error("the calls could not be ended in good order")
        await super().shutdown(sockets)


def http_server(app: FastAPI, settings: ServerSettings) -> uvicorn.Server:
    """A server for ``app``; run it with ``serve(sockets=[...])``."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="on",
        ws_max_size=settings.max_socket_bytes,
        # Audio in base64 gets little shorter, and a second of it takes 4 ms each way, on the loop.
        ws_per_message_deflate=False,
        # A path holds the id of a session, and whoever knows that may use it.
        access_log=False,
        # Its own reading of X-Forwarded-For believes everybody on this machine: see ``client_of``.
        proxy_headers=False,
        # Without it one request whose body never comes keeps a stopping server for ever.
        timeout_graceful_shutdown=settings.stop_requests_s,
        timeout_keep_alive=settings.keep_alive_s,
    )
    logging.getLogger("uvicorn.error").addFilter(is_no_refusal)
    return GatewayServer(config, getattr(app.state, "drain", None))


def is_no_refusal(record: logging.LogRecord) -> bool:
    """A filter of the log: whoever refuses a socket logs it, and a flood of them is no flood of errors."""
    return record.msg != REFUSED
