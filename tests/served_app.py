"""The gateway in uvicorn on a free port of this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import uvicorn
from fastapi import FastAPI

from parley.serving.gateway.http.server import http_server
from parley.serving.gateway.settings import ServerTuning


@dataclass(frozen=True)
class ServedApp:
    """An application that answers.

    Attributes:
        server: its server.
        serving: the task that serves.
        port: its port.
    """

    server: uvicorn.Server
    serving: "asyncio.Task[None]"
    port: int


@asynccontextmanager
async def served_app(app: FastAPI, settings: ServerTuning) -> AsyncIterator[ServedApp]:
    server = http_server(app, settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            # The socket listens already, so a request waits until the server accepts it.
            async with httpx.AsyncClient(timeout=10) as client:
                (await client.get(f"http://127.0.0.1:{port}/health")).raise_for_status()
            yield ServedApp(server, serving, port)
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, 10)
