"""Peers that read nothing, and peers that stop in the middle of a request, at every socket and route.

A slow reader sends a request and reads nothing of the answer; its receive buffer is small. A half-open peer
opens a connection, sends a part of its request, and is then silent without closing. In reality these are
telephones without a network. They stay for the whole attack. The server's resources are judged by the
footprint after they have gone, and the control calls by the audio that they receive meanwhile.
"""

import asyncio
import base64
import json
import secrets
import socket
from functools import partial

from parley.evals.abuse.attacks.requests import GONE, new_session
from parley.evals.abuse.protocols import PROTOCOLS
from parley.evals.abuse.registry import Attack, AttackRun, Outcome, add
from parley.evals.abuse.routes import TELEPHONE, Entry, entries, sockets
from parley.evals.abuse.samples import body_of, path_of
from parley.evals.abuse.target import own_address
from parley.evals.harness.phone_network import PUBLIC

SMALL_BUFFER = 4_096
EACH, SPEAKS_A_S = 3, 4
HALVES = (0.3, 0.7, 1.0)


async def _open(run: AttackRun, number: int) -> tuple[socket.socket, asyncio.StreamWriter]:
    """Open a connection whose answers are not read: the loop never polls it for input."""
    loop = asyncio.get_running_loop()
    raw = socket.socket()
    raw.setblocking(False)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    raw.bind((own_address(number), 0))
    async with asyncio.timeout(10):
        await loop.sock_connect(raw, ("127.0.0.1", run.target.port))
    _, writer = await asyncio.open_connection(sock=raw, limit=SMALL_BUFFER)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return raw, writer


def request_of(entry: Entry, *, session: str = "") -> bytes:
    """Return a whole request of HTTP, or the handshake of a socket."""
    path = path_of(entry, session_id=session)
    host = PUBLIC.removeprefix("https://") if entry.path.startswith(TELEPHONE) else "localhost"
    lines = [f"{entry.method or 'GET'} {path} HTTP/1.1", f"Host: {host}"]
    body, kind = body_of(entry)
    if entry.kind == "socket":
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        lines += [
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
    if body:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def frame(text: str) -> bytes:
    """Return a masked text frame (RFC 6455, 5.2)."""
    data = text.encode()
    size = len(data)
    if size < 126:
        head = bytes([0x81, 0x80 | size])
    elif size < 65_536:
        head = bytes([0x81, 0xFE]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x81, 0xFF]) + size.to_bytes(8, "big")
    # A mask of zeros is valid and changes nothing.
    return head + bytes(4) + data


async def slow_http(run: AttackRun) -> Outcome:
    """Send a request to every route, several times on one connection, and read no answer."""
    async with run.client() as client:
        session = await new_session(client)
        for _ in range(10):
            async with client.post(
                f"/api/sessions/{session}/messages", json={"text": "word " * 1_500}
            ) as response:
                await response.read()
    return await _hold(
        run,
        {
            entry.name: request_of(entry, session=session) * (5 if entry.method == "GET" else 1)
            for entry in entries()
            if entry.kind == "http" and entry.method != "DELETE"
        },
    )


async def half_http(run: AttackRun) -> Outcome:
    """Send a part of a request of every route."""
    requests: dict[str, bytes] = {}
    for entry in entries():
        whole = request_of(entry)
        for share in HALVES[:2]:
            requests[f"{entry.name} {share}"] = whole[: int(len(whole) * share)]
        body = body_of(entry)[0]
        if body:
            requests[f"{entry.name} body"] = whole[: len(whole) - len(body) // 2 - 1]
    return await _hold(run, requests)


async def _hold(run: AttackRun, requests: dict[str, bytes]) -> Outcome:
    """Send each request on connections of its own, and keep those until the end."""
    held: list[asyncio.StreamWriter] = []
    failed, ends_s = 0, run.ends_at()
    for number, request in enumerate(requests.values(), 1):
        for _ in range(EACH):
            if asyncio.get_running_loop().time() > ends_s:
                # The server accepts no further connection.
                failed += 1
                continue
            try:
                _, writer = await _open(run, number)
                writer.write(request)
                held.append(writer)
            except GONE:
                failed += 1
        await asyncio.sleep(0.02)
    await asyncio.sleep(max(0.0, ends_s - asyncio.get_running_loop().time()))
    for writer in held:
        writer.transport.abort()
    return Outcome(len(held), {"failed": failed})


async def slow_socket(run: AttackRun, *, entry: Entry) -> Outcome:
    """Begin a conversation, keep sending, and read nothing."""
    spoken = [p for p in PROTOCOLS if p.path.partition("?")[0] == path_of(entry).partition("?")[0]]
    messages = [json.dumps(m) for p in spoken[:1] for m in (*p.opening, *p.messages)]
    messages = [text for text in messages if '"stop"' not in text and '"close"' not in text]
    ends_s, held, failed = run.ends_at(), [], 0
    for number in range(1, EACH + 1):
        try:
            _, writer = await _open(run, number)
            writer.write(request_of(entry))
            held.append(writer)
        except GONE:
            failed += 1
    while asyncio.get_running_loop().time() < ends_s:
        for writer in held:
            if not writer.transport.is_closing() and messages:
                writer.write(frame(run.dice.choice(messages)))
        await asyncio.sleep(1 / SPEAKS_A_S)
    for writer in held:
        writer.transport.abort()
    return Outcome(len(held), {"failed": failed})


async def half_socket(run: AttackRun, *, entry: Entry) -> Outcome:
    """Send a handshake in part, as a whole, and with half of a first message."""
    handshake = request_of(entry)
    first = frame('{"type":"session.update","session":{}}')
    return await _hold(
        run,
        {
            "half a handshake": handshake[: len(handshake) // 2],
            "a handshake": handshake,
            "half a head": handshake + first[:1],
            "half a message": handshake + first[: len(first) // 2],
        },
    )


add(Attack("slow:http", "readers of every route that read nothing", slow_http))
add(Attack("half-open:http", "requests of every route that stop in the middle", half_http))
for _entry in sockets():
    add(
        Attack(
            f"slow:{_entry.path}",
            "a client that sends and reads nothing",
            partial(slow_socket, entry=_entry),
        )
    )
    add(
        Attack(
            f"half-open:{_entry.path}",
            "handshakes and messages that stop in the middle",
            partial(half_socket, entry=_entry),
        )
    )
