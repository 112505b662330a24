"""HTTP transport for addresses that a client has chosen: it connects to public addresses only.

A host is resolved here, each of its addresses is checked, and the connection is made to an address that was
checked, so a second look-up cannot lead elsewhere. That holds for every request: also for the ones that
follow a redirect. Checked addresses are kept for a while, so that a call does not wait for a name server that
other clients keep busy. Proxies of the environment are not used, because they would resolve the host
themselves.

Decides what a server may send: an answer of at most ``MOST_RESPONSE_BYTES``, not compressed (a small answer
could unpack to any size), as JSON or as a stream of events. An answer that is none of these is an error of
the connection.

Names are resolved by threads of their own: a name server of the client's choice may take its time, and the
threads of the process serve every call.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2

from parley.core.bounded_dict import BoundedDict

MOST_RESPONSE_BYTES = 1_048_576
RESOLVE_S = 3.0
# Of one address, and after which no further one is tried. With the look-up of the host a call (8 s) ends
# before its deadline where no address answers: it is known then that it was not made.
CONNECT_S, CONNECTS_S = 2.0, 4.0
# Addresses of one host that are tried, one after the other.
MOST_ADDRESSES = 4
# Threads of all clients. One of them has at most one look-up at a time (``AddressGuard``).
MOST_LOOKUPS = 16
# Time for which the addresses of a host are kept, and hosts of one transport: that of its server.
KEPT_S, MOST_HOSTS = 300.0, 4
# Public by its number, and the address of services of the machine's own cloud (Azure's WireServer).
OF_THE_CLOUD = frozenset({ipaddress.ip_address("168.63.129.16")})
# Addresses of the Internet; what else IPv6 has is local, reserved, or carries an IPv4 address.
UNICAST = ipaddress.ip_network("2000::/3")
# Carry an IPv4 address in their last 32 bits: RFC 6052, and RFC 4291, 2.5.5.1.
IN_LAST_BITS = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96"))
# The same for a name that is not known: clients do not learn which names the network of this process has.
NOT_PUBLIC = "its host has no public address"
NOT_FOUND_IN_TIME = "the address of its host was not found in time"
TOO_LONG = f"its server's answer has over {MOST_RESPONSE_BYTES} bytes"
# Extension of a request: called when its response is too long. The protocol's client reports another reason.
ON_TOO_LONG = "on_too_long"
MEDIA_TYPES, OK = ("application/json", "text/event-stream"), 200

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp = Callable[[str, int], Sequence[Address]]

_lookups = ThreadPoolExecutor(MOST_LOOKUPS, thread_name_prefix="guarded.dns")


class GuardedAddressError(httpx2.ConnectError):
    """Raised when a host has no address to which a client may have a connection made."""


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the Internet, and so does one that it carries."""
    if isinstance(address, ipaddress.IPv6Address):
        carried = _carried(address)
        if carried is not None:
            return is_public(carried)
        if address not in UNICAST:
            return False
    return address.is_global and not address.is_multicast and address not in OF_THE_CLOUD


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address to which a gateway passes packets of an IPv6 address on."""
    if any(address in network for network in IN_LAST_BITS):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]


def literal_address(host: str) -> Address | None:
    """Return the address that a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def look_up(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host, in the order in which to try them. Blocks."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(str(answer[4][0])) for answer in answers))


class AddressGuard:
    """Decide to which addresses connections may be made. Looks up one host at a time.

    Args:
        hosts: ``host:port`` that the deployment permits, whatever addresses they have.
        look_up: returns the addresses of a host; may block.
        resolve_s: longest wait for it.
    """

    def __init__(
        self, hosts: Collection[str] = (), *, look_up: LookUp = look_up, resolve_s: float = RESOLVE_S
    ) -> None:
        self._look_up, self._resolve_s = look_up, resolve_s
        self._hosts = frozenset(host.lower() for host in hosts)
        self._turn = asyncio.Lock()
        # The latest look-up: its thread goes on where the wait for it is over.
        self._lookup: Future[Sequence[Address]] | None = None

    def permits(self, host: str, port: int) -> bool:
        """Return whether the deployment permits a host and port by name."""
        return f"{host.lower()}:{port}" in self._hosts

    async def addresses_of(self, host: str, port: int) -> Sequence[str]:
        """Return addresses of a host to connect to, at least one.

        Raises:
            GuardedAddressError: it has none, or one that is not public; or none was found in time.
        """
        found = literal_address(host)
        if found is not None:
            addresses: Sequence[Address] = [found]
        else:
            addresses = await self._resolved(host, port)
        if not self.permits(host, port) and not all(map(is_public, addresses)):
            raise GuardedAddressError(NOT_PUBLIC)
        return [str(address) for address in addresses[:MOST_ADDRESSES]]

    async def _resolved(self, host: str, port: int) -> Sequence[Address]:
        try:
            async with asyncio.timeout(self._resolve_s), self._turn:
                if self._lookup is not None and not self._lookup.done():
                    await asyncio.gather(asyncio.wrap_future(self._lookup), return_exceptions=True)
                self._lookup = _lookups.submit(self._look_up, host, port)
                # The end of the wait ends a look-up that has no thread yet, and no other one.
                return await asyncio.wrap_future(self._lookup)
        except TimeoutError:
            raise GuardedAddressError(NOT_FOUND_IN_TIME) from None
        except (OSError, UnicodeError):
            raise GuardedAddressError(NOT_PUBLIC) from None


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """Transport that connects to the addresses that a guard permits, and bounds what comes back.

    Args:
        guard: decides.
        connects_s: time after which no further address is tried.
        more: as for ``httpx2.AsyncHTTPTransport``.
    """

    def __init__(self, guard: AddressGuard, *, connects_s: float = CONNECTS_S, **more: Any) -> None:
        super().__init__(trust_env=False, **more)
        self._guard, self._connects_s = guard, connects_s
        # Addresses of hosts with their port, and the end of their time.
        self._checked: BoundedDict[tuple[str, int], tuple[Sequence[str], float]] = BoundedDict(MOST_HOSTS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to a checked address of its host.

        Raises:
            httpx2.TransportError: no address may be used or can be reached, or the answer is not permitted.
        """
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await self._addresses_of(url.host, port)
        failure: Exception | None = None
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._connects_s
        for address in addresses:
            if loop.time() >= until_s:
                break
            sent = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                # With the host's own name.
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                response = await super().handle_async_request(sent)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
                continue
            return await _checked(response, request)
        # It may have moved.
        self._checked.pop((url.host, port), None)
        raise httpx2.ConnectError("its host cannot be reached") from failure

    async def _addresses_of(self, host: str, port: int) -> Sequence[str]:
        now_s = asyncio.get_running_loop().time()
        addresses, until_s = self._checked.get((host, port), ((), 0.0))
        if now_s >= until_s:
            addresses = await self._guard.addresses_of(host, port)
            self._checked[host, port] = addresses, now_s + KEPT_S
        return addresses


async def _checked(response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
    """Return a response with a bound on its body; refuse one in another form than the protocol's."""
    fault = ""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        fault = "its server compressed the answer"
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A notification is answered with status 202 and no body, which may have a type all the same ("Accepted").
    if request.method == "POST" and kind and response.status_code == OK and kind not in MEDIA_TYPES:
        fault = "its server's answer is neither JSON nor a stream of events"
    if fault:
        await response.aclose()
        raise httpx2.RemoteProtocolError(fault)
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    return httpx2.Response(
        response.status_code,
        headers=response.headers,
        stream=_BoundedStream(stream, request.extensions.get(ON_TOO_LONG)),
        extensions=response.extensions,
    )


class _BoundedStream(httpx2.AsyncByteStream):
    """Body of a response that breaks off when it is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream, on_too_long: Callable[[], None] | None) -> None:
        self._stream = stream
        self._on_too_long = on_too_long
        self._left = MOST_RESPONSE_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                if self._on_too_long is not None:
                    self._on_too_long()
                raise httpx2.ReadError(TOO_LONG)
            yield piece

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
