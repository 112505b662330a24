"""Request heads and connections of a server on a loopback socket: late, endless, too many, not read."""

import asyncio
import socket
from contextlib import AsyncExitStack

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.unit.serving.test_http_server import HALF_A_REQUEST, Gateway, running

HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-More: "
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
KEY = "a key of an application of the test"
Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def sends(gateway: Gateway, data: bytes) -> Connected:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def rest_of(connected: Connected) -> bytes:
    """Read until the server closes the connection."""
    reader, writer = connected
    came = b""
    try:
        async with asyncio.timeout(10):
            while more := await reader.read(65_536):
                came += more
    except ConnectionError:
        pass
    writer.close()
    return came


async def status_of(gateway: Gateway, path: str = "/") -> int:
    async with httpx.AsyncClient(timeout=10) as client:
        return (await client.get(f"{gateway.url}{path}")).status_code


@pytest.mark.parametrize("data", [HALF_A_HEAD, b"G", HEALTH + HALF_A_HEAD], ids=["head", "byte", "second"])
async def test_a_request_head_that_does_not_arrive_gets_408(data):
    async with running(head_s=0.2) as gateway:
        answer = await rest_of(await sends(gateway, data))
        assert b"HTTP/1.1 408 " in answer


async def test_a_connection_that_says_nothing_is_closed():
    async with running(head_s=0.2) as gateway:
        assert await rest_of(await sends(gateway, b"")) == b""


async def test_line_ends_between_requests_keep_no_connection_open():
    async with running(head_s=0.2, keep_alive_s=1) as gateway:
        reader, writer = await sends(gateway, HEALTH)
        await reader.readuntil(b"}")
        writer.write(b"\r\n")
        await rest_of((reader, writer))


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\nX-Long: ",
        b"GET /",
        b"POST /start HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ",
    ],
    ids=["header", "address", "trailer"],
)
async def test_a_request_head_that_never_ends_is_refused_at_its_limit(start):
    async with running(max_head_bytes=4_096, head_s=600, body_s=600) as gateway:
        reader, writer = await sends(gateway, start)
        refused = asyncio.create_task(rest_of((reader, writer)))
        sent = 0
        try:
            while not refused.done() and sent < 50_000_000:
                writer.write(b"x" * 10_000)
                sent += 10_000
                await writer.drain()
        except ConnectionError:
            pass
        await refused
        # Bytes that the system accepts before the server closes are not read.
        assert sent < 50_000_000


async def test_a_long_request_head_gets_431():
    async with running(max_head_bytes=4_096) as gateway:
        answer = await rest_of(await sends(gateway, HALF_A_HEAD + b"x" * 5_000))
        assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_large_body_after_a_short_head_is_taken_in():
    async with running(max_head_bytes=1_024) as gateway, httpx.AsyncClient(base_url=gateway.url) as client:
        answer = await client.post("/start", json={"body": {"text": "x" * 50_000}})
        assert answer.status_code == 413
        assert "4096 bytes as JSON" in answer.text


async def test_a_request_of_many_headers_gets_400():
    async with running() as gateway:
        many = b"".join(b"X-%d: 1\r\n" % number for number in range(101))
        answer = await rest_of(await sends(gateway, b"GET / HTTP/1.1\r\n" + many + b"\r\n"))
        assert answer.startswith(b"HTTP/1.1 400 ")


async def test_half_requests_keep_no_one_out():
    async with running(max_connections=16, head_s=600) as gateway, AsyncExitStack() as opened:
        for _ in range(300):
            _, writer = await sends(gateway, HALF_A_HEAD)
            opened.callback(writer.close)
        assert await status_of(gateway) == 200
        assert await status_of(gateway, "/health") == 200


async def test_a_server_full_of_requests_refuses_more_and_answers_for_its_health():
    # Connections of one address: half of them.
    async with running(max_connections=4, body_s=600) as gateway, AsyncExitStack() as opened:
        for _ in range(2):
            _, writer = await sends(gateway, HALF_A_REQUEST)
            opened.callback(writer.close)
        assert await status_of(gateway) == 503
        assert await status_of(gateway, "/health") == 200
        with pytest.raises(InvalidStatus) as refused:
            await gateway.socket()
        assert refused.value.response.status_code == 503


