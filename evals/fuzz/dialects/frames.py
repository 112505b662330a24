"""Bytes below the messages: frames of WebSockets (RFC 6455) and of HTTP/1.1 that no library would send.

Connections end as they should, in the middle of a frame, half closed, or with a reset. A refusal, or a closed
connection, is the right answer to most of them; only the server's log, memory and control calls are judged.
"""

import asyncio
import base64
import socket as sockets_of_system
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.mutations import mutated_bytes
from parley.evals.abuse.protocols import PROTOCOLS
from parley.evals.fuzz.conversation import FuzzConversation
from parley.evals.fuzz.generate import Dice, payload

FRAMES, REQUESTS = 120, 40
OPEN_S, ANSWER_S = 5.0, 0.3
STORM = 400
TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
NOT_UTF8 = (b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b'{"type": "\xe9"}', b"\xe2\x82")
CODES = (0, 1, 999, 1000, 1001, 1004, 1005, 1006, 1011, 1015, 2999, 3000, 4999, 5000, 65_535)


def frame(
    data: bytes,
    opcode: int = TEXT,
    *,
    is_final: bool = True,
    reserved: int = 0,
    mask: bytes | None = b"\1\2\3\4",
    length: int | None = None,
) -> bytes:
    """Return a frame of a client, valid or not.

    Args:
        data: payload.
        opcode: of four bits.
        is_final: last fragment of its message.
        reserved: three bits, which extensions use.
        mask: key; None for a frame that is not masked, which a client must not send.
        length: announced instead of the length of the payload.
    """
    size = len(data) if length is None else length
    head = bytes([is_final << 7 | reserved << 4 | opcode])
    bit = 0 if mask is None else 0x80
    if size < 126:
        head += bytes([bit | size])
    elif size < 65_536:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if mask is None:
        return head + data
    return head + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))


def _text(dice: Dice) -> bytes:
    data = payload(dice.choice(PROTOCOLS).messages[:3], dice)[:4_000]
    return data if isinstance(data, bytes) else data.encode("utf-8", "replace")


def fragments(dice: Dice, number: int, *, between: bytes = b"") -> bytes:
    """Return a message in fragments, with other frames between them."""
    data = _text(dice)
    step = max(1, len(data) // number)
    pieces = [data[at : at + step] for at in range(0, len(data), step)] or [b""]
    return b"".join(
        frame(piece, CONTINUATION if place else TEXT, is_final=place == len(pieces) - 1) + between
        for place, piece in enumerate(pieces)
    )


def _length(dice: Dice) -> bytes:
    """Return a frame whose announced length is wrong."""
    return frame(
        _text(dice), length=dice.choice((0, 1, 125, 126, 65_535, 65_536, 2**31, 2**62, 2**63, 2**64 - 1))
    )


# Harmless ones first: after most of the others the server closes the socket.
_HARMLESS: Sequence[Callable[[Dice], bytes]] = (
    lambda dice: frame(_text(dice)),
    lambda dice: frame(_text(dice), BINARY),
    lambda dice: fragments(dice, dice.randint(1, 20)),
    lambda dice: fragments(dice, dice.randint(1, 20), between=frame(b"x", PING)),
    lambda dice: frame(dice.randbytes(dice.randrange(126)), PING),
    lambda dice: frame(dice.randbytes(dice.randrange(126)), PONG),
    lambda dice: frame(b"", dice.choice((TEXT, BINARY, PING))),
    lambda dice: frame(b"", PING) * dice.randint(1, STORM),
    lambda dice: (
        frame(b"x", is_final=False)
        + frame(b"", CONTINUATION, is_final=False) * dice.randint(1, STORM)
        + frame(b"y", CONTINUATION)
    ),
    lambda dice: frame(_text(dice), mask=b"\0\0\0\0"),
)
_WRONG: Sequence[Callable[[Dice], bytes]] = (
    lambda dice: frame(_text(dice), mask=None),
    lambda dice: frame(_text(dice), reserved=dice.randint(1, 7)),
    lambda dice: frame(_text(dice), dice.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15))),
    lambda dice: frame(dice.randbytes(200), dice.choice((PING, PONG, CLOSE))),
    lambda dice: frame(b"x", PING, is_final=False),
    lambda dice: frame(_text(dice), CONTINUATION),
    lambda dice: frame(b"x", is_final=False) + frame(b"y", TEXT),
    lambda dice: frame(dice.choice(NOT_UTF8)),
    lambda dice: frame(dice.choice(NOT_UTF8)[:1], is_final=False) + frame(b"", CONTINUATION),
    lambda dice: frame(
        struct.pack(">H", dice.choice(CODES)) + dice.choice((b"", b"bye", b"\xff", b"x" * 123)), CLOSE
    ),
    lambda dice: frame(b"\3", CLOSE),
    lambda dice: frame(struct.pack(">H", 1000), CLOSE) + frame(_text(dice)),
    _length,
    lambda dice: mutated_bytes(frame(_text(dice)), dice),
    lambda dice: dice.randbytes(dice.randint(1, 2_000)),
    lambda dice: frame(b"[" * 100_000),
    lambda dice: frame(b"x" * 5_000_000) if dice.random() < 0.05 else frame(b'{"a":' * 20_000),
)
WRONG = 0.04


