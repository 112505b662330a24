"""Table of the open connections of one server: how many there may be, and how long each may be without a
request.

A connection waits until the head of its first request is complete, and again between two requests
(keep-alive). Everything that waits can be closed without loss, so a full table closes the connection of the
same address that waits longest, and a table that is full in all the one that waits longest. A client that
sends its request is never among them, and nothing but a number of addresses in use at the same time fills the
table: then the answer is 503, and ``/health`` and ``/ready`` still work, because ``RESERVE`` more connections
are let in to ask for them.

The last part of the table, ``TENANT_SHARE``, is for tenants: a request that would go beyond the share of
its address, or into that part, is let in when it shows a credential of this server. A credential is known
when the head of a request is complete: until then a connection counts with its address, and again when its
request is answered. Credentials are compared only where no other request gets in.

The bounds stay below the descriptor limit of the process, which is raised at the start
(``runtime.descriptors``). Closed are also connections of clients that take in nothing of their answer, and
those that do not let themselves be closed. One look a second at every connection decides all of that: a timer
for each would be made anew with each request. Times are given, in seconds of one clock.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from serving.gateway.requests import IPV6_CLIENT_BITS

# Descriptors that are not connections of clients: store, engines, files, the listening socket and what waits
# in it.
OTHER_DESCRIPTORS = 256
# Of one call: its UDP sockets and its streams to engines.
CALL_DESCRIPTORS = 8
LEAST_CONNECTIONS, MOST_CONNECTIONS = 64, 8_192
# Of an address: half. A tunnel or a proxy that is not in ``trusted_proxies`` is one address for all its
# clients.
ADDRESS_SHARE = 0.5
# Of the limit, for requests that show a credential; one tenant has half of that part.
TENANT_SHARE, EACH_TENANT_SHARE = 0.25, 0.5
# Connections beyond the limit, and beyond that of an address: they may only ask for
# ``/health`` and ``/ready``.
RESERVE, ADDRESS_RESERVE = 64, 8
# A peer that does not confirm the end has so long.
CLOSE_S = 5.0


class Transport(Protocol):
    """The part of ``asyncio.Transport`` that the table needs."""

    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def get_protocol(self) -> object: ...


class Phase(Enum):
    """Phase of a connection."""

    HEAD = auto()
    REQUEST = auto()
    KEPT = auto()


@dataclass(slots=True, eq=False)
class Connection:
    """Open connection.

    Attributes:
        transport: to close it with.
        address: of the client, for counting.
        tenant: on whose account its request was let in; None: it counts with its address.
        since_s: when its phase began.
        unsent_bytes: that were waiting at the last look.
        stalled_s: since when the client takes in nothing; None: it does, or nothing waits.
        closing_s: since when it is being closed.
    """

    transport: Transport
    address: str
    since_s: float
    phase: Phase = Phase.HEAD
    tenant: str | None = None
    unsent_bytes: int = 0
    stalled_s: float | None = None
    closing_s: float | None = None


@dataclass(slots=True)
class _Client:
    """Connections of one address without those of tenants; those that wait, longest first."""

    all: set[Connection] = field(default_factory=set)
    waiting: dict[Connection, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines of a connection, in seconds.

    Attributes:
        head_s: for a complete request head.
        kept_s: between two requests.
        stall_s: without a byte of an answer being taken in.
    """

    head_s: float
    kept_s: float
    stall_s: float

    @property
    def look_s(self) -> float:
        """Time between two looks: a deadline is late by no more than a quarter of itself."""
        return min(1.0, self.head_s / 4, self.kept_s / 4, self.stall_s / 4)


class ConnectionTable:
    """Open connections.

    Args:
        limit: that may be in a request, or be a socket, at a time.
        deadlines: of each.
        trusted_proxies: addresses and networks that are many clients: no limit of an address holds for them.
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
        # Connections that were let in on a tenant's account.
        self._tenants: Counter[str] = Counter()
        # Closed to make room, and not reported yet.
        self._evicted = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def waiting(self) -> int:
        """Connections without a request."""
        return len(self._waiting)

    def take_evicted(self) -> int:
        """Return how many connections were closed to make room since this was asked last."""
        evicted, self._evicted = self._evicted, 0
        return evicted

    def opened(self, transport: Transport, address: str, now_s: float) -> None:
        """Add a connection, and close the one that waits longest where there are too many."""
        connection = Connection(transport, address, now_s)
        self._all[transport] = connection
        self._client(address).all.add(connection)
        self._wait(connection)
        self._make_room(connection)

    def moved(self, transport: Transport, phase: Phase, now_s: float) -> None:
        """Note that a connection begins a phase."""
        connection = self._all.get(transport)
        if connection is None:
            return
        connection.phase, connection.since_s = phase, now_s
        self._wait_no_more(connection)
        if phase is not Phase.REQUEST:
            self._give_back(connection)
            self._client(connection.address).all.add(connection)
            self._wait(connection)

    def closed(self, transport: Transport) -> None:
        """Remove a connection; as often as it is called."""
        connection = self._all.pop(transport, None)
        if connection is None:
            return
        self._wait_no_more(connection)
        self._give_back(connection)
        self._leave_address(connection)

    def is_full(self, transport: Transport, tenant_of: Callable[[], str | None] | None = None) -> bool:
        """Return whether more is under way than may be, in all or of its client, with this request.

        Args:
            transport: of the request.
            tenant_of: returns the tenant whose credential the request shows, or None; called only where no
                other request gets in. None: the server has no tenants, and keeps nothing for them.
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
            >= (deadlines.head_s if connection.phase is Phase.HEAD else deadlines.kept_s + deadlines.head_s)
        ]

    def look(self, now_s: float) -> list[Connection]:
        """Return the connections that are to be cut: nothing is taken in, or they stay open when closed."""
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
        # Its descriptor is free when the loop has seen that; here it counts no more.
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
    """Return how many connections may be under way in a process with so many descriptors."""
    room = descriptors - OTHER_DESCRIPTORS - RESERVE
    # Of a server of very many calls each may be a socket.
    left = max(room - max_calls * CALL_DESCRIPTORS, room // 2)
    return max(LEAST_CONNECTIONS, min(left, max(MOST_CONNECTIONS, 2 * max_calls)))
