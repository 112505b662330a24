"""TLS connections of blocking threads."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.sync.client import connect

from parley.runtime.blocking_socket import connect_for, tls_for
from tests.fakes.certificates import self_signed_certificate, server_context

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed_certificate(tmp_path)


@contextmanager
def served(server: Callable[[], object]) -> Iterator[int]:
    """Run an asyncio server in a thread; give its port."""
    ready, over = threading.Event(), threading.Event()
    ports: list[int] = []

    async def serving() -> None:
        async with server() as running:  # type: ignore[attr-defined]
            ports.append(running.sockets[0].getsockname()[1])
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serving()))
    thread.start()
    try:
        assert ready.wait(5)
        yield ports[0]
    finally:
        over.set()
        thread.join()


def tls_server(certificate: Path, handle: Handler) -> Callable[[], object]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[asyncio.Server]:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=server_context(certificate))
        try:
            yield server
        finally:
            server.close()

    return opened


def opened(port: int, certificate: Path, *, limit_s: float = 5) -> ssl.SSLSocket:
    url = f"wss://127.0.0.1:{port}"
    context = tls_for(url, certificate)
    assert context is not None
    plain = connect_for(url, open_s=5, write_s=5)
    plain.settimeout(limit_s)
    made = context.wrap_socket(plain, server_hostname="127.0.0.1")
    made.settimeout(None)
    return made


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(100_000):
            writer.write(data)
            await writer.drain()
    writer.close()


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


def test_an_address_without_tls_has_no_context():
    assert tls_for("ws://127.0.0.1:1") is None


def test_one_thread_reads_while_another_writes(certificate: Path):
    sent = bytes(range(256)) * 20_000
    with served(tls_server(certificate, echo)) as port:
        line = opened(port, certificate)
        writing = threading.Thread(target=line.sendall, args=(sent,))
        writing.start()
        read = bytearray()
        while len(read) < len(sent):
            read += line.recv(65_536)
        writing.join()
        line.close()
    assert bytes(read) == sent


def test_a_reader_that_a_session_ticket_woke_ends_with_the_socket(certificate: Path):
    with served(tls_server(certificate, silence)) as port:
        line = opened(port, certificate)
        ends: list[bytes] = []
        reading = threading.Thread(target=lambda: ends.append(line.recv(65_536)), daemon=True)
        reading.start()
        # The server's tickets have come when its handshake is over; the reader waits for more.
        line.sendall(b"one")
        line.close()
        reading.join(5)
    assert ends == [b""]


def test_a_reader_that_comes_after_the_close_is_at_the_end(certificate: Path):
    with served(tls_server(certificate, silence)) as port:
        line = opened(port, certificate)
        line.close()
        assert line.recv(65_536) == b""


def test_messages_of_every_length_come_back_over_websockets(certificate: Path):
    async def answer(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    def server() -> object:
        return serve(answer, "127.0.0.1", 0, ssl=server_context(certificate), max_size=None)

    with served(server) as port:
        url = f"wss://127.0.0.1:{port}"
        sock = connect_for(url, open_s=5, write_s=5)
        with connect(url, sock=sock, ssl=tls_for(url, certificate), max_size=None, compression=None) as line:
            for length in (0, 1, 16_383, 16_384, 65_535, 65_536, 81_920, 300_000, 1_000_003):
                line.send(b"x" * length)
                assert len(line.recv(timeout=5)) == length


def test_the_end_of_the_server_is_the_end(certificate: Path):
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.close()

    with served(tls_server(certificate, leave)) as port:
        line = opened(port, certificate)
        assert line.recv(100) == b"bye"
        assert line.recv(100) == b""
        assert line.recv(100) == b""
        line.close()


def test_a_server_that_is_not_believed_is_refused(certificate: Path):
    with served(tls_server(certificate, silence)) as port:
        url = f"wss://127.0.0.1:{port}"
        context = tls_for(url)
        assert context is not None
        with connect_for(url, open_s=5, write_s=5) as plain, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_server_that_trickles_its_handshake_meets_the_deadline(certificate: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def trickle() -> None:
            peer, _ = listener.accept()
            # The header of a handshake record, and then a byte at a time of its 16,000.
            with peer, suppress(OSError):
                peer.sendall(b"\x16\x03\x03\x3e\x80\x02\x00\x3e\x7c")
                while not over.wait(0.02):
                    peer.sendall(b"\x03")

        thread = threading.Thread(target=trickle)
        thread.start()
        # The trickle goes on for as long as the test.
        with pytest.raises(TimeoutError):
            opened(listener.getsockname()[1], certificate, limit_s=0.3)
        over.set()
        thread.join()
