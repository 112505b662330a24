"""Way to a server on loopback whose network can be away: no byte passes then, and connections stay open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

CHUNK_BYTES = 65_536


class TcpRelay:
    """Relay of TCP connections.

    Attributes:
        address: to be used in place of the server's.
    """

    def __init__(self, server: str) -> None:
        self.address = ""
        self._server = urlsplit(server)
        self._up = asyncio.Event()
        self._up.set()
        self._pumps: set[asyncio.Task[None]] = set()

    def down(self) -> None:
        """Let nothing pass."""
        self._up.clear()

    def up(self) -> None:
        """Let everything pass, what came meanwhile first."""
        self._up.set()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._up.wait()
        there = await asyncio.open_connection(self._server.hostname, self._server.port)
        for source, target in ((reader, there[1]), (there[0], writer)):
            pump = asyncio.create_task(self._pump(source, target), name="relay.pump")
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(CHUNK_BYTES):
                await self._up.wait()
                target.write(data)
                await target.drain()
        target.close()

    async def close(self) -> None:
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


@asynccontextmanager
async def relayed(server: str) -> AsyncIterator[TcpRelay]:
    """Relay a server's connections on a free port until the block ends."""
    relay = TcpRelay(server)
    listener = await asyncio.start_server(relay._pass, "localhost", 0)
    relay.address = f"http://localhost:{listener.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        listener.close()
        await relay.close()
