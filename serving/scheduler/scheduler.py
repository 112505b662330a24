"""Queue for a pool of workers, and assignment of workers to conversations.

Pure: time comes in, effects go out. Inputs: worker requests and cancellations; workers joining, changing
state or failing; conversations ending. Output of each call: the resulting effects, in order. There is one
queue. A conversation that lost its worker waits at its head; calls come before texts; within each group the
first come is the first served. The head is never overtaken. It may wait for the worker that has its cache,
for ``affinity_ms`` from when it could have had another, and not at all while a live call waits after it.

A lease is the scheduler's view; the worker decides (``serving.worker``). A worker that does not accept a
lease is suspect until it reports that it is ready, and the conversation that was granted the lease waits at
the head.

Full: refused with the length of the queue. Without a worker that might ever be ready, waiting conversations
are refused after ``no_worker_ms``. A waiter without a heartbeat for ``silent_ms`` counts as having left.
Nothing here waits, fails or starts. An unknown ticket or worker is ignored, and such a call changes nothing.

The time of an operation does not grow with the queue or the number of workers, beyond a logarithm
(``request_queue``, ``worker_index``). Exceptions are ``places`` and ``running``, which list everything, the
end of a worker, whose conversations have to be moved, and what ``on_deadline`` finds due. ``position`` is the
place of one request. Times come in ascending order.
"""

import heapq
from collections.abc import Callable, Container, Iterator

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.request_queue import RequestQueue, Waiter
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
from parley.serving.scheduler.worker_index import Kept, Runs, Worker, WorkerIndex


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


