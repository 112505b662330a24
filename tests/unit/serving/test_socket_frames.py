"""Frames of a socket on loopback: floods that reach no conversation, and messages that arrive unchanged."""

import asyncio
import base64
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI, WebSocket
from loguru import logger
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import connect

from parley.serving.gateway.http.guarded_protocols import MOST_FRAGMENTS
from parley.serving.gateway.http.server import http_server
from parley.serving.gateway.settings import ServerTuning
from parley.telemetry.standard_log import take_standard_log

# Masked with zeros.
PING, PONG = b"\x89\x80\x00\x00\x00\x00", b"\x8a\x00"
BEGIN, CONTINUE = b"\x01\x80\x00\x00\x00\x00", b"\x00\x80\x00\x00\x00\x00"


@asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """Yield the port of a server whose socket echoes each message."""
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {}

    @app.websocket("/echo")
    async def echo(peer: WebSocket) -> None:
        await peer.accept()
        try:
            while True:
                await peer.send_text(await peer.receive_text())
        except WebSocketDisconnect:
            return

    server = http_server(app, ServerTuning(stop_requests_s=0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield port
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, 10)


async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a socket of which the test writes every byte."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=10_000_000)
    key = base64.b64encode(os.urandom(16))
    writer.write(
        b"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
    )
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    return reader, writer


async def test_others_are_answered_in_the_middle_of_a_flood_of_pings():
    async with echoing() as port:
        reader, writer = await opened(port)
        flood = 40_000
        writer.write(PING * flood)
        await writer.drain()
        # The first of them is being read.
        await asyncio.wait_for(reader.readexactly(len(PONG)), 10)
        async with httpx.AsyncClient(timeout=10) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
        answered = len(await reader.read(10_000_000)) // len(PONG)
        assert answered < flood / 2
        writer.close()


async def test_each_of_many_pings_is_answered_in_the_end():
    async with echoing() as port:
        reader, writer = await opened(port)
        writer.write(PING * 2_000)
        assert await asyncio.wait_for(reader.readexactly(len(PONG) * 2_000), 20) == PONG * 2_000
        writer.close()


async def test_a_message_of_fragments_without_end_closes_the_socket():
    async with echoing() as port:
        reader, writer = await opened(port)
        writer.write(BEGIN + CONTINUE * (MOST_FRAGMENTS + 1))
        head = await asyncio.wait_for(reader.readexactly(4), 10)
        assert head[0] == 0x88 and int.from_bytes(head[2:4], "big") == 1009
        writer.close()


@pytest.mark.parametrize(
    "frames",
    [
        b"\x81\x82\0\0\0\0\xff\xfe",
        # A character that is cut off by the end of the message, and half of a surrogate pair.
        b"\x01\x81\0\0\0\0\xe2\x80\x81\0\0\0\0\x82",
        b"\x81\x83\0\0\0\0\xed\xa0\x80",
    ],
)
async def test_text_that_is_not_utf8_closes_the_socket_and_is_not_worth_a_traceback(frames: bytes):
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING")
    take_standard_log()
    try:
        async with echoing() as port:
            reader, writer = await opened(port)
            writer.write(frames)
            head = await asyncio.wait_for(reader.readexactly(4), 10)
            assert head[0] == 0x88 and int.from_bytes(head[2:4], "big") == 1007
            writer.close()
    finally:
        logger.remove(sink)
    assert not [line for line in lines if "Traceback" in line]


async def test_a_character_in_two_fragments_arrives_whole():
    async with echoing() as port:
        reader, writer = await opened(port)
        writer.write(b"\x01\x81\0\0\0\0\xc3\x80\x81\0\0\0\0\xa9")
        assert await asyncio.wait_for(reader.readexactly(4), 10) == b"\x81\x02\xc3\xa9"
        writer.close()


@pytest.mark.parametrize("size", [1, 3_000, 700_000])
async def test_messages_come_as_they_were_sent(size):
    async with echoing() as port, connect(f"ws://127.0.0.1:{port}/echo", max_size=None) as peer:
        texts = [
            chr(ord("a") + number % 26) * size for number in range(3_000_000 // size if size > 1 else 3_000)
        ]

        async def send() -> None:
            for text in texts:
                await peer.send(text)
            await peer.send([texts[0], texts[1], texts[2]])

        sending = asyncio.create_task(send())
        async with asyncio.timeout(60):
            for text in [*texts, texts[0] + texts[1] + texts[2]]:
                assert await peer.recv() == text
            await sending
        await peer.close()
        assert peer.close_code == 1000
