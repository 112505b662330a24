"""Proxies on this machine, each with the defaults of its kind.

``TUNNEL`` passes bytes (``ssh -L``, ``socat``, ngrok's tcp). ``TLS`` ends TLS and passes its content
(stunnel, HAProxy in tcp mode). ``NGINX`` does what ``proxy_pass`` does by default: the upstream's name as
Host, ``Connection: close``, no header that names the client. ``NODE`` does what http-proxy of node does
without ``xfwd``: the client's Host, and nothing added. No kind identifies the client, so to the server every
client comes from 127.0.0.1. All of them pass an upgrade to a WebSocket; a deployment with nginx adds these
two lines. Each connection carries one request.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path

HEAD_BYTES = 64 * 1024
OPEN_S, PIECE_BYTES = 10.0, 65_536
CONNECTION = re.compile(rb"\r\n(?:connection|keep-alive):[^\r\n]*", re.IGNORECASE)
HOST = re.compile(rb"\r\nhost:[^\r\n]*", re.IGNORECASE)
UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class Proxy(StrEnum):
    """Proxy between a client and the server."""

    DIRECT = "direct"
    TUNNEL = "tunnel"
    NGINX = "nginx"
    NODE = "node"
    TLS = "tls"


def rewritten(head: bytes, proxy: Proxy, upstream: str) -> bytes:
    """Return the head of a request as the upstream gets it.

    Args:
        head: from the request line to the empty line.
        proxy: kind of the proxy.
        upstream: ``HOST:PORT`` of the server.
    """
    if proxy in (Proxy.DIRECT, Proxy.TUNNEL, Proxy.TLS):
        return head
    if proxy is Proxy.NGINX:
        head = HOST.sub(b"\r\nHost: " + upstream.encode(), head)
    if UPGRADE.search(head):
        return head
    return CONNECTION.sub(b"", head).removesuffix(b"\r\n\r\n") + b"\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def behind(proxy: Proxy, port: int, folder: Path) -> AsyncIterator[str]:
    """Run a proxy to the server on ``port`` of this machine; yield its address, the server's for ``DIRECT``.

    Args:
        proxy: kind of the proxy.
        port: of the server.
        folder: for the certificate of ``TLS``.
    """
    if proxy is Proxy.DIRECT:
        yield f"http://127.0.0.1:{port}"
        return
    context = await _context(folder) if proxy is Proxy.TLS else None
    passing: set[asyncio.Task[None]] = set()

    def accept(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_pass(proxy, port, client, to_client), name=f"proxy.{proxy}")
        passing.add(task)
        task.add_done_callback(passing.discard)

    serving = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context, limit=HEAD_BYTES)
    try:
        async with serving:
            scheme = "http" if context is None else "https"
            yield f"{scheme}://127.0.0.1:{serving.sockets[0].getsockname()[1]}"
    finally:
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


async def _pass(
    proxy: Proxy, port: int, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(OPEN_S):
            head = await client.readuntil(b"\r\n\r\n")
            server, to_server = await asyncio.open_connection("127.0.0.1", port)
        to_server.write(rewritten(head, proxy, f"127.0.0.1:{port}"))
        up = asyncio.create_task(_pump(client, to_server), name="proxy.up")
        try:
            # The connection is over when the server has ended it, even if the client still sends.
            await _pump(server, to_client)
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            to_server.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        to_client.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()


async def _context(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "proxy.key", folder / "proxy.pem"
    if not certificate.exists():
        making = await asyncio.create_subprocess_exec(
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await making.wait()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