class Scheduler:
    """Queue and assignments of one pool.

    Args:
        settings: bounds.
        eta: estimates of the pool.
        reached: returns the names of the workers that the owner of a ticket reaches; None: all of them. The
            owner calls ``reach_changed`` when that changes.

    Attributes:
        version: changes whenever a place in the queue may have changed.
    """

    def __init__(
        self,
        settings: SchedulerSettings | None = None,
        *,
        eta: Eta | None = None,
        reached: Callable[[str], Container[str] | None] | None = None,
    ) -> None:
        self.settings = settings or SchedulerSettings()
        self.eta = eta or Eta()
        self._reached = reached
        self.version = 0
        self._workers = WorkerIndex()
        self._queue = RequestQueue()
        self._on: dict[str, str] = {}
        self._asked = 0
        self._stopping = self._is_held = False
        self._seen_ms = 0
        # Time since which there has been no worker that might ever be ready; set from the first call on.
        self._none_since_ms: int | None = None
        # Head for which no worker had room; none has, until one has freed some.
        self._blocked: Waiter | None = None
        # Whether the marks of requests that are too large for every worker may be out of date.
        self._is_resized = False

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
        self._is_resized = True
        if known is not None and known.offer.incarnation == offer.incarnation:
            self._workers.offers(known, offer, ready_ms)
            return self.worker_stands(offer.worker, standing, now_ms)
        if known is not None:
            effects = self._lose(known, now_ms)
            self._workers.remove(known)
        self._workers.add(Worker(offer, standing, ready_ms))
        return [*effects, *self._changed(now_ms)]

    def worker_stands(self, worker: str, standing: WorkerState, now_ms: int) -> list[Effect]:
        """Set the availability of a worker."""
        known = self._workers.get(worker)
        if known is None:
            return []
        self._workers.stands(known, standing)
        return self._changed(now_ms)

    def worker_down(self, worker: str, now_ms: int) -> list[Effect]:
        """Remove a worker that has ended; its conversations wait at the head."""
        known = self._workers.get(worker)
        if known is None:
            return []
        effects = self._lose(known, now_ms)
        self._workers.remove(known)
        self._is_resized = True
        return [*effects, *self._changed(now_ms)]

    # Conversations.

    def ask(self, want: WorkerRequest, now_ms: int) -> list[Effect]:
        """Queue a request for a worker; it is granted at once where one is free.

        Raises:
            ValueError: the ticket is taken.
        """
        ticket = want.ticket_id
        if ticket in self._on or ticket in self._queue:
            raise ValueError(f"the ticket {ticket} is in use")
        reason, limit = self._refusal(want, now_ms)
        if reason is not None:
            return [RequestRefused(ticket, reason, limit)]
        self._asked += 1
        self._queue.add(Waiter(want, self._asked, now_ms, now_ms))
        effects = self._changed(now_ms)
        if len(self._queue) > self.settings.max_waiting and self._queue.remove(ticket) is not None:
            return [*effects, RequestRefused(ticket, RefusalReason.QUEUE_FULL, self.settings.max_waiting)]
        return effects

    def found(self, want: WorkerRequest, now_ms: int) -> None:
        """Record the cache that the handle of a request names, which another gateway has kept.

        Has no effect for another process of that worker, or where a cache of the session is known there.
        """
        handle = want.handle
        worker = None if handle is None else self._workers.get(handle.worker)
        if handle is None or worker is None or worker.offer.incarnation != handle.incarnation:
            return
        if not any(kept.session_id == want.session_id for kept in worker.kept):
            digests = want.digests or ((handle.digest, handle.kv_tokens),)
            kept = Kept(digests, now_ms, want.session_id)
            self._workers.keep(worker, kept, self.settings.kept_caches)

    def restore_request(self, waiter: Waiter) -> None:
        """Queue a request at the place that it had before. Call ``hold`` first.

        Its number decides about the place, so a queue has either numbers from here or numbers of ``ask``.

        Raises:
            ValueError: the ticket is taken.
        """
        ticket = waiter.want.ticket_id
        if ticket in self._on or ticket in self._queue:
            raise ValueError(f"the ticket {ticket} is in use")
        self._queue.add(waiter)
        if not self._may_ever_run(waiter.want):
            self._is_resized = True

    def restore_lease(self, runs: Runs) -> bool:
        """Record a conversation that has a worker already; return False where that process is not known.

        A worker may come to have more conversations than slots, and gets no other one meanwhile.

        Raises:
            ValueError: the ticket is taken.
        """
        ticket, lease = runs.want.ticket_id, runs.lease
        if ticket in self._on or ticket in self._queue:
            raise ValueError(f"the ticket {ticket} is in use")
        worker = self._workers.get(lease.worker)
        if worker is None or worker.offer.incarnation != lease.incarnation:
            return False
        self._on[ticket] = lease.worker
        self._workers.begin(worker, runs)
        return True

    def hold(self) -> None:
        """Grant nothing until ``settle``, so that several changes are one."""
        self._is_held = True

    def settle(self, now_ms: int) -> list[Effect]:
        """Grant what can be granted after the changes since ``hold``."""
        self._is_held = False
        return self._changed(now_ms)

    def reach_changed(self, now_ms: int) -> list[Effect]:
        """Grant what can be granted after an owner of requests reaches other workers than before."""
        self._blocked = None
        return self._changed(now_ms)

    def heartbeat(self, ticket_id: str, now_ms: int) -> None:
        """Record a heartbeat for a queued request."""
        self._queue.heartbeat(ticket_id, now_ms)

    def cancel(self, ticket_id: str, now_ms: int) -> list[Effect]:
        """Withdraw a queued request for its owner, or release a running conversation as failed."""
        if ticket_id in self._on:
            return self.release(ticket_id, now_ms, well=False)
        if self._queue.remove(ticket_id) is None:
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
        if self._queue.remove(ticket_id) is None:
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
        ended = self._end(ticket_id)
        if ended is None:
            return []
        worker, runs = ended
        if busy:
            self._workers.stands(worker, WorkerState.SUSPECT)
        else:
            self._suspect(worker, now_ms)
        return [*self._resume(runs, now_ms), *self._changed(now_ms)]

    def move(self, ticket_id: str, now_ms: int) -> list[Effect]:
        """Report that the worker of a conversation has failed.

        The worker is suspect, and the conversation waits at the head.
        """
        ended = self._end(ticket_id)
        if ended is None:
            return []
        worker, runs = ended
        self._suspect(worker, now_ms)
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
        ended = self._end(ticket_id)
        if ended is None:
            return []
        worker, runs = ended
        if well:
            self._workers.succeeded(worker)
            self.eta.ended_well(runs.want.task, (now_ms - runs.since_ms) / 1000)
        if kept:
            of_session = Kept(kept, now_ms, runs.want.session_id)
            self._workers.keep(worker, of_session, self.settings.kept_caches)
        return self._changed(now_ms)

    def left(self, session_id: str) -> None:
        """Record that no client has a session open any more: its caches are the first to be evicted."""
        self._workers.left(session_id)

    def stop(self) -> list[Effect]:
        """Refuse those that wait, and all later requests; running conversations continue."""
        self._stopping = True
        waiting = self._queue.clear()
        self.version += 1
        return [RequestRefused(ticket, RefusalReason.STOPPING) for ticket in waiting]

    # Time.

    def next_deadline_ms(self) -> int | None:
        """Return when ``on_deadline`` is due, unless another call comes first; None: not at all."""
        queue, chosen = self._queue, self.settings
        if not queue:
            return None
        due_ms = []
        if chosen.silent_ms is not None and queue.least_heard_ms is not None:
            due_ms.append(queue.least_heard_ms + chosen.silent_ms)
        head = queue.head
        if head is not None and head.could_ms is not None:
            due_ms.append(head.could_ms + chosen.affinity_ms)
        if self._none_since_ms is not None:
            due_ms.append(self._none_since_ms + chosen.no_worker_ms)
        if queue.least_unfit_ms is not None:
            due_ms.append(queue.least_unfit_ms + chosen.no_worker_ms)
        if self._workers.next_trusted_ms is not None:
            due_ms.append(self._workers.next_trusted_ms)
        return min(due_ms, default=None)

    def on_deadline(self, now_ms: int) -> list[Effect]:
        """Perform everything that is due."""
        effects: list[Effect] = []
        unfit = self._queue.unfit(now_ms - self.settings.no_worker_ms)
        if self.settings.silent_ms is not None:
            for waiter in self._queue.silent(now_ms - self.settings.silent_ms):
                self._queue.remove(waiter.want.ticket_id)
                effects.append(RequestRefused(waiter.want.ticket_id, RefusalReason.LEFT))
        for waiter in unfit:
            if self._queue.remove(waiter.want.ticket_id) is not None:
                effects.append(
                    RequestRefused(waiter.want.ticket_id, RefusalReason.TOO_LARGE, self._largest())
                )
        if self._is_hopeless(now_ms):
            effects += [RequestRefused(ticket, RefusalReason.NO_WORKER) for ticket in self._queue.clear()]
        return [*effects, *self._changed(now_ms)]

    # State.

    @property
    def waiting(self) -> int:
        """Number of waiting conversations."""
        return len(self._queue)

    @property
    def workers(self) -> dict[str, tuple[WorkerCapacity, WorkerState, int]]:
        """Workers by name, each with its availability and its number of conversations."""
        return {
            worker.offer.worker: (worker.offer, worker.standing, len(worker.runs)) for worker in self._workers
        }

    def worker(self, name: str) -> KnownWorker | None:
        """Return the state of a worker; None for an unknown one."""
        worker = self._workers.get(name)
        if worker is None:
            return None
        return KnownWorker(worker.offer, worker.standing, len(worker.runs), worker.used_bytes)

    def position(self, ticket_id: str) -> int | None:
        """Return the position of a queued request, 1 for the next; None for one that is not queued."""
        return self._queue.position(ticket_id)

    def places(self, now_ms: int) -> list[QueuePlace]:
        """Return the queue, its head first, with the estimated wait of each."""
        return list(self.iter_places(now_ms))

    def iter_places(self, now_ms: int) -> Iterator[QueuePlace]:
        """Iterate over ``places`` as they are now, for a reader that yields to others in between."""
        free_ms = [at_ms for worker in self._workers for at_ms in self._slots_ms(worker, now_ms)]
        heapq.heapify(free_ms)
        return self._places(list(self._queue), free_ms)

    def _places(self, waiters: list[Waiter], free_ms: list[int]) -> Iterator[QueuePlace]:
        for position, waiter in enumerate(waiters, start=1):
            want, wait_ms = waiter.want, None
            if free_ms:
                wait_ms = free_ms[0]
                heapq.heapreplace(free_ms, wait_ms + round(self.eta.lasts_s(want.task) * 1000))
            yield QueuePlace(want.ticket_id, want.session_id, want.task, position, wait_ms, waiter.since_ms)

    def running(self, now_ms: int) -> list[Running]:
        """Return the conversations that have a worker, the oldest first."""
        runs = [each for worker in self._workers for each in worker.runs.values()]
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
        most_bytes = self._workers.most_bytes
        return bool(self._workers) and (most_bytes is None or want.kv_bytes <= most_bytes)

    def _largest(self) -> int:
        return self._workers.most_bytes or 0

    def _is_hopeless(self, now_ms: int) -> bool:
        since_ms = self._none_since_ms
        return since_ms is not None and now_ms - since_ms >= self.settings.no_worker_ms

    def _changed(self, now_ms: int) -> list[Effect]:
        self.version += 1
        self._seen_ms = max(self._seen_ms, now_ms)
        self._workers.trust(now_ms)
        if self._is_resized and self._workers:
            self._queue.fit_to(self._workers.most_bytes, now_ms)
            self._is_resized = False
        if not self._workers.are_all_draining:
            self._none_since_ms = None
        elif self._none_since_ms is None:
            self._none_since_ms = now_ms
        effects: list[Effect] = []
        # One that no known worker can hold does not block the others: it is not the head.
        while not self._is_held and (head := self._queue.head) is not None:
            if head is self._blocked and not self._workers.has_freed:
                break
            reached = None if self._reached is None else self._reached(head.want.ticket_id)
            worker = self._workers.choose(head.want, reached)
            if worker is None:
                head.stop_waiting_for_own()
                self._blocked = head
                self._workers.none_freed()
                break
            if self._waits_for_its_own(head, worker, now_ms):
                break
            effects.append(self._grant(head, worker, now_ms))
        return effects

    def _suspect(self, worker: Worker, now_ms: int) -> None:
        chosen = self.settings
        wait_ms = min(chosen.suspect_ms * 2 ** min(worker.failures, 20), chosen.longest_suspect_ms)
        self._workers.stands(worker, WorkerState.SUSPECT)
        self._workers.failed(worker, now_ms + wait_ms)

    def _waits_for_its_own(self, head: Waiter, free: Worker, now_ms: int) -> bool:
        """Return whether the head should wait longer for the worker that has its cache."""
        want, handle = head.want, head.want.handle
        own = None if handle is None else self._workers.get(handle.worker)
        if handle is None or own is None or own is free or own.offer.incarnation != handle.incarnation:
            return False
        if own.standing is not WorkerState.READY or self._queue.live > want.task.is_live:
            # A live call waits after it, or its worker may not come free.
            return False
        if not (own.holds(want) or own.has_session(want.session_id)):
            return False
        return now_ms - head.wait_for_own(now_ms) < self.settings.affinity_ms

    def _grant(self, waiter: Waiter, worker: Worker, now_ms: int) -> LeaseGranted:
        want, offer = waiter.want, worker.offer
        self._queue.remove(want.ticket_id)
        lease = Lease(want.session_id, offer.worker, offer.incarnation, want.epoch)
        self._on[want.ticket_id] = offer.worker
        self._workers.begin(worker, Runs(want, waiter.number, waiter.since_ms, now_ms, lease))
        return LeaseGranted(want.ticket_id, lease)

    def _end(self, ticket_id: str) -> tuple[Worker, Runs] | None:
        name = self._on.pop(ticket_id, None)
        worker = None if name is None else self._workers.get(name)
        return None if worker is None else (worker, self._workers.end(worker, ticket_id))

    def _lose(self, worker: Worker, now_ms: int) -> list[Effect]:
        lost: list[Effect] = []
        for runs in list(worker.runs.values()):
            self._end(runs.want.ticket_id)
            lost += [LeaseLost(runs.want.ticket_id, runs.lease), *self._resume(runs, now_ms)]
        return lost

    def _resume(self, runs: Runs, now_ms: int) -> list[Effect]:
        """Put a conversation at the head; a stopping scheduler refuses it."""
        if self._stopping:
            return [RequestRefused(runs.want.ticket_id, RefusalReason.STOPPING)]
        self._queue.add(Waiter(runs.want, runs.number, runs.asked_ms, now_ms, is_resumed=True))
        if not self._may_ever_run(runs.want):
            self._is_resized = True
        return []

    def _slots_ms(self, worker: Worker, now_ms: int) -> list[int]:
        """Return the estimated time until each slot of a worker is free."""
        if worker.standing is WorkerState.LOADING:
            return [max(0, worker.ready_ms - now_ms)] * worker.offer.slots
        if worker.standing is not WorkerState.READY:
            return []
        free = worker.offer.slots - len(worker.runs)
        return [0] * free + [self._left_ms(runs, now_ms) for runs in worker.runs.values()]

    def _left_ms(self, runs: Runs, now_ms: int) -> int:
        elapsed_s = (now_ms - runs.since_ms) / 1000
        return round(self.eta.left_s(runs.want.task, elapsed_s) * 1000)
