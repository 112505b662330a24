"""ICE checks of the server whose first copy a NAT in front of the peer drops."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aioice import Candidate, Connection, stun

from parley.transports.pipecat_internals import answer_checks_promptly

Address = tuple[str, int]


class Nat:
    """NAT in front of a peer: it drops what comes from outside until the peer has sent something out."""

    def __init__(self) -> None:
        self.inner, self.outer = _Side(self.out), _Side(self.into)
        self.peer: Address | None = None
        self.server: Address | None = None
        self.dropped = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Nat"]:
        loop = asyncio.get_running_loop()
        for side in (self.inner, self.outer):
            await loop.create_datagram_endpoint(lambda side=side: side, local_addr=("127.0.0.1", 0))
        try:
            yield self
        finally:
            self.inner.transport.close()
            self.outer.transport.close()

    def out(self, data: bytes, sender: Address) -> None:
        self.peer = sender
        assert self.server is not None
        self.outer.transport.sendto(data, self.server)

    def into(self, data: bytes, _sender: Address) -> None:
        if self.peer is None:
            self.dropped.set()
        else:
            self.inner.transport.sendto(data, self.peer)


class _Side(asyncio.DatagramProtocol):
    def __init__(self, on_datagram: Callable[[bytes, Address], None]) -> None:
        self._on_datagram = on_datagram
        self.transport: asyncio.DatagramTransport

    @property
    def address(self) -> Address:
        return cast(Address, self.transport.get_extra_info("sockname"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._on_datagram(data, addr)


def candidate(address: Address) -> Candidate:
    return Candidate("1", 1, "udp", 2_130_706_431, address[0], address[1], "host")


async def meet(one: Connection, other: Connection, address: Address) -> None:
    """Give an agent the other's address and its credentials."""
    one.remote_username, one.remote_password = other.local_username, other.local_password
    await one.add_remote_candidate(candidate(address))
    await one.add_remote_candidate(None)


async def test_a_check_that_a_nat_dropped_is_sent_again_when_the_check_of_the_peer_comes(
    monkeypatch: pytest.MonkeyPatch,
):
    # No timer sends it again within the test.
    monkeypatch.setattr(stun, "RETRY_RTO", 3_600.0)
    answer_checks_promptly()
    server, peer = (
        Connection(ice_controlling=controls, components=1, use_ipv6=False) for controls in (False, True)
    )
    async with Nat().running() as nat:
        try:
            await asyncio.gather(server.gather_candidates(), peer.gather_candidates())
            [host, *_] = server.local_candidates
            nat.server = (host.host, host.port)
            await meet(server, peer, nat.outer.address)
            await meet(peer, server, nat.inner.address)
            async with asyncio.timeout(10):
                connecting = asyncio.create_task(server.connect(), name="server")
                await nat.dropped.wait()
                await asyncio.gather(connecting, peer.connect())
                await server.send(b"hello")
                assert await peer.recv() == b"hello"
        finally:
            await asyncio.gather(server.close(), peer.close())
