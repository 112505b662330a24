"""CPU time that the host of a virtual machine gave to other guests during a measurement.

A guest cannot distinguish a stolen moment from a slow server: both appear as late packets. Linux counts the
stolen time (``/proc/stat``, in ticks of 10 ms, all CPUs), so a figure can be read together with it.
``StolenTime`` owns one sampling task while it is entered.
"""

import asyncio
import os
from bisect import bisect_right
from pathlib import Path
from types import TracebackType
from typing import Self

from parley.evals.harness.webrtc_caller import now_us

STAT = Path("/proc/stat")
# Index in the line of all CPUs, after its name: user, nice, system, idle, iowait, irq, softirq, steal.
STEAL = 7
SAMPLE_S = 0.02


class StolenTime:
    """Sampler of the stolen time while it is entered.

    Args:
        stat: the file of counters. Without it nothing is known.
    """

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._at_us: list[int] = []
        self._stolen_us: list[int] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._stat.exists():
            self.sample()
            self._task = asyncio.create_task(self._sample(), name="stolen_time")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self.sample()

    def sample(self) -> None:
        """Read the counter now, if there is one."""
        if not self._stat.exists():
            return
        with self._stat.open() as file:
            ticks = int(file.readline().split()[1 + STEAL])
        self._at_us.append(now_us())
        self._stolen_us.append(ticks * 1_000_000 // os.sysconf("SC_CLK_TCK"))

    def between(self, start_us: int, end_us: int) -> int | None:
        """Return the microseconds stolen between two moments, summed over the CPUs; None when nothing is
        known.
        """
        if len(self._at_us) < 2:
            return None
        return self._before(end_us) - self._before(start_us)

    def _before(self, at_us: int) -> int:
        return self._stolen_us[max(0, bisect_right(self._at_us, at_us) - 1)]

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.sample()
