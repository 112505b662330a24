"""Measure one server for ``serving.scheduler.admission``, and report how many calls it may hold.

Inputs: answers of calls as they are heard, and the reports of the engines. Output: the bound, which
``CallTasks.admitted`` gives before a call begins. Owns one task, from ``start`` to ``close``. It measures the
lag of the event loop, and updates the bound once a second.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from parley.core.call_events import AnswerHeard
from parley.runtime.event_stream import CallEvents
from parley.serving.scheduler.admission import Admission, Admitted

PROBE_S = 0.05
LOOK_S = 1.0
# A server that is full for a moment stays in a balancer: its callers wait, or are refused.
FULL_S = 10.0
PROCESSORS = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class RecogniserLoad:
    """Report of the recognisers.

    Attributes:
        processes: recognisers that run in parallel.
        real_time_factor: seconds of work of one of them per second of a caller's speech; None: unknown.
        speaking: callers who speak at this moment.
    """

    processes: int
    real_time_factor: float | None
    speaking: int


class AdmissionGate:
    """Bound of one server.

    Args:
        most: maximum number of calls.
        hearing: of embedded recognisers; None where there are none.
        active: returns the number of calls.
        heard: returns the number of those that use the recogniser.
        answers: events of all calls, as they are heard.
        full_s: time for which it must be full before ``full`` reports it.
    """

    def __init__(
        self,
        most: int,
        *,
        hearing: Callable[[], RecogniserLoad | None],
        active: Callable[[], int],
        heard: Callable[[], int],
        answers: CallEvents,
        full_s: float = FULL_S,
    ) -> None:
        self._policy = Admission(most)
        self._most = most
        self._hearing = hearing
        self._active = active
        self._heard = heard
        answers.subscribe(AnswerHeard, self._on_answer)
        self._task: asyncio.Task[None] | None = None
        self._said = most
        self._full_s = full_s
        # Loop time at which it was first found full.
        self._full_since_s: float | None = None
        # Ticks of the processors so far, and the idle ones among them.
        self._ticks = (0, 0)
        # Fault of the last measurement, to be logged once.
        self._fault = ""

    @property
    def admitted(self) -> Admitted:
        """Bound of the calls that use the recogniser."""
        return self._policy.admitted

    def admits(self, uses_recogniser: bool) -> Admitted:
        """Return how many calls there may be now, and the reason (see ``CallTasks.admitted``)."""
        return self._policy.admitted if uses_recogniser else self._policy.admitted_in_all

    def start(self) -> None:
        """Start to measure, once ``active`` can be called; the owner calls ``close``."""
        self._hear()
        self._task = asyncio.create_task(self._measure(), name="admission")

    async def close(self) -> None:
        """End the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def full(self) -> list[str]:
        """Return why no further call was admitted for a while, for readiness; empty when one was."""
        since_s = self._full_since_s
        if since_s is None or asyncio.get_running_loop().time() - since_s < self._full_s:
            return []
        in_all = self.admits(uses_recogniser=False)
        return [f"full: {(in_all if self._active() >= in_all.calls else self.admitted).why}"]

    def describe(self) -> dict[str, object]:
        """Return the figures for ``/status``."""
        admitted, hearing = self.admitted, self._hearing()
        factor = None if hearing is None else hearing.real_time_factor
        return {
            "calls": self._active(),
            "heard": self._heard(),
            "admitted": admitted.calls,
            "why": admitted.why,
            "alone_ms": self._policy.alone_ms,
            "recogniser_ms_per_s": None if factor is None else round(factor * 1000),
        }

    def _on_answer(self, event: AnswerHeard) -> None:
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        self._policy.on_answer(now_ms, event.latency_ms, calls=self._active())

    async def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        look_at_s = loop.time() + LOOK_S
        while True:
            due_s = loop.time() + PROBE_S
            await asyncio.sleep(PROBE_S)
            now_s = loop.time()
            self._policy.on_lag(round(now_s * 1000), round((now_s - due_s) * 1000))
            if now_s >= look_at_s:
                look_at_s = now_s + LOOK_S
                self._try_to_look(round(now_s * 1000))

    def _try_to_look(self, now_ms: int) -> None:
        try:
            self._look(now_ms)
        except Exception as error:
            # Outermost level of this task: if it ended, the bound would stay constant while the server lives.
            if repr(error) != self._fault:
                self._fault = repr(error)
                logger.opt(exception=error).error(
                    "measuring the machine's load failed; admission uses the earlier measurement"
                )
        else:
            self._fault = ""

    def _see_processors(self) -> None:
        ticks = processor_ticks()
        if ticks is None:
            return
        total, idle = ticks[0] - self._ticks[0], ticks[1] - self._ticks[1]
        self._ticks = ticks
        if total > 0:
            self._policy.on_processors(1 - idle / total)

    def _hear(self) -> None:
        hearing = self._hearing()
        if hearing is not None:
            self._policy.on_hearing(processes=hearing.processes, real_time_factor=hearing.real_time_factor)
            self._policy.on_speaking(hearing.speaking, calls=self._heard(), seconds=LOOK_S)

    def _look(self, now_ms: int) -> None:
        self._hear()
        self._see_processors()
        self._policy.look(now_ms, calls=self._active())
        admitted = self.admitted
        is_full = (
            self._heard() >= admitted.calls or self._active() >= self.admits(uses_recogniser=False).calls
        )
        if not is_full:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_ms / 1000
        if admitted.calls < self._said and is_full:
            logger.warning(f"admitting at most {admitted.calls} calls: {admitted.why}")
        self._said = admitted.calls


def processor_ticks() -> tuple[int, int] | None:
    """Return the ticks since the system started of the processors this process may use; None: unknown.

    Returns:
        The ticks of all of them together, and the idle ones. A server that is bound to some processors
        (``taskset``, a container's ``cpuset``) is not judged by what runs on the others.
    """
    try:
        return allowed_ticks(PROCESSORS.read_text(), os.sched_getaffinity(0))
    except (OSError, AttributeError):
        # No such file, or a system without sched_getaffinity.
        return None


def allowed_ticks(stat: str, allowed: Collection[int]) -> tuple[int, int] | None:
    """Return all ticks and the idle ones of these processors, from the text of ``/proc/stat``."""
    names = {f"cpu{number}" for number in allowed}
    total = idle = 0
    for line in stat.splitlines():
        name, *values = line.split()
        if name in names:
            # cpu0 user nice system idle iowait irq softirq steal ...
            ticks = [int(value) for value in values[:8]]
            total += sum(ticks)
            idle += ticks[3] + ticks[4]
    return (total, idle) if total else None
