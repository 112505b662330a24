"""Monitor that counts the stalls of an event loop and keeps the blocking stack.

A stall is a time in which the loop runs nothing else: a callback that computes, waits for a disk or a lock,
or a full garbage collection. The audio of every call stops meanwhile. The loop runs a heartbeat. A watchdog
thread notices that it is late and captures the stack of the loop's thread during the stall. The heartbeat
itself measures the end.

The heartbeat comes every ``BUSY_S`` while the loop works and every ``IDLE_S`` while it does not, so an idle
loop wakes up 20 times a second. A heartbeat is late by less than the stall when the stall began between two
of them; the CPU time of the loop's thread fills that in. Every stall over ``STALL_MS`` that computes is
counted, and so is every other stall of a loop that works. A stall that only waits and meets an idle loop is
counted with certainty from 100 ms.

The watchdog is a Python thread. It cannot run while native code holds the interpreter (a C call that does not
release it, a garbage collection). It then captures the stack at its first chance, which is mostly still in
the frame that made the call. A stack that was captured after the end belongs to other code and is left out.
"""

import asyncio
import gc
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

STALL_MS = 50
# 100 callbacks a second are insignificant next to the wake-ups of one call (50 packets a second each way).
# Measured: 0.16 % of a core while idle, not visible at a load of 5 %.
BUSY_S, IDLE_S = 0.01, 0.05
# Share of a core above which the loop counts as working; the heartbeat and the watchdog take 0.2 %.
BUSY_SHARE = 0.05
# A heartbeat may be late by this much without a stall: timers of a loop have a resolution of a millisecond.
SLACK_NS = 5_000_000
# Lateness of a heartbeat at which the stack is captured. 20 ms pass often where two cores are shared, and do
# not indicate a stall.
STACK_AFTER_S = 0.02
MOST_FRAMES = 12
# Number of stalls that wait to be reported; further ones are counted and not reported.
MOST_UNREPORTED = 64
NS_PER_MS = 1_000_000
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Stall:
    """Stall of the loop.

    Attributes:
        at_s: Unix time of its end.
        stalled_ms: duration for which the loop was blocked, exact to ``BUSY_S``.
        cpu_ms: CPU time of the loop's thread in it. Much less than ``stalled_ms`` means that the thread
            waited.
        collected_ms: time of full garbage collections in it, in any thread.
        stack: innermost frame first, ``path:line function``; empty where it could not be captured in time.
    """

    at_s: float
    stalled_ms: int
    cpu_ms: int
    collected_ms: int
    stack: tuple[str, ...]

    def as_message(self) -> dict[str, Any]:
        """Return the stall as JSON, for ``/status``."""
        return {
            "at": datetime.fromtimestamp(self.at_s, UTC).isoformat(timespec="milliseconds"),
            "stalled_ms": self.stalled_ms,
            "cpu_ms": self.cpu_ms,
            "collected_ms": self.collected_ms,
            "stack": list(self.stack),
        }


class HeartbeatTimes:
    """Detection of a stall between two heartbeats. Times are arguments; no clock is read.

    Args:
        stall_ns: shortest stall that counts.
    """

    def __init__(self, stall_ns: int = STALL_MS * NS_PER_MS) -> None:
        self._stall_ns = stall_ns

    def stalled_ns(self, *, interval_ns: int, passed_ns: int, cpu_ns: int) -> int:
        """Return the duration for which the loop was blocked; 0 when it is too short to be counted.

        Args:
            interval_ns: requested time between the heartbeats.
            passed_ns: time that passed.
            cpu_ns: CPU time of the loop's thread in it.
        """
        late_ns = passed_ns - interval_ns
        if late_ns < SLACK_NS:
            return 0
        # The stall began at most one interval before the heartbeat was due. A thread that computed for longer
        # than the heartbeat was late already computed in that interval.
        computed_ns = min(cpu_ns, passed_ns)
        # The part of a wait before the heartbeat was due is unknown: a short interval is included.
        waited_ns = late_ns + (interval_ns if interval_ns <= BUSY_S * 1e9 else 0)
        return max(late_ns, computed_ns) if max(computed_ns, waited_ns) >= self._stall_ns else 0

    def interval_s(self, *, passed_ns: int, cpu_ns: int) -> float:
        """Return the time to the next heartbeat."""
        return BUSY_S if cpu_ns > BUSY_SHARE * passed_ns else IDLE_S


