"""How uvicorn serves the application.

In: a bound socket. A stopping server takes no connection more, closes idle ones and the sockets of ``/ws``,
waits ``stop_requests_s`` for requests in flight and cancels them, and only then tells the application to
stop, which drains the calls (``serving.gateway.calls``).
"""

import uvicorn
from fastapi import FastAPI

from serving.gateway.settings import ServerSettings


def http_server(app: FastAPI, settings: ServerSettings) -> uvicorn.Server:
    """A server for ``app``; run it with ``serve(sockets=[...])``."""
    return uvicorn.Server(
        uvicorn.Config(
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
        )
    )
