"""Simulation of the scheduler at fleet size, on virtual time, with regions and failures.

The product's own classes decide: a ``Scheduler`` for each region, with its queue, estimates and settings.
Only time, callers and failures are simulated. Calls arrive at random and last an exponential time. Workers
fail and come back; a region may be lost as a whole for a while, and its callers and new calls then go to the
next region that is there. A call that loses its worker waits at the head of its region's queue and goes on.
The same seed gives the same run.
"""

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from parley.evals.harness.progress import Progress
from parley.evals.harness.report import percentile
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    LeaseGranted,
    LeaseLost,
    Task,
    WorkerCapacity,
    WorkerRequest,
)

# Progress is reported after each.
TENTHS = 10


@dataclass(frozen=True, slots=True)
class Fleet:
    """Fleet and traffic of a simulation.

    Attributes:
        calls: in all.
        regions: number of regions, among which calls are divided at random.
        workers: of each region.
        slots: of each worker.
        call_s: mean length of a call.
        load: share of all slots that the calls would fill without failures.
        worker_days: mean time between failures of a worker, in days.
        repair_s: time until a worker that failed is back.
        outage_s: time for which the first region is lost, in the middle of the run; 0: never.
        max_waiting: longest queue of a region.
    """

    calls: int
    regions: int
    workers: int
    slots: int
    call_s: float
    load: float
    worker_days: float
    repair_s: float
    outage_s: float
    max_waiting: int


@dataclass(slots=True)
class _Call:
    want: WorkerRequest
    region: int
    left_ms: int
    since_ms: int
    number: int
    granted_ms: int | None = None
    lease: int = 0
    waited_ms: int = 0
    moves: int = 0


@dataclass(slots=True)
class _Region:
    scheduler: Scheduler
    is_lost: bool = False
    incarnations: Counter[str] = field(default_factory=Counter)
    # Number of the newest call that was granted for the first time: later ones must have higher numbers.
    newest: int = -1


