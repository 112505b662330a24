"""Middleware: checks of every request before it reaches a route, and headers of every response.

Input: any request. A body that is too large or too slow is refused before it is parsed. A request that calls
this server by a name other than its own is refused as well. Output: the application's response, or a 500
where it failed. Its headers forbid browsers to load anything that is not served here, and to store anything
of a session.
"""

import asyncio
import ipaddress
import re
from collections.abc import Collection

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.core.errors import CapacityError
from parley.serving.gateway.http.requests import client_of
from parley.serving.gateway.limits import ConcurrencyLimit, Slot
from parley.serving.gateway.settings import ServerSettings
from parley.session_store.faults import log_failure

# WebSocket close code (RFC 6455, 7.4.1).
POLICY_VIOLATION = 1008
# Text of uvloop's error when something is written to a connection that was reset.
HANDLE_CLOSED = "the handler is closed"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# A Host header: a name or an address, IPv6 in brackets, optionally with a port.
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/\s]+)(?::\d+)?")
# The page works without the internet: a browser refuses everything that is not served here.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; connect-src 'self'; media-src 'self' blob:; img-src 'self' data:; "
    "style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class BodyLimit:
    """ASGI middleware that refuses bodies over a size with 413, and those that arrive too slowly with 408.

    Both are refused before anything parses them.

    Args:
        app: receives the requests that are accepted.
        max_bytes: of a body.
        within_s: longest wait for it.
        streamed: paths whose route reads its body itself, with bounds of its own.
        streamed_below: likewise, paths with parameters; None for none.
        longer: bodies of some paths that may be longer; None for none.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_bytes: int,
        within_s: float,
        streamed: Collection[str] = (),
        streamed_below: re.Pattern[str] | None = None,
        longer: "LongerBodies | None" = None,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._within_s = within_s
        self._streamed = frozenset(streamed)
        self._streamed_below = streamed_below
        self._longer = longer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._reads_itself(scope["path"]):
            await self._pass_on(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        length = int(declared) if declared.isdigit() and len(declared) <= 12 else None
        longer = self._longer
        if longer is None or length is None or length <= self._max_bytes or not longer.has(scope["path"]):
            await self._take_whole(scope, receive, send, length, self._max_bytes)
            return
        try:
            place = longer.take(scope)
        except CapacityError as full:
            await refusal(503, str(full))(scope, receive, send)
            return
        with place:
            await self._take_whole(scope, receive, send, length, longer.max_bytes)

    def _reads_itself(self, path: str) -> bool:
        below = self._streamed_below
        return path in self._streamed or (below is not None and below.fullmatch(path) is not None)

    async def _take_whole(
        self, scope: Scope, receive: Receive, send: Send, length: int | None, max_bytes: int
    ) -> None:
        """Read the body, and pass the request on with it.

        Args:
            scope: of the request.
            receive: of the request.
            send: of the request.
            length: as declared; None when that is no number.
            max_bytes: of the body.
        """
        too_long = refusal(413, f"body over {max_bytes} bytes")
        if length is None or length > max_bytes:
            await too_long(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._within_s):
                body = await self._read(receive, max_bytes)
        except TimeoutError:
            too_late = refusal(408, f"the body did not arrive within {self._within_s} s")
            await too_late(scope, receive, send)
            return
        if body is None:
            return
        if len(body) > max_bytes:
            await too_long(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application.

        A route that answers before it has read the body closes the connection (see ``refusal``).
        """
        whole = False

        async def receive_and_see() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or not message.get("more_body", False)
            return message

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and not whole:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive_and_see, send_and_close)

    async def _read(self, receive: Receive, max_bytes: int) -> bytes | None:
        """Return the body, or its beginning once it is too long; None when the client has left.

        A chunked body declares no length: it is read here, up to the limit.
        """
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body", False) or len(body) > max_bytes:
                return bytes(body)