class StallMonitor:
    """Counter of the stalls of the running loop; an asynchronous context manager.

    Owns a timer of the loop and a daemon thread.

    Args:
        report: called with each counted stall, on the watchdog's thread; must not raise.

    Attributes:
        count: number of stalls so far.
        longest_ms: longest stall so far.
        last: newest stall; None before the first.
    """

    def __init__(self, report: Callable[[Stall], None] | None = None) -> None:
        self.count = 0
        self.longest_ms = 0
        self.last: Stall | None = None
        self._report = report
        self._times = HeartbeatTimes()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread_id = 0
        self._interval_s = IDLE_S
        self._beat_ns = self._cpu_ns = 0
        # Number of heartbeats, by which the watchdog notices that the one it watched has come.
        self._beats = 0
        self._stack: tuple[int, tuple[str, ...]] = 0, ()
        self._collecting_ns = self._collected_ns = self._collected_before_ns = 0
        self._unreported: deque[Stall] = deque(maxlen=MOST_UNREPORTED)
        self._ended = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="stalls", daemon=True)

    def as_message(self) -> dict[str, Any]:
        """Return the counts as JSON, for ``/status``."""
        last = None if self.last is None else self.last.as_message()
        return {"over_ms": STALL_MS, "count": self.count, "longest_ms": self.longest_ms, "last": last}

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._beat_ns, self._cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        gc.callbacks.append(self._on_collection)
        self._timer = self._loop.call_later(self._interval_s, self._beat)
        self._watchdog.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        gc.callbacks.remove(self._on_collection)
        # The watchdog notices that within a heartbeat; waiting for it would be a stall.
        self._ended.set()

    # Called on the loop.

    def _beat(self) -> None:
        assert self._loop is not None
        now_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        passed_ns, used_ns = now_ns - self._beat_ns, cpu_ns - self._cpu_ns
        collected_ns = self._collected_ns - self._collected_before_ns
        stalled_ns = self._times.stalled_ns(
            interval_ns=round(self._interval_s * 1e9), passed_ns=passed_ns, cpu_ns=used_ns
        )
        if stalled_ns:
            beats, stack = self._stack
            self._count(
                Stall(
                    time.time(),
                    stalled_ns // NS_PER_MS,
                    min(used_ns, stalled_ns) // NS_PER_MS,
                    min(collected_ns, stalled_ns) // NS_PER_MS,
                    stack if beats == self._beats else (),
                )
            )
        self._interval_s = self._times.interval_s(passed_ns=passed_ns, cpu_ns=used_ns)
        self._beat_ns, self._cpu_ns, self._collected_before_ns = now_ns, cpu_ns, self._collected_ns
        self._beats += 1
        self._timer = self._loop.call_later(self._interval_s, self._beat)

    def _count(self, stall: Stall) -> None:
        self.count += 1
        self.longest_ms = max(self.longest_ms, stall.stalled_ms)
        self.last = stall
        # The watchdog writes the log: a terminal that blocks would cause the next stall.
        self._unreported.append(stall)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Time full collections: they block the interpreter, and the watchdog with it."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._collecting_ns = time.monotonic_ns()
        else:
            self._collected_ns += time.monotonic_ns() - self._collecting_ns

    # Called on the watchdog's thread.

    def _watch(self) -> None:
        seen = -1
        while not self._ended.is_set():
            beats, due_ns = self._beats, self._beat_ns + round((self._interval_s + STACK_AFTER_S) * 1e9)
            left_s = (due_ns - time.monotonic_ns()) / 1e9
            if left_s > 0:
                self._ended.wait(left_s)
            elif beats != seen:
                # Once for each stall: the code that blocked first is what made it long.
                seen = beats
                stack = stack_of(self._thread_id)
                if beats == self._beats:
                    self._stack = beats, stack
            else:
                self._ended.wait(BUSY_S)
            while self._unreported and self._report is not None:
                self._report(self._unreported.popleft())


def stack_of(thread_id: int) -> tuple[str, ...]:
    """Return the stack of a thread, innermost frame first, without values of variables."""
    frame: FrameType | None = sys._current_frames().get(thread_id)
    stack: list[str] = []
    while frame is not None and len(stack) < MOST_FRAMES:
        code = frame.f_code
        stack.append(f"{_shown(code.co_filename)}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return tuple(stack)


def _shown(filename: str) -> str:
    """Return a path without the folders of this machine."""
    path = Path(filename)
    if path.is_relative_to(_ROOT) and "site-packages" not in path.parts:
        return str(path.relative_to(_ROOT))
    return "/".join(path.parts[-2:])
