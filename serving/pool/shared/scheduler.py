"""Scheduler of one gateway over tables that all gateways share (``tables``).

It has the methods of ``serving.scheduler.scheduler.Scheduler``, as far as a pool calls them. A call changes
what this gateway wants the tables to contain, and returns the effects that are certain without them. Grants
come later, from ``LineSync``, which brings the tables to that state and reads what they grant. So an
operation never waits, a lost connection loses nothing, and a repeated step changes nothing.

Decided here: which workers this gateway reaches and trusts, and what follows when one of them is lost.
Decided in the tables: the order of all requests, and who gets a slot. Differences from a line of one gateway:
the head does not wait for the worker that has its cache while another is free, and caches that no handle
names are not known.

Thread-safe. Owns no task.
"""

import heapq
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from parley.serving.pool.shared.tables import GrantedRow, LeaseRow, RequestRow, SeenLease, SeenRequest
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.scheduler import SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    KnownWorker,
    Lease,
    LeaseGranted,
    LeaseLost,
    QueuePlace,
    RefusalReason,
    RequestRefused,
    Running,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)


@dataclass(slots=True)
class _Request:
    """Own request that waits."""

    want: WorkerRequest
    asked_ms: int
    number: int | None = None
    is_resumed: bool = False
    lost: int = 0
    unfit_ms: int | None = None


@dataclass(slots=True)
class _Held:
    """Own conversation that has a worker."""

    want: WorkerRequest
    asked_ms: int
    number: int
    granted: int
    lease: Lease
    since_ms: int


@dataclass(slots=True)
class _Reached:
    """Worker as this gateway sees it."""

    offer: WorkerCapacity
    standing: WorkerState
    ready_ms: int = 0
    failures: int = 0
    avoided_ms: int | None = None

    @property
    def is_open(self) -> bool:
        return self.standing is WorkerState.READY and self.avoided_ms is None


@dataclass(frozen=True, slots=True)
class LineChanges:
    """State of this gateway that the tables may not have yet.

    Attributes:
        over: tickets of conversations that are neither waiting nor running.
        requests: that wait, in order.
        leases: that are held.
        reached: workers that take conversations.
        unreached: names of the others.
        evicted: requests of other gateways that an operator removed.
    """

    over: tuple[str, ...] = ()
    requests: tuple[RequestRow, ...] = ()
    leases: tuple[LeaseRow, ...] = ()
    reached: tuple[WorkerCapacity, ...] = ()
    unreached: tuple[str, ...] = ()
    evicted: Mapping[str, RefusalReason] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.over or self.requests or self.leases or self.reached or self.unreached or self.evicted
        )