async def test_sockets_are_counted_until_they_close():
    async with running(max_connections=4, max_calls=4) as gateway:
        async with gateway.socket(), gateway.socket():
            assert await status_of(gateway) == 503
        async with asyncio.timeout(5):
            while await status_of(gateway) != 200:
                await asyncio.sleep(0.01)


async def fills_from_two_addresses(gateway: Gateway, opened: AsyncExitStack, *, each: int) -> None:
    for number in range(2 * each):
        host = f"127.0.0.{2 + number % 2}"
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, local_addr=(host, 0))
        opened.callback(writer.close)
        writer.write(HALF_A_REQUEST)
        await writer.drain()


async def until_strangers_are_refused(gateway: Gateway) -> None:
    async with asyncio.timeout(5):
        while await status_of(gateway) != 503:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"], ids=["another", "the same"])
async def test_two_addresses_fill_the_table_and_a_key_gets_in(address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    async with running(max_connections=16, body_s=600) as gateway, AsyncExitStack() as opened:
        await fills_from_two_addresses(gateway, opened, each=8)
        await until_strangers_are_refused(gateway)
        transport = httpx.AsyncHTTPTransport(local_address=address)
        async with httpx.AsyncClient(base_url=gateway.url, transport=transport) as client:
            key = {"Authorization": f"Bearer {KEY}"}
            assert (await client.get("/", headers={"Authorization": "Bearer none"})).status_code == 503
            answer = await client.post("/api/token", headers=key)
            assert answer.status_code == 200
        token = Subprotocol(f"parley.token.{answer.json()['token']}")
        with pytest.raises(InvalidStatus) as refused:
            await gateway.socket(local_addr=(address, 0))
        assert refused.value.response.status_code == 503
        async with gateway.socket(subprotocols=[token], local_addr=(address, 0)):
            # As many as there are places: this one keeps its own.
            assert await status_of(gateway) == 503


async def test_the_operator_gets_into_a_full_server_without_keys(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_ADMIN_TOKEN", KEY)
    async with running(max_connections=16, body_s=600) as gateway, AsyncExitStack() as opened:
        await fills_from_two_addresses(gateway, opened, each=8)
        await until_strangers_are_refused(gateway)
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            answer = await client.get("/api/admin/session", headers={"Authorization": f"Bearer {KEY}"})
        assert answer.json()["is_operator"]


async def test_a_client_that_sends_requests_without_end_and_reads_nothing_is_cut():
    async with running(head_s=600) as gateway:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.setblocking(False)
            await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", gateway.port))
            page = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(20):
                    while True:
                        await asyncio.get_running_loop().sock_sendall(peer, page * 100)
        assert await status_of(gateway, "/health") == 200


async def test_a_few_requests_at_once_are_answered_in_their_order():
    async with running() as gateway:
        last = HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        answer = await rest_of(await sends(gateway, HEALTH * 5 + last))
        assert answer.count(b"HTTP/1.1 200 ") == 6


async def test_a_reader_that_takes_nothing_of_its_answer_is_cut():
    async with running(reader_stall_s=0.2) as gateway:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(peer, ("127.0.0.1", gateway.port))

            async def large(scope, receive, send):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for left in reversed(range(200)):
                    body = {"type": "http.response.body", "body": b"x" * 100_000, "more_body": left > 0}
                    await send(body)

            gateway.server.config.loaded_app.mount("/large", large)
            await loop.sock_sendall(peer, HEALTH.replace(b"/health", b"/large/"))
            async with asyncio.timeout(10):
                while len(gateway.server._connections) != 1:
                    await asyncio.sleep(0.01)
                while len(gateway.server._connections):
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_later", [False, True], ids=["at once", "later"])
async def test_a_reader_who_leaves_with_requests_in_line_is_noticed(is_later: bool):
    reached, left = asyncio.Event(), asyncio.Event()

    async def endless(scope, receive, send):
        await receive()
        reached.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async with running() as gateway:
        gateway.server.config.loaded_app.mount("/endless", endless)
        first, more = HEALTH.replace(b"/health", b"/endless/"), HEALTH * 4
        _, writer = await sends(gateway, first if is_later else first + more)
        async with asyncio.timeout(5):
            await reached.wait()
            if is_later:
                # The application waits for more of the first request by now.
                writer.write(more)
                await writer.drain()
            writer.close()
            await left.wait()
