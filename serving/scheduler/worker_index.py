"""Workers of one scheduler with their conversations and caches, and choice of the one for a request. Pure.

The order of preference is: the worker whose cache the conversation's handle names; one that kept the longest
beginning of it; one where nothing has to be evicted, because it is empty or has several slots, with the
smallest share of its slots in use; the one whose cache is the least loss, because it is cheap to rebuild or
has not been used for long. Ties are decided by name. All of this is an estimate of another process's memory.
The worker verifies it, and a wrong estimate only costs time.

Workers with a free slot are in a heap in this order, with lazy removal. One that has a slot but too little
memory for a request leaves it for a second heap, ordered by free memory, until its memory changes or a
smaller request comes. A choice thus visits neither taken workers nor those that were too small before.
"""

import heapq
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace

from parley.serving.scheduler.types import Lease, WorkerCapacity, WorkerRequest, WorkerState

# The worth of an unused cache halves in this time: after a longer pause a person rarely returns to it.
HALF_LIFE_MS = 60_000
# Share of a cache's worth when no client has the conversation open any more: the person may still return.
LEFT_SHARE = 0.01
# A heap is rebuilt when it has this many more entries than twice the workers.
SPARE_ENTRIES = 64

_Entry = tuple[int, float, str]


@dataclass(frozen=True, slots=True)
class Kept:
    """Cache that a worker kept of one conversation.

    Attributes:
        digests: of its segments, the oldest first, with the number of tokens at which each ends.
        used_ms: time of its last use.
        session_id: of the conversation; empty where it is unknown.
        is_left: true when no client has the conversation open any more.
    """

    digests: tuple[tuple[str, int], ...]
    used_ms: int
    session_id: str = ""
    is_left: bool = False

    @property
    def worth(self) -> float:
        """Logarithm of its tokens that are likely to be used again, at a fixed time.

        All halve alike, so the order of two caches never changes.
        """
        tokens = self.digests[-1][1] if self.digests else 0
        if not tokens:
            return -math.inf
        return math.log2(tokens * (LEFT_SHARE if self.is_left else 1.0)) + self.used_ms / HALF_LIFE_MS

    def beginning_of(self, want: WorkerRequest) -> int:
        """Return how many tokens of the conversation are in it, from its beginning on."""
        tokens = 0
        for (mine, ends_at), (theirs, _) in zip(self.digests, want.digests, strict=False):
            if mine != theirs:
                break
            tokens = ends_at
        return tokens


@dataclass(slots=True)
class Runs:
    """Conversation that has a worker: its request, and the times of request and lease."""

    want: WorkerRequest
    number: int
    asked_ms: int
    since_ms: int
    lease: Lease


@dataclass(slots=True)
class Worker:
    """Worker and what it holds.

    Attributes:
        offer: its capacity.
        standing: its availability.
        ready_ms: when a loading worker is likely to be ready.
        runs: its conversations by ticket.
        used_bytes: memory that they may come to need.
        kept: its caches that are not in use, the least recently used first.
        least_worth: the worth of the one that would be evicted.
        failures: in a row.
        avoided_ms: time until which it is avoided because of them.
        is_avoided: true until that time has come.
    """

    offer: WorkerCapacity
    standing: WorkerState
    ready_ms: int = 0
    runs: dict[str, Runs] = field(default_factory=dict)
    used_bytes: int = 0
    kept: list[Kept] = field(default_factory=list)
    least_worth: float = 0.0
    failures: int = 0
    avoided_ms: int = 0
    is_avoided: bool = False
    # Whether it is counted as open, and its valid entry in each heap.
    was_open: bool = False
    entry: _Entry | None = None
    tight: tuple[int, str] | None = None

    @property
    def is_open(self) -> bool:
        """True when it may take a conversation that fits into its memory."""
        is_ready = self.standing is WorkerState.READY and not self.is_avoided
        return is_ready and len(self.runs) < self.offer.slots

    @property
    def free_bytes(self) -> float:
        """Memory for further conversations."""
        return math.inf if self.offer.kv_bytes is None else self.offer.kv_bytes - self.used_bytes

    def has_room(self, want: WorkerRequest) -> bool:
        """Return whether it may take a conversation now."""
        return self.is_open and want.kv_bytes <= self.free_bytes

    def holds(self, want: WorkerRequest) -> bool:
        """Return whether its caches include exactly the one that the handle names."""
        handle = want.handle
        return (
            handle is not None
            and (handle.worker, handle.incarnation) == (self.offer.worker, self.offer.incarnation)
            and any(kept.digests and kept.digests[-1][0] == handle.digest for kept in self.kept)
        )

    def has_session(self, session_id: str) -> bool:
        """Return whether a conversation of a session is running on it."""
        return any(runs.want.session_id == session_id for runs in self.runs.values())


