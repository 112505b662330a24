"""Event loop whose time passes only while it waits: for a call that is held again on a busy machine.

A replay has to decide by the times of the call, not by those of the machine. Where other work takes the
processor, the timers of a usual loop fire late, in another order with what comes from outside, and threads
answer after the deadlines of a call. Here a timer that fires late fires on time, and the loop's own work
takes no time. While a thread works for the loop (``run_in_executor``), time passes by what this process
computes: as much as on a machine without other work, so that latencies can still be compared. That holds for
``MOST_HELD_S`` of a job, because some threads wait for something. Otherwise time passes as it does outside.
So a replay lasts longer where the machine is busy, and decides the same.

What comes from other processes is waited for in their time. Clocks other than the loop's go on.

Time never jumps over a silence to the next timer. That decides the same only where all work that may still
come is known, and it is not: the embedded recogniser and the listener for stop words run in processes of
their own, which send what they have when they have it, and are pinged by timers of this loop. A loop that
jumps takes a process for hung that has had no time to answer (``engine_hosting.child``). Threads that a voice
and a language model get work for are handed it past the loop, and one that waits for room in a buffer of the
loop looks like one that works. Only simulations jump, with engines that have neither.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from parley.runtime.interrupts import stopping_in_order

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A thread that works for a call takes less, also where thirty processes wait for two cores.
MOST_HELD_S = 10.0
# While a thread works, the loop looks this often whether it has worked for too long.
LOOK_S = 0.05


class _WaitedTime(selectors.DefaultSelector):
    """Selector that counts the time for which the loop waited for it."""

    def __init__(self, most_held_s: float) -> None:
        super().__init__()
        self._most_held_s = most_held_s
        self.now_s = time.monotonic()
        # Real time at which each job of a thread was begun.
        self.jobs: dict[object, float] = {}

    def select(self, timeout: float | None = None) -> list[Any]:
        begun_s, computed_s = time.monotonic(), time.process_time()
        is_held = self._is_held(begun_s)
        if is_held:
            timeout = LOOK_S if timeout is None else min(timeout, LOOK_S)
        found = super().select(timeout)
        passed_s = time.monotonic() - begun_s
        if is_held:
            passed_s = min(passed_s, time.process_time() - computed_s)
        # A process that was not woken in time has not waited for longer than it wanted to.
        self.now_s += passed_s if timeout is None else min(passed_s, max(timeout, 0.0))
        return found

    def _is_held(self, now_s: float) -> bool:
        return any(now_s - begun_s < self._most_held_s for begun_s in self.jobs.values())


class UnhurriedLoop(asyncio.SelectorEventLoop):
    """Loop whose time passes only while it waits.

    Args:
        most_held_s: longest time for which a job of a thread holds its time.
    """

    def __init__(self, most_held_s: float = MOST_HELD_S) -> None:
        self._waited = _WaitedTime(most_held_s)
        super().__init__(self._waited)

    def time(self) -> float:
        """Return the time of the loop: that of the machine at its beginning, and what it has waited since."""
        return self._waited.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Run a job in a thread; time passes by what this process computes meanwhile."""
        job, jobs = object(), self._waited.jobs
        jobs[job] = time.monotonic()
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: jobs.pop(job, None))
        return future


def run(main: Coroutine[Any, Any, T], *, most_held_s: float = MOST_HELD_S) -> T:
    """Run ``main`` to completion on such a loop, and return its result."""
    with stopping_in_order(), asyncio.Runner(loop_factory=lambda: UnhurriedLoop(most_held_s)) as runner:
        return runner.run(main)