class LongerBodies:
    """Bodies that may be longer than others, a few at a time: each is in memory until its request is over.

    Args:
        paths: whose bodies they are.
        max_bytes: of a body, whose length must be declared.
        at_once: number of such requests at the same time; an address has a quarter of them.
        trusted_proxies: proxies whose statement about the client is believed.
    """

    def __init__(
        self, paths: re.Pattern[str], *, max_bytes: int, at_once: int, trusted_proxies: Collection[str]
    ) -> None:
        self._paths = paths
        self.max_bytes = max_bytes
        self._trusted_proxies = trusted_proxies
        each = max(1, at_once // 4)
        self._places = ConcurrencyLimit(
            at_once,
            f"{at_once} requests with long bodies are under way, try again in a moment",
            each=each,
            each_full=f"{each} requests with long bodies from this address are under way, try again later",
        )

    def take(self, scope: Scope) -> Slot:
        """Take a place for a request, before anything of its body is read.

        Raises:
            CapacityError: all are taken, or those of its address.
        """
        return self._places.take(client_of(HTTPConnection(scope), trusted_proxies=self._trusted_proxies))

    def has(self, path: str) -> bool:
        """Return whether a body of this path may be longer."""
        return self._paths.fullmatch(path) is not None


def refusal(status: int, why: str) -> JSONResponse:
    """Return a response that closes the connection."""
    # The rest of the body is not read: it would be taken for the next request.
    return JSONResponse({"error": why}, status_code=status, headers={"Connection": "close"})


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that yields a body that was read already, then the messages after it."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class KnownHosts:
    """ASGI middleware that refuses requests which call this server by a name other than its own.

    Another site's name may be made to point at this machine (DNS rebinding). To the browser the page of that
    site then has this origin. It could read every answer and open calls, and only the Host header reveals it.
    """

    def __init__(self, app: ASGIApp, *, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        match = HOST.fullmatch(host)
        if match and match.group(1) in self._names:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            # The handshake is not accepted yet: the client gets 403.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            stranger = refusal(
                403, f"this server is not called {host[:100]!r}: see allowed_hosts in the server settings"
            )
            await stranger(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on this host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def known_hosts(settings: ServerSettings) -> frozenset[str] | None:
    """Return the names by which this server may be called, in lower case; None for any."""
    if not is_loopback(settings.host) and not settings.allowed_hosts:
        return None
    return LOOPBACK_NAMES | {name.lower() for name in settings.allowed_hosts}


class Failures:
    """ASGI middleware that turns unexpected exceptions into a 500 and one log record.

    The server's own record of one would hold the whole text of the error, which may include ids of sessions.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_and_see(message: Message) -> None:
            nonlocal begun
            begun = True
            try:
                await send(message)
            except RuntimeError as error:
                if HANDLE_CLOSED not in str(error):
                    raise
                # The client has reset the connection, and the server is notified in the next iteration of the
                # loop. From then on it drops everything that is sent, as is done here.

        try:
            await self._app(scope, receive, send_and_see)
        except Exception as error:
            # Outermost level of one request. A partial response is cut off: the server closes an incomplete
            # one.
            log_failure("a request failed", error)
            if not begun:
                await refusal(500, "the server failed at this request")(scope, receive, send)


class PageHeaders:
    """ASGI middleware that adds headers about which resources a browser may load and what it may store.

    Args:
        app: whose responses get the headers.
        private: paths below which nothing may be stored.
        unlisted: paths below which nothing may be indexed by a search engine.
    """

    _HEADERS = (
        (b"content-security-policy", CONTENT_SECURITY_POLICY.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )
    # A page must not run with scripts of an earlier release; unchanged files are still answered with 304.
    _FRESH = (b"cache-control", b"no-cache")
    # Conversations, and data of the operator, must not stay in any cache.
    _PRIVATE = (b"cache-control", b"no-store")

    _UNLISTED = (b"x-robots-tag", b"noindex, nofollow, noarchive")

    def __init__(self, app: ASGIApp, *, private: Collection[str], unlisted: Collection[str] = ()) -> None:
        self._app = app
        self._private = tuple(private)
        self._unlisted = tuple(unlisted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        path = scope["path"]
        added = [*self._HEADERS, self._PRIVATE if _is_below(path, self._private) else self._FRESH]
        if _is_below(path, self._unlisted):
            added.append(self._UNLISTED)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _is_below(path: str, starts: Collection[str]) -> bool:
    return any(path == start or path.startswith(f"{start}/") for start in starts)
