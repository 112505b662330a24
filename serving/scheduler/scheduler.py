"""Queue for a pool of workers, and assignment of workers to conversations.

Pure: time comes in, effects go out. Inputs: worker requests and cancellations; workers joining, changing
state or failing; conversations ending. Output of each call: the resulting effects, in order. There is one
queue, first come first served. A conversation that lost its worker waits at its head; several of them are in
the order of their requests. The head is never overtaken. It may wait for the worker that has its cache, for
``affinity_ms`` from when it could have had another, and not at all while a live call waits after it.

A lease is the scheduler's view; the worker decides (``serving.worker``). A worker that does not accept a
lease is suspect until it reports that it is ready, and the conversation that was granted the lease waits at
the head.

Full: refused with the length of the queue. Without a worker that might ever be ready, waiting conversations
are refused after ``no_worker_ms``. A waiter without a heartbeat for ``silent_ms`` counts as having left.
Nothing here waits, fails or starts. An unknown ticket or worker is ignored, and such a call changes nothing.
"""

import heapq
from dataclasses import dataclass, field, replace

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.serving.scheduler.affinity import Candidate, Kept, best, holds
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.types import (
    Effect,
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


class SchedulerSettings(StrictModel):
    """Bounds of one queue."""

    max_waiting: int = Field(1_000, ge=0, le=1_000_000, description="queued requests; more are refused")
    affinity_ms: int = Field(
        200, ge=0, le=200, description="longest wait of the first request for the worker that has its cache"
    )
    silent_ms: int | None = Field(
        None,
        ge=50,
        le=600_000,
        description="time without a heartbeat after which a queued request has left; null: never",
    )
    no_worker_ms: int = Field(
        30_000,
        ge=0,
        le=3_600_000,
        description="time without any worker after which queued requests are refused",
    )
    suspect_ms: int = Field(
        1_000,
        ge=0,
        le=600_000,
        description="time for which a worker that failed gets no requests, whatever it reports; doubles "
        "with each failure in a row",
    )
    longest_suspect_ms: int = Field(60_000, ge=0, le=3_600_000)
    kept_caches: int = Field(8, ge=0, le=10_000, description="caches remembered per worker")


@dataclass(slots=True)
class _Waiter:
    want: WorkerRequest
    number: int
    since_ms: int
    heard_ms: int
    # Time since which a worker was free for it, while it waits for another one.
    could_ms: int | None = None
    # Time since which no known worker could hold it, even when empty.
    unfit_ms: int | None = None


@dataclass(slots=True)
class _Runs:
    want: WorkerRequest
    number: int
    asked_ms: int
    since_ms: int
    lease: Lease


@dataclass(slots=True)
class _Worker:
    offer: WorkerCapacity
    standing: WorkerState
    # Time at which a loading worker is likely to be ready.
    ready_ms: int = 0
    runs: dict[str, _Runs] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)
    # Consecutive failures, and the time until which it is avoided because of them.
    failures: int = 0
    avoided_ms: int = 0

    def may_hold(self, want: WorkerRequest) -> bool:
        return self.offer.kv_bytes is None or want.kv_bytes <= self.offer.kv_bytes

    def has_room(self, want: WorkerRequest, now_ms: int) -> bool:
        if now_ms < self.avoided_ms:
            return False
        if self.standing is not WorkerState.READY or len(self.runs) >= self.offer.slots:
            return False
        limit = self.offer.kv_bytes
        return (
            limit is None or sum(each.want.kv_bytes for each in self.runs.values()) + want.kv_bytes <= limit
        )

    def candidate(self) -> Candidate:
        return Candidate(self.offer.worker, self.offer.incarnation, tuple(self.kept))