def handshake(dice: Dice, path: str, host: str, *, is_right: bool) -> bytes:
    """Return the request of a socket, valid or not."""
    key = base64.b64encode(dice.randbytes(16)).decode()
    headers = [
        ("Host", host),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Version", "13"),
    ]
    line = f"GET {path} HTTP/1.1"
    if not is_right:
        place = dice.randrange(len(headers))
        name, value = headers[place]
        match dice.randrange(8):
            case 0:
                del headers[place]
            case 1:
                headers[place] = (
                    name,
                    dice.choice(("", "x", value * 50, "\x7f", "7", "13, 8", "websocket, h2c")),
                )
            case 2:
                headers.append((name, value))
            case 3:
                headers.append(
                    (
                        "Sec-WebSocket-Extensions",
                        dice.choice(
                            (
                                "permessage-deflate; server_max_window_bits=99",
                                "permessage-deflate, permessage-deflate",
                                ";;;",
                                "x" * 3_000,
                                'permessage-deflate; a="',
                                "permessage-deflate; client_max_window_bits=0",
                            )
                        ),
                    )
                )
            case 4:
                headers.append(
                    ("Sec-WebSocket-Protocol", dice.choice((",,", "realtime," * 200, "\u00e9", "a b")))
                )
            case 5:
                line = line.replace("GET", dice.choice(("POST", "get", "G ET", "")))
            case 6:
                line = line.replace("1.1", dice.choice(("1.0", "2.0", "9", "")))
            case _:
                line = line.replace(
                    path,
                    dice.choice((path + "?" + "a=b&" * 900, "/%zz", "//", "*", path + "/%00", "http://x/")),
                )
    else:
        headers.append(("Sec-WebSocket-Extensions", "permessage-deflate"))
    text = "\r\n".join((line, *(f"{name}: {value}" for name, value in headers), "", ""))
    return text.encode("latin-1", "replace")


async def sockets(conversation: FuzzConversation) -> None:
    """Open a socket of any protocol by hand, and send frames."""
    dice = conversation.dice
    protocol = dice.choice(PROTOCOLS)
    is_right = dice.random() < 0.8
    async with asyncio.timeout(OPEN_S):
        reader, writer = await conversation.run.raw(conversation.address)
    draining = asyncio.create_task(_drain(reader), name="fuzz.drain")
    try:
        with suppress(*GONE):
            host = f"127.0.0.1:{conversation.target.port}"
            await _write(conversation, writer, handshake(dice, protocol.path, host, is_right=is_right))
            if not is_right:
                await asyncio.sleep(ANSWER_S)
            for _ in range(FRAMES if is_right else 1):
                kinds = _WRONG if dice.random() < WRONG else _HARMLESS
                await _write(conversation, writer, dice.choice(kinds)(dice))
                if draining.done():
                    break
        await _end(dice, writer)
    finally:
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        writer.close()
        with suppress(*GONE):
            await writer.wait_closed()


async def _write(conversation: FuzzConversation, writer: asyncio.StreamWriter, data: bytes) -> None:
    await conversation.note(data)
    writer.write(data)
    async with asyncio.timeout(OPEN_S):
        await writer.drain()


async def _drain(reader: asyncio.StreamReader) -> None:
    with suppress(*GONE):
        while await reader.read(65_536):
            pass


