"""Services on loopback that fail on command, in the ways of ``Fault``."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from http import HTTPStatus

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from parley.evals.failover.faults import Fault
from parley.evals.harness.launcher import free_port

HTML = "<html>502 Bad Gateway</html>"


class Breakable(ABC):
    """Service that fails on command.

    Attributes:
        present: present fault.
    """

    def __init__(self) -> None:
        self.present: Fault | None = None
        self._whole = asyncio.Event()
        self._whole.set()

    async def fail(self, fault: Fault | None) -> None:
        """Fail from now on, or work again."""
        self.present = fault
        if fault is None:
            self._whole.set()
            await self.listen_again()
            return
        self._whole.clear()
        if fault is Fault.KILLED:
            await self.stop_listening()
        if fault in (Fault.KILLED, Fault.CUT):
            self.drop_all()
        if fault is Fault.CUT:
            # It accepts new connections, and serves them.
            self.present = None
            self._whole.set()
        await self.announce()

    async def hold_back(self) -> None:
        """Wait while nothing is sent."""
        if self.present is not None:
            await self._whole.wait()

    @abstractmethod
    def drop_all(self) -> None:
        """Break every connection."""

    @abstractmethod
    async def listen_again(self) -> None:
        """Accept connections."""

    @abstractmethod
    async def stop_listening(self) -> None:
        """Accept no connection."""

    @abstractmethod
    async def announce(self) -> None:
        """Send what a failing service sends over its open connections."""


class SocketService(Breakable):
    """Service over WebSockets."""

    path = ""

    def __init__(self) -> None:
        super().__init__()
        self._clients: set[ServerConnection] = set()
        self._server: Server | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Its address."""
        return f"ws://127.0.0.1:{self.port}{self.path}"

    @abstractmethod
    def admits(self, request: Request) -> bool:
        """Return whether a client has the key."""

    @abstractmethod
    async def serve_client(self, client: ServerConnection) -> None:
        """Serve one connection."""

    @abstractmethod
    async def refuse(self, client: ServerConnection) -> None:
        """Refuse more work in the protocol's way."""

    async def listen_again(self) -> None:
        if self._server is None:
            self._server = await serve(
                self._hold,
                "127.0.0.1",
                self.port,
                process_request=self._check,
                close_timeout=0.2,
                open_timeout=None,
            )

    async def stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close(close_connections=False)

    def drop_all(self) -> None:
        for client in self._clients:
            client.transport.abort()

    async def announce(self) -> None:
        for client in tuple(self._clients):
            with suppress(ConnectionClosed):
                if self.present is Fault.REFUSES:
                    await self.refuse(client)
                elif self.present is Fault.GARBAGE:
                    await client.send(HTML)

    async def _check(self, client: ServerConnection, request: Request) -> Response | None:
        if self.present is Fault.HANGS:
            await self._whole.wait()
        if self.present is Fault.REFUSES:
            return client.respond(HTTPStatus.TOO_MANY_REQUESTS, "too many connections\n")
        if not self.admits(request):
            return client.respond(HTTPStatus.UNAUTHORIZED, "invalid api key\n")
        return None

    async def _hold(self, client: ServerConnection) -> None:
        self._clients.add(client)
        try:
            await self.serve_client(client)
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)
