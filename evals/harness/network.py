"""Network between a browser and a server that can be away, for calls over WebRTC.

A proxy of HTTP that leads the media of each call through itself: it writes its own address into offer and
answer, in place of those of browser and server. While it is down nothing passes, as with a network that
is away: datagrams are lost, and requests wait. One whose client has given up is not passed on later.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
from aiohttp import web
from aioice.ice import get_host_addresses

from parley.core.errors import PeerError

OFFERS = re.compile(r"/api/offer$")
CANDIDATES = re.compile(r"a=candidate:\S+ \d (?:udp|UDP) \d+ (\S+) (\d+) typ host[^\r\n]*")
ANY_CANDIDATE = re.compile(r"a=candidate:[^\r\n]*\r?\n")
# Headers that hold for one connection, or for a body before it was changed.
OF_A_CONNECTION = frozenset(
    {"connection", "content-length", "keep-alive", "transfer-encoding", "content-encoding"}
)
Address = tuple[str, int]


class Network:
    """Way to a server that can be away.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._up = asyncio.Event()
        self._up.set()
        [self._host, *_] = get_host_addresses(use_ipv4=True, use_ipv6=False) or ["127.0.0.1"]
        self._ways: list[_Way] = []
        self.url = ""

    @property
    def is_up(self) -> bool:
        """True while packets pass."""
        return self._up.is_set()

    def down(self) -> None:
        """Let nothing pass."""
        self._up.clear()

    def up(self) -> None:
        """Let packets pass again."""
        self._up.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Network"]:
        """Serve on a free port until the block ends."""
        async with aiohttp.ClientSession(auto_decompress=True) as self._client:
            app = web.Application(client_max_size=2**22)
            app.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://localhost:{runner.addresses[0][1]}"
            try:
                yield self
            finally:
                self._up.set()
                for way in self._ways:
                    way.close()
                await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        await self._up.wait()
        if request.transport is None or request.transport.is_closing():
            # Its client has given up.
            return web.Response(status=499)
        offers = OFFERS.search(request.path) is not None
        if offers and request.method == "PATCH":
            # The only candidate is in the offer.
            return web.json_response({"status": "success"})
        way = None
        if offers:
            way = await _Way.open(self)
            body = _with_candidate(body, self._host, way.port_of_browser)
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in OF_A_CONNECTION
        }
        try:
            async with self._client.request(
                request.method,
                f"{self._url}{request.path_qs}",
                headers=headers,
                data=body,
                allow_redirects=False,
            ) as answer:
                content = await answer.read()
        except aiohttp.ClientError as error:
            if way is not None:
                way.close()
            return web.Response(status=502, text=str(error))
        if way is not None and answer.status == 200:
            self._ways.append(way)
            way.server = _candidate(content)
            content = _with_candidate(content, self._host, way.port_of_server)
        await self._up.wait()
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in OF_A_CONNECTION}
        return web.Response(status=answer.status, headers=kept, body=content)


class _Side(asyncio.DatagramProtocol):
    """Socket of the network that faces one end of a call."""

    def __init__(self, way: "_Way", *, faces_server: bool) -> None:
        self._way, self._faces_server = way, faces_server
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._way.carry(data, addr, from_server=self._faces_server)


class _Way:
    """Way of the media of one call."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._to_browser = _Side(self, faces_server=False)
        self._to_server = _Side(self, faces_server=True)
        self._browser: Address | None = None
        self.server: Address | None = None

    @classmethod
    async def open(cls, network: Network) -> "_Way":
        """Open the two sockets of a call."""
        way, loop = cls(network), asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: way._to_browser, local_addr=("0.0.0.0", 0))
        await loop.create_datagram_endpoint(lambda: way._to_server, local_addr=("0.0.0.0", 0))
        return way

    @property
    def port_of_server(self) -> int:
        """The port that is the server to the browser."""
        return _port(self._to_browser)

    @property
    def port_of_browser(self) -> int:
        """The port that is the browser to the server."""
        return _port(self._to_server)

    def carry(self, data: bytes, sender: Address, *, from_server: bool) -> None:
        """Pass a datagram on, or lose it."""
        if not from_server:
            self._browser = sender
        out, to = (self._to_browser, self._browser) if from_server else (self._to_server, self.server)
        if to is not None and self._network.is_up:
            out.transport.sendto(data, to)

    def close(self) -> None:
        """Close both sockets."""
        self._to_browser.transport.close()
        self._to_server.transport.close()


def _port(side: _Side) -> int:
    port: int = side.transport.get_extra_info("sockname")[1]
    return port


def _with_candidate(body: bytes, host: str, port: int) -> bytes:
    """Return a JSON body whose description has one candidate in each of its sections."""
    message: dict[str, Any] = json.loads(body)
    line = f"a=candidate:1 1 udp 2130706431 {host} {port} typ host\r\n"
    bare = ANY_CANDIDATE.sub("", message["sdp"])
    message["sdp"] = re.sub(r"(a=mid:[^\r\n]*\r?\n)", lambda found: found[1] + line, bare)
    return json.dumps(message).encode()


def _candidate(body: bytes) -> Address:
    """Return the first address of a description.

    Raises:
        PeerError: it has none.
    """
    found = CANDIDATES.search(json.loads(body)["sdp"])
    if found is None:
        raise PeerError("the server's answer has no candidate of this machine")
    return found[1], int(found[2])
