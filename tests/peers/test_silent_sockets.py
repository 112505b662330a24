"""Silent sockets: each returns its line, and many of one address leave lines for others."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.peers.server import RunningServer, running_server

SHORT = "server: {max_calls: 8}\nsockets: {open_s: 1.5}\n"
PATHS = (
    "/v1/realtime?model=parley",
    "/v1/realtime?mode=audio",
    "/ws/duplex/adx_a",
    "/ws/half_duplex/a",
    "/ws/streaming/a",
    "/ws/chat",
)


def socket(server: RunningServer, path: str, **more: object) -> connect:
    return connect(server.url.replace("http", "ws") + path, **more)  # type: ignore[arg-type]


async def closed(peer: ClientConnection) -> int:
    async with asyncio.timeout(60):
        try:
            while True:
                await peer.recv()
        except ConnectionClosed as end:
            assert end.rcvd is not None
            return end.rcvd.code


async def lines(server: RunningServer) -> int:
    async with httpx.AsyncClient(base_url=server.url) as client:
        return int((await client.get("/health")).json()["calls"])


async def test_a_socket_that_says_nothing_gives_its_line_back_on_every_path(tmp_path: Path):
    config = tmp_path / "own.yaml"
    config.write_text(SHORT)
    async with running_server("--config", str(config)) as server:
        for path in PATHS:
            async with socket(server, path) as peer:
                assert await closed(peer) == 1000, path
        async with socket(server, "/v1/realtime", subprotocols=["realtime"]) as peer:
            assert await closed(peer) == 1000
        async with asyncio.timeout(60):
            while await lines(server):
                await asyncio.sleep(0.05)


async def test_an_address_whose_sockets_say_nothing_gets_no_more_of_them(tmp_path: Path):
    config = tmp_path / "own.yaml"
    config.write_text(SHORT.replace("1.5", "60"))
    async with running_server("--config", str(config)) as server, AsyncExitStack() as opened:
        first, _ = [await opened.enter_async_context(socket(server, PATHS[0])) for _ in range(2)]
        with pytest.raises(InvalidStatus) as refused:
            await socket(server, "/ws/half_duplex/a")
        assert refused.value.response.status_code == 429
        # A browser's call has a line all the same, and a socket that speaks makes room for another.
        await first.send(json.dumps({"type": "session.update", "session": {"type": "realtime"}}))
        async with asyncio.timeout(60):
            while json.loads(await first.recv())["type"] != "session.updated":
                pass
        async with socket(server, "/ws/half_duplex/a"):
            assert await lines(server) == 3