class SharedScheduler:
    """Scheduler of one gateway.

    Args:
        settings: bounds. ``max_waiting`` counts the requests of all gateways.
        eta: estimates of this gateway.
        now_ms: steady clock of the times that are given and returned; callable in every thread.

    Attributes:
        version: changes whenever a place in the queue may have changed.
        now_ms: as given.
    """

    def __init__(self, settings: SchedulerSettings, *, eta: Eta, now_ms: Callable[[], int]) -> None:
        self.settings = settings
        self.eta = eta
        self.version = 0
        self.now_ms = now_ms
        self._lock = threading.RLock()
        self._requests: dict[str, _Request] = {}
        self._held: dict[str, _Held] = {}
        self._workers: dict[str, _Reached] = {}
        self._changed_tickets: dict[str, None] = {}
        self._changed_workers: dict[str, None] = {}
        self._evicted: dict[str, RefusalReason] = {}
        self._stopping = False
        self._none_since_ms: int | None = None
        # Time since which the database does not answer; None while it does.
        self._away_since_ms: int | None = now_ms()
        self._seen_requests: Sequence[SeenRequest] = ()
        self._seen_leases: Sequence[SeenLease] = ()
        self._seen_ms = 0
        self._on_change: Callable[[], None] = lambda: None

    def when_changed(self, then: Callable[[], None]) -> None:
        """Call ``then`` after each change that the tables have to have; in any thread, must not block."""
        self._on_change = then

    # Workers.

    def worker_up(
        self,
        offer: WorkerCapacity,
        now_ms: int,
        *,
        standing: WorkerState = WorkerState.READY,
        ready_ms: int = 0,
    ) -> list[Effect]:
        """Register a worker; ``ready_ms`` is when a loading one is likely to be ready."""
        effects: list[Effect] = []
        with self._lock:
            known = self._workers.get(offer.worker)
            if known is not None and known.offer.incarnation == offer.incarnation:
                known.offer, known.standing, known.ready_ms = offer, standing, ready_ms
            else:
                if known is not None:
                    effects = self._lose(known, now_ms)
                self._workers[offer.worker] = _Reached(offer, standing, ready_ms)
            self._worker_changed(offer.worker, now_ms)
        self._on_change()
        return effects

    def worker_stands(self, worker: str, standing: WorkerState, now_ms: int) -> list[Effect]:
        """Set the availability of a worker."""
        with self._lock:
            known = self._workers.get(worker)
            if known is None:
                return []
            known.standing = standing
            self._worker_changed(worker, now_ms)
        self._on_change()
        return []

    def worker_down(self, worker: str, now_ms: int) -> list[Effect]:
        """Remove a worker that has ended; its conversations wait at the head."""
        with self._lock:
            known = self._workers.get(worker)
            if known is None:
                return []
            effects = self._lose(known, now_ms)
            del self._workers[worker]
            self._worker_changed(worker, now_ms)
        self._on_change()
        return effects

    # Conversations.

    def ask(self, want: WorkerRequest, now_ms: int) -> list[Effect]:
        """Queue a request for a worker.

        Raises:
            ValueError: the ticket is taken.
        """
        ticket = want.ticket_id
        with self._lock:
            if ticket in self._requests or ticket in self._held:
                raise ValueError(f"the ticket {ticket} is in use")
            if self._stopping:
                return [RequestRefused(ticket, RefusalReason.STOPPING)]
            if self._is_hopeless(now_ms):
                return [RequestRefused(ticket, RefusalReason.NO_WORKER)]
            if self._workers and not self._fits(want):
                return [RequestRefused(ticket, RefusalReason.TOO_LARGE, self._largest())]
            self._requests[ticket] = _Request(want, now_ms)
            self._ticket_changed(ticket)
        self._on_change()
        return []

    def found(self, want: WorkerRequest, now_ms: int) -> None:
        """Do nothing: the tables prefer the worker of a handle, whichever gateway kept it."""

    def cancel(self, ticket_id: str, now_ms: int) -> list[Effect]:
        """Withdraw a queued request for its owner, or release a running conversation as failed."""
        return self.release(ticket_id, now_ms, well=False)

    def evict(
        self, ticket_id: str, now_ms: int, *, reason: RefusalReason = RefusalReason.CANCELLED
    ) -> list[Effect]:
        """Remove a queued request of any gateway on behalf of an operator; see ``Scheduler.evict``."""
        with self._lock:
            if self._requests.pop(ticket_id, None) is not None:
                self._ticket_changed(ticket_id)
            elif any(each.ticket == ticket_id for each in self._line()):
                self._evicted[ticket_id] = reason
                self._seen_requests = [each for each in self._seen_requests if each.ticket != ticket_id]
                self.version += 1
            else:
                return []
        self._on_change()
        return [RequestRefused(ticket_id, reason)]

    def estimates_changed(self) -> None:
        """Mark the estimates as changed, so that waiting conversations are notified again."""
        self.version += 1

    def lease_rejected(self, ticket_id: str, now_ms: int, *, busy: bool = False) -> list[Effect]:
        """Report that the worker refused the lease or was not reached; see ``Scheduler.lease_rejected``."""
        with self._lock:
            held = self._held.pop(ticket_id, None)
            if held is None:
                return []
            worker = self._workers.get(held.lease.worker)
            if worker is not None:
                worker.standing = WorkerState.SUSPECT
                if not busy:
                    self._avoid(worker, now_ms)
                self._worker_changed(held.lease.worker, now_ms)
            effects = self._resume(held)
        self._on_change()
        return effects

    def move(self, ticket_id: str, now_ms: int) -> list[Effect]:
        """Report that the worker of a conversation has failed; see ``Scheduler.move``."""
        with self._lock:
            held = self._held.get(ticket_id)
        if held is None:
            return []
        return [LeaseLost(ticket_id, held.lease), *self.lease_rejected(ticket_id, now_ms)]

    def release(
        self, ticket_id: str, now_ms: int, *, well: bool, kept: tuple[tuple[str, int], ...] = ()
    ) -> list[Effect]:
        """End a conversation, or withdraw its request; see ``Scheduler.release``. ``kept`` is not used."""
        with self._lock:
            held = self._held.pop(ticket_id, None)
            if held is None and self._requests.pop(ticket_id, None) is None:
                return []
            if held is not None and well:
                self.eta.ended_well(held.want.task, (now_ms - held.since_ms) / 1000)
                worker = self._workers.get(held.lease.worker)
                if worker is not None:
                    worker.failures = 0
            self._ticket_changed(ticket_id)
        self._on_change()
        return []

    def stop(self) -> list[Effect]:
        """Refuse those that wait here, and all later requests; running conversations continue."""
        with self._lock:
            self._stopping = True
            waiting, self._requests = list(self._requests), {}
            for ticket in waiting:
                self._ticket_changed(ticket)
        self._on_change()
        return [RequestRefused(ticket, RefusalReason.STOPPING) for ticket in waiting]

    # Time.

    def next_deadline_ms(self) -> int | None:
        """Return None: ``LineSync`` calls ``due``."""
        return None

    def on_deadline(self, now_ms: int) -> list[Effect]:
        """Do nothing, as ``next_deadline_ms``."""
        return []

    def next_due_ms(self) -> int | None:
        """Return when the avoidance of a worker ends; None where none is avoided."""
        with self._lock:
            avoided = [each.avoided_ms for each in self._workers.values() if each.avoided_ms is not None]
        return min(avoided, default=None)

    def due(self, now_ms: int) -> list[Effect]:
        """Perform everything that is due."""
        no_worker_ms = self.settings.no_worker_ms
        with self._lock:
            for name, worker in self._workers.items():
                if worker.avoided_ms is not None and worker.avoided_ms <= now_ms:
                    worker.avoided_ms = None
                    self._worker_changed(name, now_ms)
            if all(each.standing is WorkerState.DRAINING for each in self._workers.values()):
                if self._none_since_ms is None:
                    self._none_since_ms = now_ms
            else:
                self._none_since_ms = None
            refused: dict[str, RequestRefused] = {}
            for ticket, each in self._requests.items():
                if self._is_hopeless(now_ms):
                    refused[ticket] = RequestRefused(ticket, RefusalReason.NO_WORKER)
                elif not self._workers or self._fits(each.want):
                    each.unfit_ms = None
                elif each.unfit_ms is None:
                    each.unfit_ms = now_ms
                elif now_ms - each.unfit_ms >= no_worker_ms:
                    refused[ticket] = RequestRefused(ticket, RefusalReason.TOO_LARGE, self._largest())
            for ticket in refused:
                del self._requests[ticket]
                self._ticket_changed(ticket)
        return list(refused.values())

    # The tables.

    @property
    def has_changes(self) -> bool:
        """True when the tables may not have the state of this gateway."""
        return bool(self._changed_tickets or self._changed_workers or self._evicted)

    def mark_all(self) -> None:
        """Mark everything as changed, because the tables have nothing of this gateway."""
        with self._lock:
            self._changed_tickets |= dict.fromkeys((*self._requests, *self._held))
            self._changed_workers |= dict.fromkeys(self._workers)

    def take_changes(self, offset_us: int) -> LineChanges:
        """Return what the tables may not have. The caller puts it back if they do not get it.

        Args:
            offset_us: of the database's clock to ``now_ms``.
        """
        now_ms = self.now_ms()
        with self._lock:
            tickets, self._changed_tickets = self._changed_tickets, {}
            workers, self._changed_workers = self._changed_workers, {}
            evicted, self._evicted = self._evicted, {}
            asked = [self._requests[ticket] for ticket in tickets if ticket in self._requests]
            held = [self._held[ticket] for ticket in tickets if ticket in self._held]
            reached = [name for name in workers if name in self._workers and self._workers[name].is_open]
            return LineChanges(
                tuple(each for each in tickets if each not in self._requests and each not in self._held),
                tuple(_request_row(each, now_ms, offset_us) for each in asked),
                tuple(_lease_row(each, now_ms) for each in held),
                tuple(self._workers[name].offer for name in reached),
                tuple(name for name in workers if name not in reached),
                evicted,
            )

    def put_back(self, changes: LineChanges) -> None:
        """Mark changes again that the tables did not get, before later ones."""
        with self._lock:
            rows: tuple[RequestRow | LeaseRow, ...] = (*changes.requests, *changes.leases)
            tickets = (*changes.over, *(row.want.ticket_id for row in rows))
            workers = (*changes.unreached, *(offer.worker for offer in changes.reached))
            self._changed_tickets = dict.fromkeys(tickets) | self._changed_tickets
            self._changed_workers = dict.fromkeys(workers) | self._changed_workers
            self._evicted = {**changes.evicted, **self._evicted}

    def on_numbers(self, numbers: Mapping[str, int]) -> None:
        """Record the places that requests have in the line."""
        with self._lock:
            for ticket, number in numbers.items():
                request = self._requests.get(ticket)
                if request is not None:
                    request.number = number
            self.version += 1

    def on_granted(self, rows: Collection[GrantedRow], now_ms: int) -> list[Effect]:
        """Record grants and return those that are used.

        One for a request that was withdrawn meanwhile is given back. One for a worker that is not reached any
        more is given back too, and its conversation waits at the head.
        """
        effects: list[Effect] = []
        with self._lock:
            for row in rows:
                request = self._requests.get(row.ticket)
                if request is None:
                    if row.ticket not in self._held:
                        self._ticket_changed(row.ticket)
                    continue
                worker = self._workers.get(row.lease.worker)
                request.number = row.number
                if worker is None or not worker.is_open or worker.offer.incarnation != row.lease.incarnation:
                    request.is_resumed, request.lost = True, row.granted
                    self._ticket_changed(row.ticket)
                    continue
                del self._requests[row.ticket]
                self._held[row.ticket] = _Held(
                    request.want, request.asked_ms, row.number, row.granted, row.lease, now_ms
                )
                effects.append(LeaseGranted(row.ticket, row.lease))
            self.version += bool(rows)
        return effects

    def on_refused(self, refused: Mapping[str, RefusalReason]) -> list[Effect]:
        """Record requests that were removed from the line."""
        effects: list[Effect] = []
        with self._lock:
            for ticket, reason in refused.items():
                if self._requests.pop(ticket, None) is not None:
                    limit = self.settings.max_waiting if reason is RefusalReason.QUEUE_FULL else 0
                    effects.append(RequestRefused(ticket, reason, limit))
        return effects

    def on_seen(self, requests: Sequence[SeenRequest], leases: Sequence[SeenLease]) -> None:
        """Record the line and the leases of all gateways, as they are now."""
        with self._lock:
            self._seen_requests, self._seen_leases = requests, leases
            self._seen_ms = self.now_ms()
            self.version += 1

    def on_reached(self, is_reached: bool) -> None:
        """Record whether the database answers."""
        with self._lock:
            if is_reached:
                self._away_since_ms = None
            elif self._away_since_ms is None:
                self._away_since_ms = self.now_ms()

    # State.

    @property
    def waiting(self) -> int:
        """Number of waiting conversations of all gateways."""
        with self._lock:
            return len(self._line())

    @property
    def is_waiting_here(self) -> bool:
        """True while a conversation of this gateway waits."""
        return bool(self._requests)

    def worker(self, name: str) -> KnownWorker | None:
        """Return the state of a worker, with the conversations of this gateway; None for an unknown one."""
        with self._lock:
            known = self._workers.get(name)
            if known is None:
                return None
            held = [each for each in self._held.values() if each.lease.worker == name]
            reserved = sum(each.want.kv_bytes for each in held)
            return KnownWorker(known.offer, known.standing, len(held), reserved)

    def sessions_on(self, worker: str) -> set[str]:
        """Return the sessions of all gateways that have a lease of a worker."""
        with self._lock:
            return {each.lease.session_id for each in self._leases() if each.lease.worker == worker}

    def places(self, now_ms: int) -> list[QueuePlace]:
        """Return the queue of all gateways, its head first, with the estimated wait of each."""
        return list(self.iter_places(now_ms))

    def iter_places(self, now_ms: int) -> Iterator[QueuePlace]:
        """Iterate over ``places`` as they are now, for a reader that yields to others in between."""
        with self._lock:
            line, free_ms, seen_ms = self._line(), self._free_ms(now_ms), self._seen_ms
        heapq.heapify(free_ms)
        return self._places(line, free_ms, seen_ms)

    def _places(self, line: Sequence[SeenRequest], free_ms: list[int], seen_ms: int) -> Iterator[QueuePlace]:
        for position, each in enumerate(line, start=1):
            wait_ms = None
            if free_ms:
                wait_ms = free_ms[0]
                heapq.heapreplace(free_ms, wait_ms + round(self.eta.lasts_s(each.task) * 1000))
            yield QueuePlace(
                each.ticket, each.session_id, each.task, position, wait_ms, seen_ms - each.age_ms
            )

    def running(self, now_ms: int) -> list[Running]:
        """Return the conversations of all gateways that have a worker, the oldest first."""
        with self._lock:
            leases = sorted(self._leases(), key=lambda each: -each.age_ms)
            return [
                Running(
                    each.ticket,
                    each.lease,
                    each.task,
                    now_ms - each.age_ms,
                    round(self.eta.left_s(each.task, each.age_ms / 1000) * 1000),
                )
                for each in leases
            ]

    # Internal; called with the lock.

    def _line(self) -> list[SeenRequest]:
        """Return the line as it was last seen, less own requests that have left it, and with new ones."""
        now_ms = self.now_ms()
        line = [
            each
            for each in self._seen_requests
            if (each.ticket in self._requests if each.is_own else each.ticket not in self._evicted)
        ]
        seen = {each.ticket for each in line if each.is_own}
        line += [
            SeenRequest(ticket, True, asked.want.session_id, asked.want.task, now_ms - asked.asked_ms)
            for ticket, asked in self._requests.items()
            if ticket not in seen
        ]
        return line

    def _leases(self) -> list[SeenLease]:
        """Return the leases as they were last seen, with those that are held here now."""
        now_ms = self.now_ms()
        elapsed_ms = now_ms - self._seen_ms
        own = [
            SeenLease(ticket, True, each.lease, each.want.task, now_ms - each.since_ms)
            for ticket, each in self._held.items()
        ]
        others = [
            SeenLease(each.ticket, False, each.lease, each.task, each.age_ms + elapsed_ms)
            for each in self._seen_leases
            if not each.is_own
        ]
        return own + others

    def _free_ms(self, now_ms: int) -> list[int]:
        """Return the estimated time until each slot of the workers that this gateway reaches is free."""
        runs: dict[str, list[SeenLease]] = {}
        for lease in self._leases():
            runs.setdefault(lease.lease.worker, []).append(lease)
        free_ms: list[int] = []
        for name, worker in self._workers.items():
            if worker.standing is WorkerState.LOADING:
                free_ms += [max(0, worker.ready_ms - now_ms)] * worker.offer.slots
            elif worker.standing is WorkerState.READY:
                on_it = runs.get(name, [])
                left = [round(self.eta.left_s(each.task, each.age_ms / 1000) * 1000) for each in on_it]
                free_ms += [*[0] * (worker.offer.slots - len(on_it)), *left]
        return free_ms

    def _ticket_changed(self, ticket: str) -> None:
        self._changed_tickets[ticket] = None
        self.version += 1

    def _worker_changed(self, worker: str, now_ms: int) -> None:
        self._changed_workers[worker] = None
        self.version += 1
        if any(each.standing is not WorkerState.DRAINING for each in self._workers.values()):
            self._none_since_ms = None
        elif self._none_since_ms is None:
            self._none_since_ms = now_ms

    def _avoid(self, worker: _Reached, now_ms: int) -> None:
        chosen = self.settings
        wait_ms = min(chosen.suspect_ms * 2 ** min(worker.failures, 20), chosen.longest_suspect_ms)
        worker.failures += 1
        worker.avoided_ms = now_ms + wait_ms

    def _lose(self, worker: _Reached, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for ticket, held in list(self._held.items()):
            if (held.lease.worker, held.lease.incarnation) == (worker.offer.worker, worker.offer.incarnation):
                del self._held[ticket]
                effects += [LeaseLost(ticket, held.lease), *self._resume(held)]
        return effects

    def _resume(self, held: _Held) -> list[Effect]:
        """Put a conversation at the head; a stopping scheduler refuses it."""
        ticket = held.want.ticket_id
        self._ticket_changed(ticket)
        if self._stopping:
            return [RequestRefused(ticket, RefusalReason.STOPPING)]
        self._requests[ticket] = _Request(
            held.want, held.asked_ms, held.number, is_resumed=True, lost=held.granted
        )
        return []

    def _fits(self, want: WorkerRequest) -> bool:
        sizes = [worker.offer.kv_bytes for worker in self._workers.values()]
        return any(size is None or want.kv_bytes <= size for size in sizes)

    def _largest(self) -> int:
        return max((worker.offer.kv_bytes or 0 for worker in self._workers.values()), default=0)

    def _is_hopeless(self, now_ms: int) -> bool:
        since = (self._none_since_ms, self._away_since_ms)
        return any(each is not None and now_ms - each >= self.settings.no_worker_ms for each in since)


def _request_row(request: _Request, now_ms: int, offset_us: int) -> RequestRow:
    number = request.number
    return RequestRow(
        request.want,
        request.asked_ms * 1_000 + offset_us if number is None else number,
        number is None,
        request.is_resumed,
        now_ms - request.asked_ms,
        request.lost,
    )


def _lease_row(held: _Held, now_ms: int) -> LeaseRow:
    asked_age_ms, age_ms = now_ms - held.asked_ms, now_ms - held.since_ms
    return LeaseRow(held.want, held.number, held.granted, held.lease, asked_age_ms, age_ms)