async def _end(dice: Dice, writer: asyncio.StreamWriter) -> None:
    """End a connection in one of four ways."""
    match dice.randrange(4):
        case 0 if writer.can_write_eof():
            with suppress(*GONE):
                writer.write_eof()
            await asyncio.sleep(ANSWER_S)
        case 1:
            # A reset.
            socket = writer.get_extra_info("socket")
            with suppress(*GONE):
                socket.setsockopt(
                    sockets_of_system.SOL_SOCKET, sockets_of_system.SO_LINGER, struct.pack("ii", 1, 0)
                )
        case 2:
            with suppress(*GONE):
                writer.write(frame(b"cut off", length=5_000)[:9])
        case _:
            await asyncio.sleep(ANSWER_S)


BODY = b'{"text": "Hello."}'
_HEADS: Sequence[Callable[[Dice], bytes]] = (
    lambda _dice: b"Content-Length: -1",
    lambda _dice: b"Content-Length: 1e3",
    lambda _dice: b"Content-Length: 18\r\nContent-Length: 5",
    lambda _dice: b"Content-Length: 99999999999999999999",
    lambda _dice: b"Content-Length: 18\r\nTransfer-Encoding: chunked",
    lambda _dice: b"Transfer-Encoding: chunked, gzip",
    lambda _dice: b"Transfer-Encoding: \x0bchunked",
    lambda dice: b"X: " + bytes(dice.choices(range(256), k=200)),
    lambda _dice: b"X" * 30_000,
    lambda _dice: b"A: b\r\n" * 200,
    lambda _dice: b"A: b\r\n c: d",
    lambda _dice: b": no name",
    lambda _dice: b"Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA",
    lambda _dice: b"Expect: 100-continue\r\nContent-Length: 18",
)
_CHUNKS = (
    b"12\r\n" + BODY + b"\r\n0\r\n\r\n",
    b"-1\r\n\r\n",
    b"zz\r\n\r\n",
    b"ffffffffffffffffff\r\nx",
    b"1;" + b"e" * 9_000 + b"\r\na\r\n",
    b"12\r\n" + BODY,
    b"0\r\nTrailer: " + b"x" * 9_000 + b"\r\n\r\n",
    b"1\r\nab\r\n0\r\n\r\n",
    b"12\n" + BODY + b"\n0\n\n",
)
LINES = (
    b"GET / HTTP/1.1",
    b"POST /api/sessions HTTP/1.1",
    b"POST /api/offer HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"GET /\0 HTTP/1.1",
    b"CONNECT a:1 HTTP/1.1",
    b"GET http://[::1 HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"GET /" + b"a" * 9_000 + b" HTTP/1.1",
    b"GET /health HTTP/1.0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /health\r\n",
    b"HTTP/1.1 200 OK",
    b"POST /v1/audio/transcriptions HTTP/1.1",
    b"POST /v1/chat/completions HTTP/1.1",
    b"GET /s/%ff%fe HTTP/1.1",
)


def request(dice: Dice) -> bytes:
    """Return the bytes of a request, most of them wrong in one respect, or of several requests."""
    kind = dice.random()
    right = (
        b"POST /api/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 18\r\n\r\n" + BODY
    )
    if kind < 0.15:
        return right * dice.randint(1, 20)
    if kind < 0.5:
        return dice.choice(LINES[1:3]) + b"\r\nHost: x\r\n" + dice.choice(_HEADS)(dice) + b"\r\n\r\n" + BODY
    if kind < 0.65:
        return LINES[1] + b"\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + dice.choice(_CHUNKS)
    if kind < 0.8:
        return dice.choice(LINES) + b"\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    if kind < 0.9:
        return mutated_bytes(right, dice)
    return right[: dice.randrange(len(right))]


async def requests(conversation: FuzzConversation) -> None:
    """Send bytes of requests, each over a connection of its own or over the one before."""
    dice = conversation.dice
    for _ in range(REQUESTS):
        with suppress(*GONE):
            reader, writer = await conversation.run.raw(conversation.address)
            try:
                for _ in range(dice.randint(1, 4)):
                    await _write(conversation, writer, request(dice))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(ANSWER_S * dice.random()):
                            _judge(conversation, await reader.read(65_536))
                await _end(dice, writer)
            finally:
                writer.close()
                with suppress(*GONE):
                    await writer.wait_closed()


def _judge(conversation: FuzzConversation, answer: bytes) -> None:
    """Count the status of the first answer."""
    parts = answer[:20].split(b" ")
    if len(parts) > 1 and parts[0].startswith(b"HTTP/") and parts[1].isdigit():
        conversation.answered(int(parts[1]), "bytes of a request")
