"""The scheduler's rules in their plainest form: lists that are searched from the front, for comparison."""

from dataclasses import dataclass, field, replace

from parley.serving.scheduler.scheduler import SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    Lease,
    LeaseGranted,
    LeaseLost,
    RefusalReason,
    RequestRefused,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)

HALF_LIFE_MS = 60_000


@dataclass
class PlainCache:
    digests: tuple[tuple[str, int], ...]
    used_ms: int
    session_id: str
    is_left: bool = False

    def common(self, want: WorkerRequest) -> int:
        same = 0
        for (mine, end), (theirs, _) in zip(self.digests, want.digests, strict=False):
            if mine != theirs:
                return same
            same = end
        return same


@dataclass
class PlainRequest:
    want: WorkerRequest
    number: int
    heard_ms: int
    was_lost: bool = False
    could_ms: int | None = None
    unfit_ms: int | None = None


@dataclass
class PlainWorker:
    offer: WorkerCapacity
    standing: WorkerState
    held: dict[str, tuple[PlainRequest, Lease]] = field(default_factory=dict)
    caches: list[PlainCache] = field(default_factory=list)
    failures: int = 0
    avoided_ms: int = 0

    def could_hold(self, want: WorkerRequest) -> bool:
        return self.offer.kv_bytes is None or want.kv_bytes <= self.offer.kv_bytes

    def has_room(self, want: WorkerRequest, now_ms: int) -> bool:
        held_bytes = sum(request.want.kv_bytes for request, _ in self.held.values())
        return (
            self.standing is WorkerState.READY
            and now_ms >= self.avoided_ms
            and len(self.held) < self.offer.slots
            and (self.offer.kv_bytes is None or held_bytes + want.kv_bytes <= self.offer.kv_bytes)
        )

    def has_cache(self, want: WorkerRequest) -> bool:
        handle = want.handle
        if handle is None or (handle.worker, handle.incarnation) != (
            self.offer.worker,
            self.offer.incarnation,
        ):
            return False
        return any(cache.digests[-1][0] == handle.digest for cache in self.caches)

    def preference(self, want: WorkerRequest, now_ms: int) -> tuple[int, float, str]:
        name = self.offer.worker
        if self.has_cache(want):
            return 0, 0, name
        longest = max((cache.common(want) for cache in self.caches), default=0)
        if longest:
            return 1, -longest, name
        if not self.caches or self.offer.slots > 1:
            return 2, len(self.held) / self.offer.slots, name
        losses = (
            (0.01 if cache.is_left else 1)
            * cache.digests[-1][1]
            * 2 ** ((cache.used_ms - now_ms) / HALF_LIFE_MS)
            for cache in self.caches
        )
        return 3, min(losses), name