class Simulation:
    """Run of a fleet on virtual time.

    Args:
        fleet: the fleet.
        seed: of everything random.
    """

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._draw = random.Random(seed)
        self._now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        settings = SchedulerSettings(max_waiting=fleet.max_waiting)
        self._regions = [_Region(Scheduler(settings)) for _ in range(fleet.regions)]
        self._calls: dict[str, _Call] = {}
        self._waits_ms: list[int] = []
        self._seen: Counter[str] = Counter()
        self._asked = 0
        self._arrived_all_ms = 0
        self._longest_queue = self._most_running = self._running = 0

    def run(self) -> dict[str, Any]:
        """Run to the end of the last call; return the report."""
        began_s = time.perf_counter()
        for region in range(len(self._regions)):
            for worker in range(self._fleet.workers):
                self._up(region, f"worker-{worker:05d}")
                self._fail_later(region, f"worker-{worker:05d}")
        capacity = self._fleet.regions * self._fleet.workers * self._fleet.slots
        self._gap_ms = self._fleet.call_s * 1_000 / (self._fleet.load * capacity)
        self._arrived_all_ms = round(self._gap_ms * self._fleet.calls)
        if self._fleet.outage_s:
            self._at(self._arrived_all_ms // 2, self._lose_region)
        self._at(0, self._arrive)
        progress, reported = Progress("tenths of the calls", TENTHS), 0
        while self._events and (self._asked < self._fleet.calls or self._calls):
            self._now_ms, _, happen = heapq.heappop(self._events)
            happen()
            self._deadlines()
            # The rest of the time is that of calls that have arrived and go on.
            if TENTHS * self._asked >= (reported + 1) * self._fleet.calls and reported < TENTHS:
                reported += 1
                progress.step(f"{self._asked} calls, {self._now_ms / 3_600_000:.1f} hours")
        return self._report(time.perf_counter() - began_s)

    def _at(self, at_ms: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), happen))

    def _after(self, mean_ms: float, happen: Callable[[], None]) -> None:
        self._at(self._now_ms + round(self._draw.expovariate(1 / mean_ms)), happen)

    # Calls.

    def _arrive(self) -> None:
        number = self._asked
        self._asked += 1
        ticket = f"{number}"
        want = WorkerRequest(ticket, f"session {number}", Task.AUDIO_DUPLEX)
        left_ms = round(self._draw.expovariate(1 / (self._fleet.call_s * 1_000)))
        call = _Call(want, self._draw.randrange(self._fleet.regions), left_ms, self._now_ms, number)
        self._calls[ticket] = call
        self._ask(call)
        if self._asked < self._fleet.calls:
            self._after(self._gap_ms, self._arrive)

    def _ask(self, call: _Call) -> None:
        there = next(
            (
                place % self._fleet.regions
                for place in range(call.region, call.region + self._fleet.regions)
                if not self._regions[place % self._fleet.regions].is_lost
            ),
            None,
        )
        if there is None:
            self._end(call, "refused: every region is lost")
            return
        self._seen["sent to another region"] += there != call.region
        call.region = there
        self._take(there, self._regions[there].scheduler.ask(call.want, self._now_ms))
        self._longest_queue = max(self._longest_queue, self._regions[there].scheduler.waiting)

    def _take(self, region: int, effects: list[Effect]) -> None:
        for effect in effects:
            call = self._calls.get(effect.ticket_id)
            if call is None:
                continue
            if isinstance(effect, LeaseGranted):
                self._granted(region, call)
            elif isinstance(effect, LeaseLost):
                self._lost(call)
            else:
                self._end(call, f"refused: {effect.reason}")

    def _granted(self, region: int, call: _Call) -> None:
        home = self._regions[region]
        if not call.moves:
            self._seen["granted out of order"] += call.number < home.newest
            home.newest = max(home.newest, call.number)
        call.waited_ms += self._now_ms - call.since_ms
        call.granted_ms = self._now_ms
        call.lease += 1
        lease = call.lease
        self._running += 1
        self._most_running = max(self._most_running, self._running)
        self._at(self._now_ms + call.left_ms, lambda: self._over(call, lease))

    def _over(self, call: _Call, lease: int) -> None:
        # It may have lost its worker in the meantime, and have another one.
        if call.lease != lease or call.granted_ms is None:
            return
        self._running -= 1
        call.granted_ms = None
        scheduler = self._regions[call.region].scheduler
        self._end(call, "ended")
        self._take(call.region, scheduler.release(call.want.ticket_id, self._now_ms, well=True))

    def _lost(self, call: _Call) -> None:
        if call.granted_ms is not None:
            call.left_ms = max(0, call.left_ms - (self._now_ms - call.granted_ms))
            self._running -= 1
        call.granted_ms, call.since_ms = None, self._now_ms
        call.moves += 1
        self._seen["moved to another worker"] += 1

    def _end(self, call: _Call, how: str) -> None:
        del self._calls[call.want.ticket_id]
        self._seen[how] += 1
        if how == "ended":
            self._waits_ms.append(call.waited_ms)

    def _deadlines(self) -> None:
        for region, each in enumerate(self._regions):
            due_ms = each.scheduler.next_deadline_ms()
            if due_ms is not None and due_ms <= self._now_ms:
                self._take(region, each.scheduler.on_deadline(self._now_ms))

    # Workers and regions.

    def _up(self, region: int, worker: str) -> None:
        home = self._regions[region]
        # A worker under repair comes back with its region, if that is later.
        if home.is_lost or home.scheduler.worker(worker) is not None:
            return
        home.incarnations[worker] += 1
        offer = WorkerCapacity(worker, f"{home.incarnations[worker]}", self._fleet.slots)
        self._take(region, home.scheduler.worker_up(offer, self._now_ms))

    def _fail_later(self, region: int, worker: str) -> None:
        self._after(self._fleet.worker_days * 86_400_000, lambda: self._fail(region, worker))

    def _fail(self, region: int, worker: str) -> None:
        home = self._regions[region]
        self._seen["failures of workers"] += 1
        self._take(region, home.scheduler.worker_down(worker, self._now_ms))
        self._at(self._now_ms + round(self._fleet.repair_s * 1_000), lambda: self._up(region, worker))
        self._fail_later(region, worker)

    def _lose_region(self) -> None:
        home = self._regions[0]
        home.is_lost = True
        self._seen["regions lost"] += 1
        affected = [call for call in self._calls.values() if call.region == 0]
        for worker in list(home.scheduler.workers):
            # The effects are those of callers who wait for this region, and who call the next one instead.
            home.scheduler.worker_down(worker, self._now_ms)
        for call in affected:
            home.scheduler.cancel(call.want.ticket_id, self._now_ms)
            self._lost(call)
            self._ask(call)
        self._at(self._now_ms + round(self._fleet.outage_s * 1_000), self._find_region)

    def _find_region(self) -> None:
        self._regions[0].is_lost = False
        for worker in range(self._fleet.workers):
            self._up(0, f"worker-{worker:05d}")

    def _report(self, took_s: float) -> dict[str, Any]:
        waits_s = [wait_ms / 1_000 for wait_ms in self._waits_ms]
        return {
            "calls": self._asked,
            "outcomes": dict(sorted(self._seen.items())),
            "waited_s": {f"p{percent}": percentile(waits_s, percent) for percent in (50, 95, 99)},
            "waited_at_all_percent": round(100 * sum(map(bool, waits_s)) / max(1, len(waits_s)), 2),
            "longest_wait_s": max(waits_s, default=0.0),
            "longest_queue": self._longest_queue,
            "most_running": self._most_running,
            "slots": self._fleet.regions * self._fleet.workers * self._fleet.slots,
            "simulated_hours": round(self._now_ms / 3_600_000, 2),
            "took_s": round(took_s, 1),
        }
