"""``python -m evals.bench scheduler``: measure the time of an operation by the length of the queue.

For each length, a pool whose workers are all taken has that many waiting requests, and a queue for a line
as many callers. Each call is timed by itself, in time of the processor, so that other programs do not count.
A call that changes the queue is followed by its opposite, so that the length stays the same. ``places`` lists
the whole queue with its estimates; no operation contains it. Faults end the run with one line and status 2.
"""

import argparse
import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, markdown, ranked, run_command
from parley.models.llm.kv.segments import CacheHandle
from parley.serving.scheduler.call_queue import CallQueue, CallQueueSettings
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    LeaseGranted,
    Task,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)

GIB = 1_073_741_824
SLOTS = 4
# Calls of ``places``, which takes some milliseconds.
LISTINGS = 20

# Name of an operation, its call, and the use of its result.
Step = tuple[str, Callable[[], Any], Callable[[Any], None]]


def _ignore(_result: object) -> None:
    pass


class _Tickets:
    """Set of tickets from which one is drawn at random."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._tickets: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, ticket: str) -> None:
        self._places[ticket] = len(self._tickets)
        self._tickets.append(ticket)

    def remove(self, ticket: str) -> None:
        place, last = self._places.pop(ticket), self._tickets.pop()
        if last != ticket:
            self._tickets[place], self._places[last] = last, place

    def any(self) -> str:
        return self._draw.choice(self._tickets)


class WaitingPool:
    """Scheduler with a queue of constant length, and the steps of a measurement.

    Args:
        waiting: number of queued requests.
        workers: number of workers, each with four slots and memory for four of the largest requests.
        seed: of the choice of requests.
    """

    def __init__(self, waiting: int, workers: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self._now_ms = 0
        self._number = itertools.count()
        self._queued, self._running = _Tickets(self._draw), _Tickets(self._draw)
        self._on: dict[str, str] = {}
        self._workers = [f"worker-{number:04d}" for number in range(workers)]
        self._scheduler = Scheduler(SchedulerSettings(max_waiting=1_000_000, silent_ms=600_000, suspect_ms=0))
        for worker in self._workers:
            self._scheduler.worker_up(WorkerCapacity(worker, "1", SLOTS, SLOTS * 4 * GIB), 0)
        for _ in range(SLOTS * workers + waiting):
            _, call, use = self._ask()
            use(call())

    def steps(self) -> Iterator[Step]:
        """Yield the steps of one round, after which the queue is as long as before."""
        scheduler, now_ms = self._scheduler, self._now_ms
        yield self._ask()
        yield "position", partial(scheduler.position, self._queued.any()), _ignore
        yield "heartbeat", partial(scheduler.heartbeat, self._queued.any(), now_ms), _ignore
        leaves = self._queued.any()
        self._queued.remove(leaves)
        yield "cancel", partial(scheduler.cancel, leaves, now_ms), self._granted
        yield self._ask()
        yield self._release(self._running.any())
        yield from self._reject(self._running.any())
        ready = partial(scheduler.worker_stands, self._draw.choice(self._workers), WorkerState.READY)
        yield "worker_stands", partial(ready, now_ms), self._granted
        yield "next_deadline_ms", scheduler.next_deadline_ms, _ignore
        yield "on_deadline", partial(scheduler.on_deadline, now_ms), self._granted

    def listing(self) -> Step:
        """Return the listing of the queue."""
        return "places", partial(self._scheduler.places, self._now_ms), _ignore

    def _ask(self) -> Step:
        self._now_ms += 1
        draw, number = self._draw, next(self._number)
        chain = tuple((f"{number}.{turn}", 100 * turn) for turn in range(1, 11))
        handle = CacheHandle(draw.choice(self._workers), "1", chain[-1][0], 1_000)
        task = draw.choice((Task.CHAT, Task.HALF_DUPLEX, Task.OMNI_DUPLEX))
        size = draw.choice((1, 2, 4)) * GIB
        want = WorkerRequest(f"{number}", f"session {number}", task, 1, size, chain, handle)
        self._queued.add(want.ticket_id)
        return "ask", partial(self._scheduler.ask, want, self._now_ms), self._granted

    def _release(self, ticket: str) -> Step:
        self._running.remove(ticket)
        kept = tuple((f"{ticket}.{turn}", 100 * turn) for turn in range(1, 12))
        release = partial(self._scheduler.release, ticket, self._now_ms, well=True, kept=kept)
        return "release and grant", release, self._granted

    def _reject(self, ticket: str) -> Iterator[Step]:
        self._running.remove(ticket)
        self._queued.add(ticket)
        yield "lease_rejected", partial(self._scheduler.lease_rejected, ticket, self._now_ms), self._granted
        back = partial(self._scheduler.worker_stands, self._on[ticket], WorkerState.READY, self._now_ms)
        yield "ready and grant", back, self._granted

    def _granted(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, LeaseGranted):
                self._queued.remove(effect.ticket_id)
                self._running.add(effect.ticket_id)
                self._on[effect.ticket_id] = effect.lease.worker


class WaitingCallers:
    """Queue for a line of constant length, and the steps of a measurement."""

    def __init__(self, waiting: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self._now_s = 0.0
        self._number = itertools.count()
        self._queued = _Tickets(self._draw)
        self._queue = CallQueue(CallQueueSettings(most=10_000), lambda: self._now_s)
        for _ in range(waiting - 1):
            self._join()[1]()

    def steps(self) -> Iterator[Step]:
        """Yield the steps of one round, after which the queue is as long as before."""
        self._now_s += 0.001
        yield self._join()
        yield "line: ahead_of", partial(self._queue.ahead_of, self._queued.any(), for_line=True), _ignore
        yield "line: refresh", partial(self._queue.refresh, self._queued.any(), self._now_s + 60), _ignore
        leaves = self._queued.any()
        self._queued.remove(leaves)
        yield "line: leave", partial(self._queue.leave, leaves), _ignore

    def _join(self) -> Step:
        ticket = f"{next(self._number)}"
        self._queued.add(ticket)
        is_heard = self._draw.random() < 0.8
        join = partial(self._queue.join, ticket, uses_recogniser=is_heard, expires_s=self._now_s + 60)
        return "line: join", join, _ignore


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.bench scheduler",
        description="Measure the time of an operation of the scheduler by the length of its queue.",
    )
    root.add_argument(
        "--waiting", type=positive, nargs="+", default=[100, 1_000, 10_000], help="lengths of the queue"
    )
    root.add_argument("--workers", type=positive, default=250, help="workers, with four slots each")
    root.add_argument("--rounds", type=positive, default=5_000, help="calls of each operation")
    root.add_argument("--seed", type=int, default=1, help="seed of the choice of requests")
    add_outputs(root)
    return root


def measure(waiting: Sequence[int], *, workers: int, rounds: int, seed: int) -> dict[str, Any]:
    """Measure each length of the queue and return the JSON."""
    results = []
    progress = Progress("lengths of the queue", len(waiting))
    for length in waiting:
        pool, callers = WaitingPool(length, workers, seed), WaitingCallers(min(length, 10_000), seed)
        taken_us: dict[str, list[float]] = {}
        # A collection would be attributed to the operation that it happens to interrupt.
        gc.collect()
        gc.disable()
        try:
            for _ in range(rounds):
                _time(pool.steps(), taken_us)
                _time(callers.steps(), taken_us)
            _time(itertools.repeat(pool.listing(), LISTINGS), taken_us)
        finally:
            gc.enable()
        results.append({"waiting": length, "us": {name: _of(values) for name, values in taken_us.items()}})
        progress.step(length)
    return {"results": results, "workers": workers, "rounds": rounds, "machine": machine()}


def _time(steps: Iterator[Step], taken_us: dict[str, list[float]]) -> None:
    for name, call, use in steps:
        began_ns = time.thread_time_ns()
        result = call()
        taken_us.setdefault(name, []).append((time.thread_time_ns() - began_ns) / 1_000)
        use(result)


def _of(taken_us: Sequence[float]) -> Mapping[str, float]:
    return {"mean": round(sum(taken_us) / len(taken_us), 1), **ranked(taken_us)}


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    rows = [
        (row["waiting"], name, *(us[key] for key in ("mean", "p50", "p95", "p99", "max")))
        for row in result["results"]
        for name, us in row["us"].items()
    ]
    head = ("waiting", "operation", "mean us", "p50", "p95", "p99", "max")
    about = f"{result['workers']} workers, {result['rounds']} calls of each operation"
    return f"{markdown(head, rows)}\n\n{about}. Load {result['machine']['load_1min']}.\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = parser().parse_args(argv)
    run = partial(measure, given.waiting, workers=given.workers, rounds=given.rounds, seed=given.seed)
    return run_command(given, run, table)


if __name__ == "__main__":
    raise SystemExit(main())
