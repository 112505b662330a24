"""Queued requests of one scheduler, in the order of service. Pure.

Conversations that lost a worker come before all others, and calls before texts (``Rank``), each group in the
order of its requests. The head is the first request that some known worker could hold; one that none could
hold keeps its place and is not the head. No method visits all requests, except iteration and a change of the
largest worker.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from parley.serving.scheduler.arrival_order import ArrivalOrder
from parley.serving.scheduler.types import Rank, WorkerRequest

# Distance of two groups: more than there can be requests.
_GROUP = 2**60


@dataclass(slots=True)
class Waiter:
    """Queued request.

    Attributes:
        want: the request.
        number: of the request; grows with each.
        since_ms: time of the request.
        heard_ms: time of its last heartbeat.
        is_resumed: true for a conversation that lost its worker.
        could_ms: time since which a worker was free for it, while it waits for another one.
        unfit_ms: time since which no known worker could hold it, even when empty.
    """

    want: WorkerRequest
    number: int
    since_ms: int
    heard_ms: int
    is_resumed: bool = False
    could_ms: int | None = None
    unfit_ms: int | None = None

    @property
    def key(self) -> int:
        """Place in the order of service."""
        return self.number + _GROUP * Rank.of(self.want.task, is_resumed=self.is_resumed)

    def wait_for_own(self, now_ms: int) -> int:
        """Return the time since which it could have had another worker than the one with its cache."""
        if self.could_ms is None:
            self.could_ms = now_ms
        return self.could_ms

    def stop_waiting_for_own(self) -> None:
        """Record that no worker has room for it."""
        self.could_ms = None


@dataclass(slots=True)
class _OfSize:
    """Requests of one size, by ticket."""

    fit: dict[str, Waiter] = field(default_factory=dict)
    unfit: dict[str, Waiter] = field(default_factory=dict)


class RequestQueue:
    """Queue of one scheduler. Times come in ascending order."""

    def __init__(self) -> None:
        # In the order of their last heartbeat, the oldest first.
        self._waiters: OrderedDict[str, Waiter] = OrderedDict()
        self._by_key: dict[int, Waiter] = {}
        self._order = ArrivalOrder()
        self._fit = ArrivalOrder()
        # In the order in which they were marked.
        self._unfit: OrderedDict[str, Waiter] = OrderedDict()
        self._sizes: dict[int, _OfSize] = {}
        self._live = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, ticket_id: object) -> bool:
        return ticket_id in self._waiters

    def __iter__(self) -> Iterator[Waiter]:
        return (self._by_key[key] for key in self._order)

    @property
    def head(self) -> Waiter | None:
        """Next request to be served; None when no request can be."""
        key = self._fit.first
        return None if key is None else self._by_key[key]

    @property
    def live(self) -> int:
        """Number of requests of live calls."""
        return self._live

    @property
    def least_heard_ms(self) -> int | None:
        """Time of the oldest of the last heartbeats; None when empty."""
        return next((waiter.heard_ms for waiter in self._waiters.values()), None)

    @property
    def least_unfit_ms(self) -> int | None:
        """Time of the oldest mark of a request that no known worker could hold; None without any."""
        return next((waiter.unfit_ms for waiter in self._unfit.values()), None)

    def add(self, waiter: Waiter) -> None:
        """Add a request, whose ticket is not queued."""
        ticket = waiter.want.ticket_id
        self._waiters[ticket] = self._by_key[waiter.key] = waiter
        self._order.add(waiter.key)
        self._fit.add(waiter.key)
        self._sizes.setdefault(waiter.want.kv_bytes, _OfSize()).fit[ticket] = waiter
        self._live += waiter.want.task.is_live

    def remove(self, ticket_id: str) -> Waiter | None:
        """Remove a request and return it; None for an unknown ticket."""
        waiter = self._waiters.pop(ticket_id, None)
        if waiter is None:
            return None
        del self._by_key[waiter.key]
        self._order.discard(waiter.key)
        self._fit.discard(waiter.key)
        self._unfit.pop(ticket_id, None)
        same = self._sizes[waiter.want.kv_bytes]
        same.fit.pop(ticket_id, None)
        same.unfit.pop(ticket_id, None)
        if not (same.fit or same.unfit):
            del self._sizes[waiter.want.kv_bytes]
        self._live -= waiter.want.task.is_live
        return waiter

    def heartbeat(self, ticket_id: str, now_ms: int) -> None:
        """Record a heartbeat; has no effect for an unknown ticket."""
        waiter = self._waiters.get(ticket_id)
        if waiter is not None:
            waiter.heard_ms = now_ms
            self._waiters.move_to_end(ticket_id)

    def position(self, ticket_id: str) -> int | None:
        """Return the position of a request, 1 for the next; None for an unknown ticket."""
        waiter = self._waiters.get(ticket_id)
        return None if waiter is None else self._order.before(waiter.key) + 1

    def silent(self, until_ms: int) -> list[Waiter]:
        """Return the requests whose last heartbeat was at ``until_ms`` at the latest, in order of service."""
        found = []
        for waiter in self._waiters.values():
            if waiter.heard_ms > until_ms:
                break
            found.append(waiter)
        return sorted(found, key=_key)

    def unfit(self, until_ms: int) -> list[Waiter]:
        """Return the requests that were marked at ``until_ms`` at the latest, in order of service."""
        found = []
        for waiter in self._unfit.values():
            if waiter.unfit_ms is None or waiter.unfit_ms > until_ms:
                break
            found.append(waiter)
        return sorted(found, key=_key)

    def fit_to(self, most_bytes: int | None, now_ms: int) -> None:
        """Mark the requests that are too large for every worker, and unmark the others.

        Args:
            most_bytes: memory of the largest worker; None: without a limit.
            now_ms: present time.
        """
        for size, same in self._sizes.items():
            if most_bytes is None or size <= most_bytes:
                for ticket, waiter in same.unfit.items():
                    waiter.unfit_ms = None
                    self._unfit.pop(ticket)
                    self._fit.add(waiter.key)
                same.fit.update(same.unfit)
                same.unfit.clear()
            else:
                for ticket, waiter in same.fit.items():
                    waiter.unfit_ms = now_ms
                    self._unfit[ticket] = waiter
                    self._fit.discard(waiter.key)
                same.unfit.update(same.fit)
                same.fit.clear()

    def clear(self) -> list[str]:
        """Remove all requests; return their tickets in the order of service."""
        tickets = [waiter.want.ticket_id for waiter in self]
        for ticket in tickets:
            self.remove(ticket)
        return tickets


def _key(waiter: Waiter) -> int:
    return waiter.key
