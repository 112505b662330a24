"""A WebSocket over a connection that was handed over: messages, fragments, and ends of either side."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol, State

from parley.transports.keeping.handed_socket import MOST_FRAGMENTS, MOST_MESSAGE_BYTES, HandedSocket

RESPONSE = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


class Client:
    """Client's side of the connection, after its handshake."""

    def __init__(self, connection: socket.socket) -> None:
        self.protocol = Protocol(CLIENT, state=State.OPEN)
        self._connection = connection
        self._frames: list[Frame] = []

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._connection)

    async def answered(self) -> bytes:
        return await self._reader.readexactly(len(RESPONSE))

    async def sent(self) -> None:
        for data in self.protocol.data_to_send():
            self._writer.write(data)
        await self._writer.drain()

    async def frame(self) -> Frame:
        while not self._frames:
            data = await self._reader.read(65_536)
            if data:
                self.protocol.receive_data(data)
            else:
                self.protocol.receive_eof()
            self._frames += [each for each in self.protocol.events_received() if isinstance(each, Frame)]
        return self._frames.pop(0)

    async def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[HandedSocket, Client]]:
    ours, theirs = socket.socketpair()
    handed, client = HandedSocket(ours, RESPONSE), Client(theirs)
    await client.connect()
    async with asyncio.timeout(10):
        await handed.open()
        assert await client.answered() == RESPONSE
        yield handed, client
        await handed.close(1000, "")
        await client.close()


async def test_messages_go_both_ways_also_in_fragments():
    async with pair() as (handed, client):
        client.protocol.send_text(b"one")
        client.protocol.send_text(b"t", fin=False)
        client.protocol.send_continuation(b"wo", fin=True)
        client.protocol.send_binary(b"\x00")
        await client.sent()
        assert [await handed.receive() for _ in range(3)] == ["one", "two", b"\x00"]
        assert await handed.send("hello") and await handed.send(b"\x01")
        assert bytes((await client.frame()).data) == b"hello"
        assert (await client.frame()).opcode is Opcode.BINARY


async def test_a_ping_is_answered_while_messages_are_read():
    async with pair() as (handed, client):
        client.protocol.send_ping(b"p")
        client.protocol.send_text(b"text")
        await client.sent()
        assert await handed.receive() == "text"
        assert (await client.frame()).opcode is Opcode.PONG


@pytest.mark.parametrize("closes", [True, False])
async def test_the_end_of_the_other_side_is_the_end(closes: bool):
    async with pair() as (handed, client):
        if closes:
            client.protocol.send_close(1000, "bye")
            await client.sent()
        else:
            await client.close()
        assert await handed.receive() is None
        assert not await handed.send("late")


async def test_a_message_that_comes_together_with_the_end_is_read():
    async with pair() as (handed, client):
        client.protocol.send_text(b"stop")
        client.protocol.send_close(1000, "")
        await client.sent()
        assert await handed.receive() == "stop"
        assert await handed.receive() is None


async def test_a_client_that_reads_nothing_does_not_hold_a_connection_that_is_given_up():
    ours, theirs = socket.socketpair()
    handed = HandedSocket(ours, RESPONSE)
    await handed.open()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            while True:
                await handed.send("x" * 100_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await handed.close(1000, "")
    # The connection is closed on the next turn of the loop.
    async with asyncio.timeout(5):
        while ours.fileno() >= 0:
            await asyncio.sleep(0)
    theirs.close()


async def test_a_message_that_is_too_large_or_in_too_many_pieces_ends_the_socket():
    async with pair() as (handed, client):
        client.protocol.send_text(b"x" * (MOST_MESSAGE_BYTES + 1))
        await client.sent()
        assert await handed.receive() is None
    async with pair() as (handed, client):
        client.protocol.send_text(b"x", fin=False)
        for _ in range(MOST_FRAGMENTS):
            client.protocol.send_continuation(b"", fin=False)
        await client.sent()
        assert await handed.receive() is None


async def test_our_close_reaches_the_other_side_with_its_reason():
    async with pair() as (handed, client):
        await handed.close(1000, "the call is over")
        assert (await client.frame()).opcode is Opcode.CLOSE
        assert client.protocol.close_rcvd is not None
        assert client.protocol.close_rcvd.reason == "the call is over"
