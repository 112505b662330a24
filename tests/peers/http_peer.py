"""Base of servers on loopback that stand for a service, each for the length of a context."""

from abc import ABC, abstractmethod
from typing import Self

from aiohttp import web


class HttpPeer(ABC):
    """Server that listens on a free port; a subclass adds its routes.

    Attributes:
        port: its port.
        ends_with_client: true when the answer to a client that has left is cancelled.
    """

    port = 0
    ends_with_client = True

    @abstractmethod
    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the service."""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.add_routes(self.routes())
        self._runner = web.AppRunner(app, handler_cancellation=self.ends_with_client, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()