class PlainScheduler:
    """The same interface as ``Scheduler``, as far as the comparison calls it."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self.settings = settings
        self.queue: list[PlainRequest] = []
        self.workers: dict[str, PlainWorker] = {}
        self.asked = 0
        self.seen_ms = 0
        self.none_since_ms: int | None = None

    def worker_up(self, offer: WorkerCapacity, now_ms: int) -> list[Effect]:
        known = self.workers.get(offer.worker)
        effects: list[Effect] = []
        if known is not None and known.offer.incarnation == offer.incarnation:
            known.offer, known.standing = offer, WorkerState.READY
        else:
            effects = [] if known is None else self._lose_all(known, now_ms)
            self.workers[offer.worker] = PlainWorker(offer, WorkerState.READY)
        return effects + self._serve(now_ms)

    def worker_stands(self, name: str, standing: WorkerState, now_ms: int) -> list[Effect]:
        if name not in self.workers:
            return []
        self.workers[name].standing = standing
        return self._serve(now_ms)

    def worker_down(self, name: str, now_ms: int) -> list[Effect]:
        if name not in self.workers:
            return []
        effects = self._lose_all(self.workers[name], now_ms)
        del self.workers[name]
        return effects + self._serve(now_ms)

    def ask(self, want: WorkerRequest, now_ms: int) -> list[Effect]:
        if self._is_hopeless(now_ms):
            return [RequestRefused(want.ticket_id, RefusalReason.NO_WORKER)]
        if self.workers and not self._fits(want):
            return [RequestRefused(want.ticket_id, RefusalReason.TOO_LARGE, self._largest())]
        self.asked += 1
        request = PlainRequest(want, self.asked, now_ms)
        self._queue_in_order(request)
        effects = self._serve(now_ms)
        if request in self.queue and len(self.queue) > self.settings.max_waiting:
            self.queue.remove(request)
            effects.append(
                RequestRefused(want.ticket_id, RefusalReason.QUEUE_FULL, self.settings.max_waiting)
            )
        return effects

    def heartbeat(self, ticket_id: str, now_ms: int) -> None:
        for request in self.queue:
            if request.want.ticket_id == ticket_id:
                request.heard_ms = now_ms

    def cancel(self, ticket_id: str, now_ms: int) -> list[Effect]:
        if self._end(ticket_id) is None and not self._remove(ticket_id):
            return []
        return self._serve(now_ms)

    def evict(self, ticket_id: str, now_ms: int) -> list[Effect]:
        if not self._remove(ticket_id):
            return []
        return [RequestRefused(ticket_id, RefusalReason.CANCELLED), *self._serve(now_ms)]

    def lease_rejected(self, ticket_id: str, now_ms: int, *, busy: bool) -> list[Effect]:
        ended = self._end(ticket_id)
        if ended is None:
            return []
        worker, request, _ = ended
        self._distrust(worker, now_ms, busy=busy)
        self._again(request, now_ms)
        return self._serve(now_ms)

    def move(self, ticket_id: str, now_ms: int) -> list[Effect]:
        ended = self._end(ticket_id)
        if ended is None:
            return []
        worker, request, lease = ended
        self._distrust(worker, now_ms, busy=False)
        self._again(request, now_ms)
        return [LeaseLost(ticket_id, lease), *self._serve(now_ms)]

    def release(
        self, ticket_id: str, now_ms: int, *, well: bool, kept: tuple[tuple[str, int], ...]
    ) -> list[Effect]:
        ended = self._end(ticket_id)
        if ended is None:
            return []
        worker, request, _ = ended
        if well:
            worker.failures = 0
        if kept:
            if worker.offer.slots == 1:
                worker.caches.clear()
            worker.caches.append(PlainCache(kept, now_ms, request.want.session_id))
            while len(worker.caches) > self.settings.kept_caches:
                worker.caches.pop(0)
        return self._serve(now_ms)

    def left(self, session_id: str) -> None:
        for worker in self.workers.values():
            worker.caches = [
                replace(cache, is_left=cache.is_left or cache.session_id == session_id)
                for cache in worker.caches
            ]

    def next_deadline_ms(self) -> int | None:
        if not self.queue:
            return None
        due_ms = [
            request.unfit_ms + self.settings.no_worker_ms
            for request in self.queue
            if request.unfit_ms is not None
        ]
        if self.settings.silent_ms is not None:
            due_ms += [request.heard_ms + self.settings.silent_ms for request in self.queue]
        head = self._head()
        if head is not None and head.could_ms is not None:
            due_ms.append(head.could_ms + self.settings.affinity_ms)
        if self.none_since_ms is not None:
            due_ms.append(self.none_since_ms + self.settings.no_worker_ms)
        due_ms += [worker.avoided_ms for worker in self.workers.values() if worker.avoided_ms > self.seen_ms]
        return min(due_ms, default=None)

    def on_deadline(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        silent_ms, no_worker_ms = self.settings.silent_ms, self.settings.no_worker_ms
        for request in list(self.queue):
            if silent_ms is not None and now_ms - request.heard_ms >= silent_ms:
                self.queue.remove(request)
                effects.append(RequestRefused(request.want.ticket_id, RefusalReason.LEFT))
        for request in list(self.queue):
            if request.unfit_ms is not None and now_ms - request.unfit_ms >= no_worker_ms:
                self.queue.remove(request)
                effects.append(
                    RequestRefused(request.want.ticket_id, RefusalReason.TOO_LARGE, self._largest())
                )
        if self._is_hopeless(now_ms):
            effects += [
                RequestRefused(request.want.ticket_id, RefusalReason.NO_WORKER) for request in self.queue
            ]
            self.queue.clear()
        return effects + self._serve(now_ms)

    # The rules.

    def _serve(self, now_ms: int) -> list[Effect]:
        self.seen_ms = max(self.seen_ms, now_ms)
        for request in self.queue if self.workers else ():
            if self._fits(request.want):
                request.unfit_ms = None
            elif request.unfit_ms is None:
                request.unfit_ms = now_ms
        if any(worker.standing is not WorkerState.DRAINING for worker in self.workers.values()):
            self.none_since_ms = None
        elif self.none_since_ms is None:
            self.none_since_ms = now_ms
        effects: list[Effect] = []
        while (head := self._head()) is not None:
            free = [worker for worker in self.workers.values() if worker.has_room(head.want, now_ms)]
            if not free:
                head.could_ms = None
                break
            worker = min(free, key=lambda each: each.preference(head.want, now_ms))
            if self._waits(head, worker, now_ms):
                break
            effects.append(self._grant(head, worker))
        return effects

    def _waits(self, head: PlainRequest, free: PlainWorker, now_ms: int) -> bool:
        handle = head.want.handle
        own = None if handle is None else self.workers.get(handle.worker)
        if handle is None or own is None or own is free or own.offer.incarnation != handle.incarnation:
            return False
        is_there = own.has_cache(head.want) or any(
            request.want.session_id == head.want.session_id for request, _ in own.held.values()
        )
        live_after = any(other is not head and other.want.task.is_live for other in self.queue)
        if own.standing is not WorkerState.READY or not is_there or live_after:
            return False
        if head.could_ms is None:
            head.could_ms = now_ms
        return now_ms - head.could_ms < self.settings.affinity_ms

    def _grant(self, head: PlainRequest, worker: PlainWorker) -> LeaseGranted:
        want, offer = head.want, worker.offer
        self.queue.remove(head)
        lease = Lease(want.session_id, offer.worker, offer.incarnation, want.epoch)
        worker.held[want.ticket_id] = head, lease
        if offer.slots == 1:
            worker.caches.clear()
        elif worker.caches:
            used = max(worker.caches, key=lambda cache: cache.common(want))
            if used.common(want):
                worker.caches.remove(used)
        return LeaseGranted(want.ticket_id, lease)

    def _again(self, request: PlainRequest, now_ms: int) -> None:
        self._queue_in_order(PlainRequest(request.want, request.number, now_ms, was_lost=True))

    def _queue_in_order(self, request: PlainRequest) -> None:
        self.queue.append(request)
        self.queue.sort(
            key=lambda each: (0 if each.was_lost else 1 if each.want.task.is_live else 2, each.number)
        )

    def _lose_all(self, worker: PlainWorker, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for ticket_id in list(worker.held):
            request, lease = worker.held.pop(ticket_id)
            self._again(request, now_ms)
            effects.append(LeaseLost(ticket_id, lease))
        return effects

    def _distrust(self, worker: PlainWorker, now_ms: int, *, busy: bool) -> None:
        worker.standing = WorkerState.SUSPECT
        if not busy:
            wait_ms = self.settings.suspect_ms * 2**worker.failures
            worker.failures += 1
            worker.avoided_ms = now_ms + min(wait_ms, self.settings.longest_suspect_ms)

    def _end(self, ticket_id: str) -> tuple[PlainWorker, PlainRequest, Lease] | None:
        for worker in self.workers.values():
            if ticket_id in worker.held:
                return worker, *worker.held.pop(ticket_id)
        return None

    def _remove(self, ticket_id: str) -> bool:
        before = len(self.queue)
        self.queue = [request for request in self.queue if request.want.ticket_id != ticket_id]
        return len(self.queue) < before

    def _head(self) -> PlainRequest | None:
        return next((request for request in self.queue if request.unfit_ms is None), None)

    def _fits(self, want: WorkerRequest) -> bool:
        return any(worker.could_hold(want) for worker in self.workers.values())

    def _largest(self) -> int:
        return max((worker.offer.kv_bytes or 0 for worker in self.workers.values()), default=0)

    def _is_hopeless(self, now_ms: int) -> bool:
        since_ms = self.none_since_ms
        return since_ms is not None and now_ms - since_ms >= self.settings.no_worker_ms
