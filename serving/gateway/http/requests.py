"""Checks of a request before a route acts on it: its sender, its origin and its body."""

import asyncio
import ipaddress
import json
import math
import re
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect, HTTPConnection

from parley.core.errors import PeerError

# A provider gives a customer a network of this size, and the customer chooses addresses within it.
IPV6_CLIENT_BITS = 64


class BodyError(PeerError):
    """A body is not accepted.

    Attributes:
        status: of the answer.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


def client_of(connection: HTTPConnection, *, trusted_proxies: Collection[str]) -> str:
    """Return the client's address, for counting: an IPv4 address, or the network of an IPv6 one.

    ``X-Forwarded-For`` grows at its end: every proxy appends the address of its peer. Counted back from the
    connection, the first address that is not a trusted proxy is the client. Entries before it may be forged.
    """
    trusted = [ipaddress.ip_network(proxy) for proxy in trusted_proxies]
    peer = connection.client.host if connection.client else ""
    forwarded_for = ",".join(connection.headers.getlist("x-forwarded-for"))
    for hop in reversed(forwarded_for.split(",")):
        address = _address(peer)
        if address is None or not any(address in network for network in trusted):
            break
        if _address(hop) is None:
            break
        peer = hop
    address = _address(peer)
    if address is None:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address), IPV6_CLIENT_BITS), strict=False))
    return str(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, which may have brackets and a port as proxies write it; None if it is invalid."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def check_origin(connection: HTTPConnection, *, allowed: Collection[str]) -> None:
    """Refuse a page of another origin.

    A request without an Origin header does not come from a browser page. Pages of our own host
    (``KnownHosts`` has checked the name) and of the list are allowed.

    Raises:
        HTTPException: 403.
    """
    origin = connection.headers.get("origin")
    if not origin or origin in allowed:
        return
    try:
        netloc = urlsplit(origin).netloc
    except ValueError:
        netloc = ""
    if netloc and netloc == connection.headers.get("host"):
        return
    raise HTTPException(403, f"origin {origin} is not allowed")


def timeline_place(after: str | None) -> tuple[int, int] | None:
    """Return the position of a page in a timeline: time of the event before it, and its seq.

    Raises:
        HTTPException: 422, this API has not returned it.
    """
    if after is None:
        return None
    match = re.fullmatch(r"(\d{1,18})\.(\d{1,18})", after)
    if match is None:
        raise HTTPException(422, "after: not a position that this API returned")
    return int(match.group(1)), int(match.group(2))


async def read_json(request: Request, *, allowed_origins: Collection[str]) -> dict[str, Any]:
    """Return the body of a request from an allowed origin; an empty object without a body.

    Raises:
        HTTPException: 403, a page of another origin.
        PeerError: the body is not a JSON object.
    """
    check_origin(request, allowed=allowed_origins)
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError) as error:
        # Not only JSONDecodeError: bytes that are not UTF-8, and numbers too long for Python.
        raise PeerError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise PeerError("the body must be a JSON object")
    return body


async def check_connected(request: Request) -> None:
    """Check that the client of a request still waits for its answer.

    A client that gave up while this process was busy left its request and the end of its connection in the
    socket together. The loop reads the end one iteration after the request, and ``is_disconnected`` itself
    lets an iteration pass when it finds nothing: the second call returns what the first one read.

    Args:
        request: whose body has been read; a part of it that has not would be lost here.

    Raises:
        BodyError: 400, the client has left.
    """
    if await request.is_disconnected() or await request.is_disconnected():
        raise BodyError("the sender disconnected before the answer", status=400)


async def read_body(request: Request, *, max_bytes: int, within_s: float) -> bytes:
    """Return a body that ``BodyLimit`` has left to its route, because it may be larger than others.

    Args:
        request: whose body has not been read.
        max_bytes: of the body.
        within_s: longest wait for the next piece of it.

    Raises:
        BodyError: 413, it is too large; 408, it is too slow; 400, the sender left.
    """
    body = bytearray()
    async with aclosing(read_pieces(request, max_bytes=max_bytes, within_s=within_s)) as pieces:
        async for piece in pieces:
            body += piece
    return bytes(body)


async def read_pieces(
    request: Request,
    *,
    max_bytes: int,
    within_s: float,
    least_bytes_per_s: float = 0.0,
    most_s: float = math.inf,
) -> AsyncGenerator[bytes, None]:
    """Yield such a body as it arrives.

    Args:
        request: whose body has not been read.
        max_bytes: of the body.
        within_s: longest wait for the next piece of it.
        least_bytes_per_s: mean rate from ``within_s`` after the beginning on; a piece in time is not enough.
        most_s: longest time for the whole body.

    Raises:
        BodyError: as ``read_body`` does.
    """
    _check_declared(request, max_bytes)
    came, loop = 0, asyncio.get_running_loop()
    begun_s = loop.time()
    async with aclosing(request.stream()) as pieces:
        while (piece := await _next_piece(pieces, within_s=within_s)) is not None:
            came += len(piece)
            if came > max_bytes:
                raise _too_large(max_bytes)
            took_s = loop.time() - begun_s
            if took_s > within_s and came < took_s * least_bytes_per_s:
                raise BodyError(f"the body arrives at under {least_bytes_per_s:g} bytes/s", status=408)
            if took_s > most_s:
                raise BodyError(f"the body did not arrive within {most_s:g} s", status=408)
            yield piece


async def discard_rest(request: Request, *, max_bytes: int, within_s: float) -> None:
    """Read the rest of a body that is refused, so that its sender reads the refusal.

    A connection that is closed while its client still sends is reset, and the answer is lost. A rest that is
    longer or slower than the bounds is left.

    Args:
        request: whose body was read in part, or not at all.
        max_bytes: of the body.
        within_s: longest time for the rest.
    """
    with suppress(BodyError, RuntimeError, TimeoutError):
        async with asyncio.timeout(within_s):
            async with aclosing(read_pieces(request, max_bytes=max_bytes, within_s=within_s)) as pieces:
                async for _ in pieces:
                    pass


async def read_lines(
    request: Request, *, max_bytes: int, max_line_bytes: int, within_s: float
) -> AsyncGenerator[str, None]:
    """Yield the lines of a body that is too large to be held in memory, as they arrive.

    Args:
        request: whose body has not been read.
        max_bytes: of the body.
        max_line_bytes: of one line.
        within_s: longest wait for the next piece of it.

    Raises:
        BodyError: 413, it is too large; 408, it is too slow; 400, a line is too long, or the sender left.
        PeerError: a line is not UTF-8.
    """
    _check_declared(request, max_bytes)
    came, number, rest = 0, 0, bytearray()
    async with aclosing(request.stream()) as pieces:
        while (piece := await _next_piece(pieces, within_s=within_s)) is not None:
            came += len(piece)
            if came > max_bytes:
                raise _too_large(max_bytes)
            *ended, last = piece.split(b"\n")
            for end in ended:
                number += 1
                yield _line(bytes(rest) + end, number, max_bytes=max_line_bytes)
                rest.clear()
            rest += last
            if len(rest) > max_line_bytes:
                raise _line_too_long(number + 1, max_line_bytes)
    if rest:
        yield _line(bytes(rest), number + 1, max_bytes=max_line_bytes)


def _check_declared(request: Request, max_bytes: int) -> None:
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or len(declared) > 12 or int(declared) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> BodyError:
    return BodyError(f"body over {max_bytes} bytes", status=413)


async def _next_piece(pieces: AsyncGenerator[bytes, None], *, within_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(within_s):
            return await anext(pieces, None)
    except TimeoutError:
        raise BodyError(f"the rest of the body did not arrive within {within_s} s", status=408) from None
    except ClientDisconnect:
        raise BodyError("the sender disconnected before the end of the body", status=400) from None


def _line(line: bytes, number: int, *, max_bytes: int) -> str:
    if len(line) > max_bytes:
        raise _line_too_long(number, max_bytes)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PeerError(f"line {number} is not UTF-8") from error


def _line_too_long(number: int, max_bytes: int) -> BodyError:
    return BodyError(f"line {number} is over {max_bytes} bytes (max_import_line_bytes)", status=400)
