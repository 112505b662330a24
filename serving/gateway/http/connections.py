"""Table of a server's open connections: how many there may be, and how long each may stay without a request.

A connection waits until the head of its first request is complete, and again between two requests
(keep-alive). A waiting connection can be closed without loss. When an address is over its limit, its longest
waiting connection is closed; when the whole table is full, the longest waiting one of all. A client that
sends its request is never among them. Only many addresses in active use at the same time can fill the table.
The answer is then 503; ``/health`` and ``/ready`` still work, because ``RESERVE`` more connections are
admitted for them.

The last part of the table, ``TENANT_SHARE``, is for tenants. A request that would exceed the share of its
address, or enter that part, is admitted when it presents a credential of this server. The credential is
available when the head of a request is complete. Until then a connection counts with its address, and again
after its request is answered. Credentials are compared only where other requests are refused.

The bounds stay below the descriptor limit of the process, which is raised at the start
(``runtime.descriptors``). Connections are also closed when their client does not receive its answer, and
aborted when a close is not confirmed. One check of all connections a second decides all of that, because a
timer for each would be set anew with each request. Times are passed in, in seconds of one clock.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from parley.serving.gateway.http.requests import IPV6_CLIENT_BITS

# Descriptors other than connections of clients: store, engines, files, the listening socket and its backlog.
OTHER_DESCRIPTORS = 256
# Descriptors of one call: its UDP sockets and its streams to engines.
CALL_DESCRIPTORS = 8
LEAST_CONNECTIONS, MOST_CONNECTIONS = 64, 8_192
# Share of one address: half. A tunnel or a proxy that is not in ``trusted_proxies`` is one address for all
# its clients.
ADDRESS_SHARE = 0.5
# Share of the limit for requests with a credential; one tenant may have half of that part.
TENANT_SHARE, EACH_TENANT_SHARE = 0.25, 0.5
# Connections beyond the limit, and beyond that of an address, which may only request ``/health`` and
# ``/ready``.
RESERVE, ADDRESS_RESERVE = 64, 8
# Time for a peer to confirm the close.
CLOSE_S = 5.0


class Transport(Protocol):
    """Part of ``asyncio.Transport`` that the table needs."""

    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def get_protocol(self) -> object: ...


class ConnectionPhase(Enum):
    """Phase of a connection."""

    HEAD = auto()
    REQUEST = auto()
    KEPT = auto()


@dataclass(slots=True, eq=False)
class Connection:
    """Open connection.

    Attributes:
        transport: used to close it.
        address: of the client, for counting.
        since_s: when its phase began.
        phase: present phase.
        tenant: account on which its request was admitted; None: it counts with its address.
        unsent_bytes: pending at the last check.
        stalled_s: since when the client receives nothing; None: it does, or nothing is pending.
        closing_s: since when it is being closed.
    """

    transport: Transport
    address: str
    since_s: float
    phase: ConnectionPhase = ConnectionPhase.HEAD
    tenant: str | None = None
    unsent_bytes: int = 0
    stalled_s: float | None = None
    closing_s: float | None = None


@dataclass(slots=True)
class _Client:
    """Connections of one address without those of tenants; the waiting ones, longest first."""

    all: set[Connection] = field(default_factory=set)
    waiting: dict[Connection, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines of a connection, in seconds.

    Attributes:
        head_s: for a complete request head.
        kept_s: between two requests.
        stall_s: without progress of the client in receiving an answer.
    """

    head_s: float
    kept_s: float
    stall_s: float

    @property
    def look_s(self) -> float:
        """Time between two checks: a deadline is late by no more than a quarter of itself."""
        return min(1.0, self.head_s / 4, self.kept_s / 4, self.stall_s / 4)