class Scheduler:
    """Queue and assignments of one pool.

    Args:
        settings: bounds.
        eta: estimates of the pool.

    Attributes:
        version: changes whenever a place in the queue may have changed.
    """

    def __init__(self, settings: SchedulerSettings | None = None, *, eta: Eta | None = None) -> None:
        self.settings = settings or SchedulerSettings()
        self.eta = eta or Eta()
        self.version = 0
        self._workers: dict[str, _Worker] = {}
        # In the order of service: conversations that lost a worker come before all others.
        self._resumed: dict[str, _Waiter] = {}
        self._waiting: dict[str, _Waiter] = {}
        self._on: dict[str, str] = {}
        self._asked = 0
        self._stopping = False
        self._seen_ms = 0
        # Time since which there has been no worker that might ever be ready; set from the first call on.
        self._none_since_ms: int | None = None

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
        known = self._workers.get(offer.worker)
        effects: list[Effect] = []
        if known is not None and known.offer.incarnation == offer.incarnation:
            known.offer, known.ready_ms = offer, ready_ms
            return self.worker_stands(offer.worker, standing, now_ms)
        if known is not None:
            effects = self._lose(known, now_ms)
        self._workers[offer.worker] = _Worker(offer, standing, ready_ms)
        return [*effects, *self._changed(now_ms)]

    def worker_stands(self, worker: str, standing: WorkerState, now_ms: int) -> list[Effect]:
        """Set the availability of a worker."""
        known = self._workers.get(worker)
        if known is None:
            return []
        known.standing = standing
        return self._changed(now_ms)

    def worker_down(self, worker: str, now_ms: int) -> list[Effect]:
        """Remove a worker that has ended; its conversations wait at the head."""
        known = self._workers.get(worker)
        if known is None:
            return []
        effects = self._lose(known, now_ms)
        del self._workers[worker]
        return [*effects, *self._changed(now_ms)]

    # Conversations.

    def ask(self, want: WorkerRequest, now_ms: int) -> list[Effect]:
        """Queue a request for a worker; it is granted at once where one is free.

        Raises:
            ValueError: the ticket is taken.
        """
        ticket = want.ticket_id
        if ticket in self._on or self._waiter(ticket) is not None:
            raise ValueError(f"the ticket {ticket} is in use")
        reason, limit = self._refusal(want, now_ms)
        if reason is not None:
            return [RequestRefused(ticket, reason, limit)]
        self._asked += 1
        self._waiting[ticket] = _Waiter(want, self._asked, now_ms, now_ms)
        effects = self._changed(now_ms)
        if len(self._waiting) + len(self._resumed) > self.settings.max_waiting and ticket in self._waiting:
            del self._waiting[ticket]
            return [*effects, RequestRefused(ticket, RefusalReason.QUEUE_FULL, self.settings.max_waiting)]
        return effects

    def heartbeat(self, ticket_id: str, now_ms: int) -> None:
        """Record a heartbeat for a queued request."""
        waiter = self._waiter(ticket_id)
        if waiter is not None:
            waiter.heard_ms = now_ms

    def cancel(self, ticket_id: str, now_ms: int) -> list[Effect]:
        """Withdraw a queued request for its owner, or release a running conversation as failed."""
        if ticket_id in self._on:
            return self.release(ticket_id, now_ms, well=False)
        if self._forget(ticket_id) is None:
            return []
        return self._changed(now_ms)

    def evict(
        self, ticket_id: str, now_ms: int, *, reason: RefusalReason = RefusalReason.CANCELLED
    ) -> list[Effect]:
        """Remove a queued request on behalf of an operator. Has no effect on a running conversation.

        Args:
            ticket_id: of the request.
            now_ms: present time.
            reason: sent to its owner.
        """
        if self._forget(ticket_id) is None:
            return []
        return [RequestRefused(ticket_id, reason), *self._changed(now_ms)]

    def estimates_changed(self) -> None:
        """Mark the estimates as changed, so that waiting conversations are notified again."""
        self.version += 1

    def lease_rejected(self, ticket_id: str, now_ms: int, *, busy: bool = False) -> list[Effect]:
        """Report that the worker refused the lease or was not reached.

        The worker is suspect, and the conversation waits at the head.

        Args:
            ticket_id: of the request.
            now_ms: present time.
            busy: another client holds the worker, which is not a failure: it is free when it reports so.
        """
        runs = self._end(ticket_id)
        if runs is None:
            return []
        if busy:
            self._workers[runs.lease.worker].standing = WorkerState.SUSPECT
        else:
            self._suspect(self._workers[runs.lease.worker], now_ms)
        return [*self._resume(runs, now_ms), *self._changed(now_ms)]

    def move(self, ticket_id: str, now_ms: int) -> list[Effect]:
        """Report that the worker of a conversation has failed.

        The worker is suspect, and the conversation waits at the head.
        """
        runs = self._end(ticket_id)
        if runs is None:
            return []
        self._suspect(self._workers[runs.lease.worker], now_ms)
        lost = LeaseLost(ticket_id, runs.lease)
        return [lost, *self._resume(runs, now_ms), *self._changed(now_ms)]

    def release(
        self, ticket_id: str, now_ms: int, *, well: bool, kept: tuple[tuple[str, int], ...] = ()
    ) -> list[Effect]:
        """End a conversation.

        Args:
            ticket_id: of the request.
            now_ms: present time.
            well: true when its duration counts for the estimates.
            kept: segments that the worker has kept of it, as ``WorkerRequest.digests``.
        """
        runs = self._end(ticket_id)
        if runs is None:
            return []
        if well:
            self._workers[runs.lease.worker].failures = 0
            self.eta.ended_well(runs.want.task, (now_ms - runs.since_ms) / 1000)
        if kept:
            self._keep(self._workers[runs.lease.worker], Kept(kept, now_ms, runs.want.session_id))
        return self._changed(now_ms)

    def left(self, session_id: str) -> None:
        """Record that no client has a session open any more: its caches are the first to be evicted."""
        for worker in self._workers.values():
            worker.kept = [
                replace(kept, is_left=True) if kept.session_id == session_id else kept for kept in worker.kept
            ]

    def stop(self) -> list[Effect]:
        """Refuse those that wait, and all later requests; running conversations continue."""
        self._stopping = True
        waiting = [*self._resumed, *self._waiting]
        self._resumed.clear()
        self._waiting.clear()
        self.version += 1
        return [RequestRefused(ticket, RefusalReason.STOPPING) for ticket in waiting]

    # Time.

    def next_deadline_ms(self) -> int | None:
        """Return when ``on_deadline`` is due, unless another call comes first; None: not at all."""
        waiters = [*self._resumed.values(), *self._waiting.values()]
        if not waiters:
            return None
        chosen = self.settings
        due_ms = []
        if chosen.silent_ms is not None:
            due_ms.append(min(waiter.heard_ms for waiter in waiters) + chosen.silent_ms)
        head = self._head()
        if head is not None and head.could_ms is not None:
            due_ms.append(head.could_ms + chosen.affinity_ms)
        if self._none_since_ms is not None:
            due_ms.append(self._none_since_ms + chosen.no_worker_ms)
        due_ms += [each.unfit_ms + chosen.no_worker_ms for each in waiters if each.unfit_ms is not None]
        due_ms += [each.avoided_ms for each in self._workers.values() if each.avoided_ms > self._seen_ms]
        return min(due_ms, default=None)

    def on_deadline(self, now_ms: int) -> list[Effect]:
        """Perform everything that is due."""
        effects: list[Effect] = []
        silent_ms = self.settings.silent_ms
        waiters = [*self._resumed.values(), *self._waiting.values()]
        for waiter in waiters:
            if silent_ms is not None and now_ms - waiter.heard_ms >= silent_ms:
                self._forget(waiter.want.ticket_id)
                effects.append(RequestRefused(waiter.want.ticket_id, RefusalReason.LEFT))
        for waiter in waiters:
            unfit_ms = waiter.unfit_ms
            if unfit_ms is not None and now_ms - unfit_ms >= self.settings.no_worker_ms:
                if self._forget(waiter.want.ticket_id) is not None:
                    effects.append(
                        RequestRefused(waiter.want.ticket_id, RefusalReason.TOO_LARGE, self._largest())
                    )
        if self._is_hopeless(now_ms):
            for ticket in [*self._resumed, *self._waiting]:
                self._forget(ticket)
                effects.append(RequestRefused(ticket, RefusalReason.NO_WORKER))
        return [*effects, *self._changed(now_ms)]

    # State.

    @property
    def waiting(self) -> int:
        """Number of waiting conversations."""
        return len(self._resumed) + len(self._waiting)

    @property
    def workers(self) -> dict[str, tuple[WorkerCapacity, WorkerState, int]]:
        """Workers by name, each with its availability and its number of conversations."""
        return {
            name: (worker.offer, worker.standing, len(worker.runs)) for name, worker in self._workers.items()
        }

    def places(self, now_ms: int) -> list[QueuePlace]:
        """Return the queue, its head first, with the estimated wait of each."""
        free_ms = [at_ms for worker in self._workers.values() for at_ms in self._slots_ms(worker, now_ms)]
        heapq.heapify(free_ms)
        places = []
        for position, waiter in enumerate((*self._resumed.values(), *self._waiting.values()), start=1):
            want, wait_ms = waiter.want, None
            if free_ms:
                wait_ms = heapq.heappop(free_ms)
                heapq.heappush(free_ms, wait_ms + round(self.eta.lasts_s(want.task) * 1000))
            places.append(
                QueuePlace(want.ticket_id, want.session_id, want.task, position, wait_ms, waiter.since_ms)
            )
        return places

    def running(self, now_ms: int) -> list[Running]:
        """Return the conversations that have a worker, the oldest first."""
        runs = [each for worker in self._workers.values() for each in worker.runs.values()]
        runs.sort(key=lambda each: each.since_ms)
        return [
            Running(
                each.want.ticket_id,
                each.lease,
                each.want.task,
                each.since_ms,
                self._left_ms(each, now_ms),
            )
            for each in runs
        ]

    # Internal.

    def _refusal(self, want: WorkerRequest, now_ms: int) -> tuple[RefusalReason | None, int]:
        if self._stopping:
            return RefusalReason.STOPPING, 0
        if self._is_hopeless(now_ms):
            return RefusalReason.NO_WORKER, 0
        if self._workers and not self._may_ever_run(want):
            return RefusalReason.TOO_LARGE, self._largest()
        return None, 0

    def _may_ever_run(self, want: WorkerRequest) -> bool:
        """Return whether any known worker could hold the conversation when empty."""
        return any(worker.may_hold(want) for worker in self._workers.values())

    def _largest(self) -> int:
        return max((worker.offer.kv_bytes or 0 for worker in self._workers.values()), default=0)

    def _is_hopeless(self, now_ms: int) -> bool:
        since_ms = self._none_since_ms
        return since_ms is not None and now_ms - since_ms >= self.settings.no_worker_ms

    def _changed(self, now_ms: int) -> list[Effect]:
        self.version += 1
        self._seen_ms = max(self._seen_ms, now_ms)
        self._mark_unfit(now_ms)
        if any(worker.standing is not WorkerState.DRAINING for worker in self._workers.values()):
            self._none_since_ms = None
        elif self._none_since_ms is None:
            self._none_since_ms = now_ms
        effects: list[Effect] = []
        while (waiter := self._head()) is not None:
            free = [
                worker.candidate()
                for worker in self._workers.values()
                if worker.has_room(waiter.want, now_ms)
            ]
            name = best(free, waiter.want, now_ms)
            if name is None:
                waiter.could_ms = None
                break
            if self._waits_for_its_own(waiter, name, now_ms):
                break
            effects.append(self._grant(waiter, self._workers[name], now_ms))
        return effects

    def _head(self) -> _Waiter | None:
        """Return the next waiter. One that no known worker can hold does not block the others."""
        waiters = (*self._resumed.values(), *self._waiting.values())
        return next((waiter for waiter in waiters if waiter.unfit_ms is None), None)

    def _mark_unfit(self, now_ms: int) -> None:
        if not self._workers:
            return
        for waiters in (self._resumed, self._waiting):
            for waiter in waiters.values():
                if self._may_ever_run(waiter.want):
                    waiter.unfit_ms = None
                elif waiter.unfit_ms is None:
                    waiter.unfit_ms = now_ms

    def _suspect(self, worker: _Worker, now_ms: int) -> None:
        chosen = self.settings
        worker.standing = WorkerState.SUSPECT
        worker.failures += 1
        wait_ms = min(chosen.suspect_ms * 2 ** min(worker.failures - 1, 20), chosen.longest_suspect_ms)
        worker.avoided_ms = now_ms + wait_ms

    def _waits_for_its_own(self, head: _Waiter, name: str, now_ms: int) -> bool:
        """Return whether the head should wait longer for the worker that has its cache."""
        want, handle = head.want, head.want.handle
        own = None if handle is None else self._workers.get(handle.worker)
        if handle is None or own is None or name == own.offer.worker:
            return False
        if own.offer.incarnation != handle.incarnation:
            return False
        is_kept = holds(own.candidate(), want) or any(
            runs.want.session_id == want.session_id for runs in own.runs.values()
        )
        if own.standing is not WorkerState.READY or not is_kept or self._is_live_behind(head):
            return False
        if head.could_ms is None:
            head.could_ms = now_ms
        return now_ms - head.could_ms < self.settings.affinity_ms

    def _is_live_behind(self, head: _Waiter) -> bool:
        return any(
            waiter is not head and waiter.want.task.is_live
            for waiters in (self._resumed, self._waiting)
            for waiter in waiters.values()
        )

    def _grant(self, waiter: _Waiter, worker: _Worker, now_ms: int) -> LeaseGranted:
        want, offer = waiter.want, worker.offer
        self._forget(want.ticket_id)
        lease = Lease(want.session_id, offer.worker, offer.incarnation, want.epoch)
        worker.runs[want.ticket_id] = _Runs(want, waiter.number, waiter.since_ms, now_ms, lease)
        self._on[want.ticket_id] = offer.worker
        self._use(worker, want, now_ms)
        return LeaseGranted(want.ticket_id, lease)

    def _use(self, worker: _Worker, want: WorkerRequest, now_ms: int) -> None:
        """Update the record of a worker's caches for the one that a new conversation uses or evicts."""
        if not worker.kept:
            return
        if worker.offer.slots == 1:
            worker.kept.clear()
            return
        used = max(worker.kept, key=lambda kept: kept.beginning_of(want))
        if used.beginning_of(want):
            worker.kept.remove(used)

    def _keep(self, worker: _Worker, kept: Kept) -> None:
        if worker.offer.slots == 1:
            worker.kept.clear()
        worker.kept.append(kept)
        worker.kept.sort(key=lambda each: each.used_ms)
        del worker.kept[: max(0, len(worker.kept) - self.settings.kept_caches)]

    def _end(self, ticket_id: str) -> _Runs | None:
        name = self._on.pop(ticket_id, None)
        return None if name is None else self._workers[name].runs.pop(ticket_id)

    def _lose(self, worker: _Worker, now_ms: int) -> list[Effect]:
        lost: list[Effect] = []
        for runs in list(worker.runs.values()):
            self._end(runs.want.ticket_id)
            lost += [LeaseLost(runs.want.ticket_id, runs.lease), *self._resume(runs, now_ms)]
        return lost

    def _resume(self, runs: _Runs, now_ms: int) -> list[Effect]:
        """Put a conversation at the head; a stopping scheduler refuses it."""
        if self._stopping:
            return [RequestRefused(runs.want.ticket_id, RefusalReason.STOPPING)]
        self._resumed[runs.want.ticket_id] = _Waiter(runs.want, runs.number, runs.asked_ms, now_ms)
        ordered = sorted(self._resumed.items(), key=lambda item: item[1].number)
        self._resumed = dict(ordered)
        return []

    def _waiter(self, ticket_id: str) -> _Waiter | None:
        return self._resumed.get(ticket_id) or self._waiting.get(ticket_id)

    def _forget(self, ticket_id: str) -> _Waiter | None:
        return self._resumed.pop(ticket_id, None) or self._waiting.pop(ticket_id, None)

    def _slots_ms(self, worker: _Worker, now_ms: int) -> list[int]:
        """Return the estimated time until each slot of a worker is free."""
        if worker.standing is WorkerState.LOADING:
            return [max(0, worker.ready_ms - now_ms)] * worker.offer.slots
        if worker.standing is not WorkerState.READY:
            return []
        free = worker.offer.slots - len(worker.runs)
        return [0] * free + [self._left_ms(runs, now_ms) for runs in worker.runs.values()]

    def _left_ms(self, runs: _Runs, now_ms: int) -> int:
        elapsed_s = (now_ms - runs.since_ms) / 1000
        return round(self.eta.left_s(runs.want.task, elapsed_s) * 1000)
