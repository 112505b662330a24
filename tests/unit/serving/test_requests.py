import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi import Request
from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.types import Message

from parley.core.errors import PeerError
from parley.serving.gateway.http.requests import BodyError, client_of, read_lines
from parley.serving.gateway.settings import ServerTuning
from tests.virtual_time import run

PROXIES = ("10.0.0.0/8", "2001:db8:f::1")


def connection(peer: str | None, *forwarded: str) -> HTTPConnection:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return HTTPConnection({"type": "http", "client": peer and (peer, 1), "headers": headers})


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.7", (), "203.0.113.7"),
        # Headers count only from a trusted proxy.
        ("203.0.113.7", ("198.51.100.1",), "203.0.113.7"),
        ("127.0.0.1", ("198.51.100.1",), "127.0.0.1"),
        ("10.1.2.3", ("198.51.100.1",), "198.51.100.1"),
        # A client may write the beginning of the header; the proxy writes its end.
        ("10.1.2.3", ("192.0.2.66, 198.51.100.1",), "198.51.100.1"),
        ("10.1.2.3", ("192.0.2.66", "198.51.100.1"), "198.51.100.1"),
        ("10.1.2.3", ("198.51.100.1, 10.9.9.9",), "198.51.100.1"),
        ("10.1.2.3", ("10.0.0.5",), "10.0.0.5"),
        ("10.1.2.3", (), "10.1.2.3"),
        ("10.1.2.3", ("unknown",), "10.1.2.3"),
        ("10.1.2.3", ("",), "10.1.2.3"),
        ("10.1.2.3", ("198.51.100.1:4711",), "198.51.100.1"),
        ("::ffff:10.1.2.3", ("198.51.100.1",), "198.51.100.1"),
        ("2001:db8:f::1", ("[2001:db8:1:2::5]:4711",), "2001:db8:1:2::/64"),
        # Every address of one customer's network is one client.
        ("2001:db8:1:2:3:4:5:6", (), "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", (), "2001:db8:1:2::/64"),
        ("testclient", ("198.51.100.1",), "testclient"),
        (None, ("198.51.100.1",), ""),
    ],
)
def test_who_asks_is_whom_the_trusted_proxies_saw(peer: str | None, forwarded: tuple[str, ...], client: str):
    assert client_of(connection(peer, *forwarded), trusted_proxies=PROXIES) == client


def test_no_proxy_is_trusted_unless_the_settings_name_it():
    asked = connection("127.0.0.1", "198.51.100.1")
    assert client_of(asked, trusted_proxies=ServerTuning().trusted_proxies) == "127.0.0.1"


@pytest.mark.parametrize("proxy", ["proxy.example", "10.0.0.1/8", "", "10.0.0.0/33"])
def test_a_proxy_is_named_by_its_address_or_network(proxy: str):
    with pytest.raises(ValidationError, match="trusted_proxies"):
        ServerTuning(trusted_proxies=(proxy,))


def request(pieces: AsyncIterator[bytes], **headers: str) -> Request:
    async def receive() -> Message:
        try:
            return {"type": "http.request", "body": await anext(pieces), "more_body": True}
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "headers": given}, receive)


async def pieces_of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def lines_of(*pieces: bytes, max_bytes: int = 1_000, max_line_bytes: int = 100) -> list[str]:
    asked = request(pieces_of(*pieces))
    lines = read_lines(asked, max_bytes=max_bytes, max_line_bytes=max_line_bytes, within_s=5)
    return [line async for line in lines]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"one\ntwo\nthree\n",),
        (b"one\ntwo\nthree",),
        (b"o", b"ne\nt", b"wo", b"\n", b"three\n"),
        (b"one\n", b"two\nthree"),
        tuple(bytes([byte]) for byte in b"one\ntwo\nthree"),
    ],
)
async def test_lines_do_not_depend_on_how_they_came(pieces: tuple[bytes, ...]):
    assert await lines_of(*pieces) == ["one", "two", "three"]


async def test_a_letter_may_come_in_two_pieces():
    text = "größer\n".encode()
    assert await lines_of(text[:3], text[3:]) == ["größer"]


async def test_a_line_is_handed_on_before_the_next_one_comes():
    more = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one\ntw"
        await more.wait()
        yield b"o\n"

    lines = read_lines(request(pieces()), max_bytes=1_000, max_line_bytes=100, within_s=5)
    assert await anext(lines) == "one"
    more.set()
    assert await anext(lines) == "two"


async def test_a_body_is_refused_at_the_byte_that_is_too_much():
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 100
            yield b"x" * 99 + b"\n"

    lines = read_lines(request(endless()), max_bytes=1_000, max_line_bytes=100, within_s=5)
    with pytest.raises(BodyError, match="over 1000 bytes") as refused:
        async for _ in lines:
            pass
    assert (refused.value.status, taken) == (413, 1_100)


@pytest.mark.parametrize("length", ["1001", "9" * 30, "-1", "many"])
async def test_a_body_that_declares_too_much_is_not_begun(length: str):
    async def nothing() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    asked = request(nothing(), content_length=length)
    with pytest.raises(BodyError) as refused:
        await anext(read_lines(asked, max_bytes=1_000, max_line_bytes=100, within_s=5))
    assert refused.value.status == 413


@pytest.mark.parametrize("pieces", [(b"x" * 101 + b"\n",), (b"ab\n" + b"x" * 101,), (b"x" * 60, b"x" * 60)])
async def test_a_line_that_is_too_long_is_refused_before_it_ends(pieces: tuple[bytes, ...]):
    with pytest.raises(BodyError, match="is over 100 bytes") as refused:
        await lines_of(*pieces)
    assert refused.value.status == 400


async def test_a_line_that_does_not_end_is_not_collected():
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 30
            yield b"x" * 30

    lines = read_lines(request(endless()), max_bytes=1_000_000, max_line_bytes=100, within_s=5)
    with pytest.raises(BodyError, match="line 1 is over 100 bytes"):
        await anext(lines)
    assert taken == 120


async def test_a_line_as_long_as_may_be_is_taken():
    assert await lines_of(b"x" * 100 + b"\n" + b"y" * 100) == ["x" * 100, "y" * 100]


async def test_a_line_that_is_no_text_is_refused():
    with pytest.raises(PeerError, match="line 2 is not UTF-8"):
        await lines_of(b"one\n\xff\xfe\n")


def test_a_body_that_stays_away_is_refused():
    async def scenario() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one\n"
            # In time, each of them.
            await asyncio.sleep(4)
            yield b"two\n"
            await asyncio.sleep(6)
            yield b"three\n"

        lines = read_lines(request(pieces()), max_bytes=1_000, max_line_bytes=100, within_s=5)
        assert [await anext(lines), await anext(lines)] == ["one", "two"]
        with pytest.raises(BodyError, match="within 5 s") as refused:
            await anext(lines)
        assert refused.value.status == 408

    run(scenario())


async def test_a_sender_that_leaves_is_no_failure_of_the_server():
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    asked = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(BodyError, match="disconnected") as refused:
        await anext(read_lines(asked, max_bytes=1_000, max_line_bytes=100, within_s=5))
    assert refused.value.status == 400