class _Holders:
    """Workers with a cache by a property of it, each with the number of such caches."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}

    def add(self, value: str, worker: str) -> None:
        counts = self.counts.setdefault(value, {})
        counts[worker] = counts.get(worker, 0) + 1

    def remove(self, value: str, worker: str) -> None:
        counts = self.counts[value]
        if counts[worker] > 1:
            counts[worker] -= 1
            return
        del counts[worker]
        if not counts:
            del self.counts[value]


class WorkerIndex:
    """Workers of one scheduler.

    Attributes:
        has_freed: true when some worker may have come to have room since this was last set to false.
        most_bytes: memory of the largest worker; None: without a limit, or there is no worker.
    """

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._taking = 0
        self.has_freed = False
        self.most_bytes: int | None = None
        self._open_workers = 0
        self._open: list[_Entry] = []
        self._tight: list[tuple[int, str]] = []
        self._avoided: list[tuple[int, str]] = []
        self._digests = _Holders()
        self._sessions = _Holders()

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    @property
    def are_all_draining(self) -> bool:
        """True when no worker may ever take a conversation again, or there is none."""
        return not self._taking

    def get(self, name: str) -> Worker | None:
        """Return a worker; None for an unknown one."""
        return self._workers.get(name)

    def add(self, worker: Worker) -> None:
        """Add a worker with a new name."""
        self._workers[worker.offer.worker] = worker
        self._taking += worker.standing is not WorkerState.DRAINING
        self._resize()
        self._freed(worker)

    def remove(self, worker: Worker) -> None:
        """Remove a worker, whose conversations have been ended."""
        self._set_kept(worker, [])
        del self._workers[worker.offer.worker]
        self._taking -= worker.standing is not WorkerState.DRAINING
        self._open_workers -= worker.was_open
        worker.entry = worker.tight = None
        self._resize()

    def offers(self, worker: Worker, offer: WorkerCapacity, ready_ms: int) -> None:
        """Set the capacity of a worker, and when it is likely to be ready if it is loading."""
        worker.ready_ms = ready_ms
        if worker.offer != offer:
            worker.offer = offer
            self._resize()
            self._freed(worker)

    def stands(self, worker: Worker, standing: WorkerState) -> None:
        """Set the availability of a worker."""
        if worker.standing is standing:
            return
        self._taking += (standing is not WorkerState.DRAINING) - (worker.standing is not WorkerState.DRAINING)
        worker.standing = standing
        self._freed(worker)

    def none_freed(self) -> None:
        """Set ``has_freed`` to false."""
        self.has_freed = False

    def succeeded(self, worker: Worker) -> None:
        """Record that a conversation ended well: the failures before it do not count any more."""
        worker.failures = 0

    def failed(self, worker: Worker, until_ms: int) -> None:
        """Record a failure of a worker, and assign nothing to it before a time."""
        worker.failures += 1
        worker.avoided_ms, worker.is_avoided = until_ms, True
        heapq.heappush(self._avoided, (until_ms, worker.offer.worker))
        self._changed(worker)

    def trust(self, now_ms: int) -> None:
        """End the avoidance of workers whose time has come."""
        while self._avoided and self._avoided[0][0] <= now_ms:
            until_ms, name = heapq.heappop(self._avoided)
            worker = self._workers.get(name)
            if worker is not None and worker.is_avoided and worker.avoided_ms == until_ms:
                worker.is_avoided = False
                self._freed(worker)

    @property
    def next_trusted_ms(self) -> int | None:
        """Time at which the avoidance of a worker ends next; None without any."""
        while self._avoided:
            until_ms, name = self._avoided[0]
            worker = self._workers.get(name)
            if worker is not None and worker.is_avoided and worker.avoided_ms == until_ms:
                return until_ms
            heapq.heappop(self._avoided)
        return None

    # Conversations and caches.

    def begin(self, worker: Worker, runs: Runs) -> None:
        """Record a conversation on a worker, and the cache that it uses or evicts."""
        want = runs.want
        worker.runs[want.ticket_id] = runs
        worker.used_bytes += want.kv_bytes
        if worker.kept:
            if worker.offer.slots == 1:
                self._set_kept(worker, [])
            else:
                self._use(worker, want)
        self._changed(worker)

    def _use(self, worker: Worker, want: WorkerRequest) -> None:
        first = want.digests[0][0] if want.digests else ""
        if worker.offer.worker not in self._digests.counts.get(first, ()):
            return
        used = max(worker.kept, key=lambda kept: kept.beginning_of(want))
        if used.beginning_of(want):
            self._set_kept(worker, [kept for kept in worker.kept if kept is not used])

    def end(self, worker: Worker, ticket_id: str) -> Runs:
        """End a conversation on a worker."""
        runs = worker.runs.pop(ticket_id)
        worker.used_bytes -= runs.want.kv_bytes
        self._freed(worker)
        return runs

    def keep(self, worker: Worker, kept: Kept, most: int) -> None:
        """Record a cache, of which a worker with one slot has one, any other ``most``."""
        others = [] if worker.offer.slots == 1 else worker.kept
        self._set_kept(worker, [*others, kept][max(0, len(others) + 1 - most) :])
        self._changed(worker)

    def left(self, session_id: str) -> None:
        """Record that no client has a session open any more: its caches are the first to be evicted."""
        for name in tuple(self._sessions.counts.get(session_id, ())):
            worker = self._workers[name]
            worker.kept = [
                replace(kept, is_left=True) if kept.session_id == session_id else kept for kept in worker.kept
            ]
            worker.least_worth = _least_worth(worker.kept)
            self._changed(worker)

    def _set_kept(self, worker: Worker, kept: list[Kept]) -> None:
        name = worker.offer.worker
        before, after = {id(each) for each in worker.kept}, {id(each) for each in kept}
        for gone in worker.kept:
            if id(gone) not in after:
                self._sessions.remove(gone.session_id, name)
                for digest, _ in gone.digests:
                    self._digests.remove(digest, name)
        for new in kept:
            if id(new) not in before:
                self._sessions.add(new.session_id, name)
                for digest, _ in new.digests:
                    self._digests.add(digest, name)
        worker.kept = kept
        worker.least_worth = _least_worth(kept)

    # Choice.

    def choose(self, want: WorkerRequest, reached: Container[str] | None = None) -> Worker | None:
        """Return the worker to take, one of ``reached`` unless that is None; None when none has room.

        A digest covers everything up to its end, so a worker with one of a request's digests has the whole
        beginning up to it.
        """
        if not self._open_workers:
            return None
        own = None if want.handle is None else self._workers.get(want.handle.worker)
        if own is not None and own.has_room(want) and own.holds(want) and _is_in(reached, own):
            return own
        counts = self._digests.counts
        for digest, tokens in reversed(want.digests):
            names = counts.get(digest)
            if names and tokens:
                held = [self._workers[name] for name in names]
                fits = [each.offer.worker for each in held if each.has_room(want) and _is_in(reached, each)]
                if fits:
                    return self._workers[min(fits)]
        return self._first_open(want, reached)

    def _first_open(self, want: WorkerRequest, reached: Container[str] | None) -> Worker | None:
        self._loosen(want.kv_bytes)
        # Entries of workers that are not reached, which are put back.
        passed: list[_Entry] = []
        try:
            return self._next_open(want, reached, passed)
        finally:
            for entry in passed:
                heapq.heappush(self._open, entry)

    def _next_open(
        self, want: WorkerRequest, reached: Container[str] | None, passed: list[_Entry]
    ) -> Worker | None:
        while self._open:
            entry = self._open[0]
            worker = self._workers.get(entry[-1])
            if worker is not None and worker.entry == entry:
                if not _is_in(reached, worker):
                    passed.append(heapq.heappop(self._open))
                    continue
                if want.kv_bytes <= worker.free_bytes:
                    return worker
                worker.entry, worker.tight = None, (-int(worker.free_bytes), entry[-1])
                heapq.heappush(self._tight, worker.tight)
            heapq.heappop(self._open)
        return None

    def _loosen(self, kv_bytes: int) -> None:
        """Move the workers with enough free memory back to the others."""
        while self._tight and -self._tight[0][0] >= kv_bytes:
            entry = heapq.heappop(self._tight)
            worker = self._workers.get(entry[-1])
            if worker is not None and worker.tight == entry:
                self._changed(worker)

    def _freed(self, worker: Worker) -> None:
        self.has_freed = True
        self._changed(worker)

    def _changed(self, worker: Worker) -> None:
        """Give a worker its entry among those with a free slot."""
        worker.tight = None
        entry: _Entry | None = None
        is_open = worker.is_open
        self._open_workers += is_open - worker.was_open
        worker.was_open = is_open
        if is_open:
            name = worker.offer.worker
            slots = worker.offer.slots
            if slots == 1 and worker.kept:
                entry = (1, worker.least_worth, name)
            else:
                entry = (0, len(worker.runs) / slots, name)
        if entry is not None and entry != worker.entry:
            heapq.heappush(self._open, entry)
        worker.entry = entry
        most = 2 * len(self._workers) + SPARE_ENTRIES
        if len(self._open) > most:
            self._open = [each.entry for each in self if each.entry is not None]
            heapq.heapify(self._open)
        if len(self._tight) > most:
            self._tight = [each.tight for each in self if each.tight is not None]
            heapq.heapify(self._tight)

    def _resize(self) -> None:
        sizes = [worker.offer.kv_bytes for worker in self]
        self.most_bytes = None if None in sizes else max((size or 0 for size in sizes), default=None)


def _is_in(reached: Container[str] | None, worker: Worker) -> bool:
    return reached is None or worker.offer.worker in reached


def _least_worth(kept: list[Kept]) -> float:
    return min((each.worth for each in kept), default=0.0)