class ConnectionTable:
    """Open connections of one server.

    Args:
        limit: maximum number of connections with a request, or that are sockets.
        deadlines: of each connection.
        trusted_proxies: addresses and networks that serve many clients: no limit of an address applies to
            them.
    """

    def __init__(self, limit: int, deadlines: Deadlines, *, trusted_proxies: Collection[str] = ()) -> None:
        self.limit = limit
        self.address_limit = max(1, int(limit * ADDRESS_SHARE))
        self.tenant_reserve = int(limit * TENANT_SHARE)
        self.each_tenant_limit = max(1, int(self.tenant_reserve * EACH_TENANT_SHARE))
        self.deadlines = deadlines
        self._trusted = [ipaddress.ip_network(proxy) for proxy in trusted_proxies]
        self._all: dict[Transport, Connection] = {}
        self._waiting: dict[Connection, None] = {}
        self._clients: dict[str, _Client] = {}
        # Connections that were admitted on a tenant's account.
        self._tenants: Counter[str] = Counter()
        # Connections closed to make room, and not reported yet.
        self._evicted = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def waiting(self) -> int:
        """Number of connections without a request."""
        return len(self._waiting)

    def take_evicted(self) -> int:
        """Return the number of connections closed to make room since the last call."""
        evicted, self._evicted = self._evicted, 0
        return evicted

    def opened(self, transport: Transport, address: str, now_s: float) -> None:
        """Add a connection, and close the longest waiting one where there are too many."""
        connection = Connection(transport, address, now_s)
        self._all[transport] = connection
        self._client(address).all.add(connection)
        self._wait(connection)
        self._make_room(connection)

    def moved(self, transport: Transport, phase: ConnectionPhase, now_s: float) -> None:
        """Record that a connection begins a phase."""
        connection = self._all.get(transport)
        if connection is None:
            return
        connection.phase, connection.since_s = phase, now_s
        self._wait_no_more(connection)
        if phase is not ConnectionPhase.REQUEST:
            self._give_back(connection)
            self._client(connection.address).all.add(connection)
            self._wait(connection)

    def closed(self, transport: Transport) -> None:
        """Remove a connection; further calls have no effect."""
        connection = self._all.pop(transport, None)
        if connection is None:
            return
        self._wait_no_more(connection)
        self._give_back(connection)
        self._leave_address(connection)

    def is_full(self, transport: Transport, tenant_of: Callable[[], str | None] | None = None) -> bool:
        """Return whether this request exceeds the limit of the server or of its client.

        Args:
            transport: of the request.
            tenant_of: returns the tenant whose credential the request presents, or None; called only where
                other requests are refused. None: the server has no tenants, and reserves nothing for them.
        """
        connection = self._all.get(transport)
        if connection is None or connection.tenant is not None:
            return False
        self._wait_no_more(connection)
        if self._takes_place(connection, tenant_of):
            return False
        # It has nothing more to lose, and a flood of refused requests must not look like a full table.
        self._wait(connection)
        return True

    def late(self, now_s: float) -> list[Connection]:
        """Return the connections whose time for a request head is over."""
        deadlines = self.deadlines
        return [
            connection
            for connection in self._waiting
            if connection.closing_s is None
            and now_s - connection.since_s
            # Between two requests the HTTP protocol keeps the time; a client that sends line ends stops that.
            >= (
                deadlines.head_s
                if connection.phase is ConnectionPhase.HEAD
                else deadlines.kept_s + deadlines.head_s
            )
        ]

    def look(self, now_s: float) -> list[Connection]:
        """Return the connections to be aborted: the client receives nothing, or never confirms the close."""
        cut = []
        for connection in self._all.values():
            size = connection.transport.get_write_buffer_size()
            if not size or size < connection.unsent_bytes:
                connection.stalled_s = None
            elif connection.stalled_s is None:
                connection.stalled_s = now_s
            connection.unsent_bytes = size
            if connection.closing_s is None and connection.transport.is_closing():
                connection.closing_s = now_s
            closes, stalls = connection.closing_s, connection.stalled_s
            if (closes is not None and now_s - closes >= CLOSE_S) or (
                stalls is not None and now_s - stalls >= self.deadlines.stall_s
            ):
                cut.append(connection)
        return cut

    def _client(self, address: str) -> _Client:
        return self._clients.setdefault(address, _Client())

    def _takes_place(self, connection: Connection, tenant_of: Callable[[], str | None] | None) -> bool:
        under_way = len(self._all) - len(self._waiting)
        if under_way > self.limit:
            return False
        open_limit = self.limit if tenant_of is None else self.limit - self.tenant_reserve
        if under_way <= open_limit and not self._has_its_share(connection):
            return True
        tenant = None if tenant_of is None else tenant_of()
        if tenant is None or self._tenants[tenant] >= self.each_tenant_limit:
            return False
        self._leave_address(connection)
        connection.tenant = tenant
        self._tenants[tenant] += 1
        return True

    def _has_its_share(self, connection: Connection) -> bool:
        client = self._clients[connection.address]
        under_way = len(client.all) - len(client.waiting)
        return under_way > self.address_limit and not self._is_proxy(connection.address)

    def _leave_address(self, connection: Connection) -> None:
        client = self._clients.get(connection.address)
        if client is not None:
            client.all.discard(connection)
            if not client.all:
                del self._clients[connection.address]

    def _give_back(self, connection: Connection) -> None:
        if connection.tenant is None:
            return
        self._tenants[connection.tenant] -= 1
        if not self._tenants[connection.tenant]:
            del self._tenants[connection.tenant]
        connection.tenant = None

    def _wait(self, connection: Connection) -> None:
        self._waiting[connection] = None
        self._clients[connection.address].waiting[connection] = None

    def _wait_no_more(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if (client := self._clients.get(connection.address)) is not None:
            client.waiting.pop(connection, None)

    def _make_room(self, newest: Connection) -> None:
        client = self._clients[newest.address]
        if not self._is_proxy(newest.address) and len(client.all) > self.address_limit + ADDRESS_RESERVE:
            self._evict(next(iter(client.waiting)))
        elif len(self._all) > self.limit + RESERVE:
            self._evict(next(iter(self._waiting)))

    def _evict(self, connection: Connection) -> None:
        self._evicted += 1
        # Its descriptor is freed when the loop has processed the abort; here it no longer counts.
        self.closed(connection.transport)
        connection.transport.abort()

    def _is_proxy(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_network(address)
        except ValueError:
            return False
        return any(
            parsed.version == network.version and parsed.subnet_of(network)  # type: ignore[arg-type]
            for network in self._trusted
        )


def counted_address(host: str) -> str:
    """Return the address by which a peer is counted: an IPv4 address, or the network of an IPv6 one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(address), IPV6_CLIENT_BITS), strict=False))
    return str(address)


def connection_limit(descriptors: int, *, max_calls: int) -> int:
    """Return how many connections may be in use in a process with this number of descriptors."""
    room = descriptors - OTHER_DESCRIPTORS - RESERVE
    # On a server with very many calls each may be a socket.
    left = max(room - max_calls * CALL_DESCRIPTORS, room // 2)
    return max(LEAST_CONNECTIONS, min(left, max(MOST_CONNECTIONS, 2 * max_calls)))
