"""Release the memory of an idle process to the system.

Decides when: no conversation runs, and the process has grown by ``GROWN_MB`` since the last time. A full
collection and a trim of the C heap stop everything for up to some hundred milliseconds, so neither is done
while a caller could hear it. A process that is never idle depends on calls that are freed when they end
(``pipelines.release``) and on the bounds of the heap (``runtime.heap``). Owns one task.
"""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from loguru import logger

from parley.runtime.heap import trim_heap

LOOK_S = 10.0
GROWN_MB = 16.0
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1_048_576
STATM = Path("/proc/self/statm")


class CountsCalls(Protocol):
    """Source of the number of running conversations."""

    @property
    def active(self) -> int: ...


def resident_mb() -> float:
    """Return the resident memory of this process in MB; 0 where the system does not report it."""
    try:
        return int(STATM.read_text().split()[1]) * PAGE_MB
    except OSError:
        return 0.0


@asynccontextmanager
async def returning_memory(
    calls: CountsCalls, *, resident: Callable[[], float] = resident_mb, trim: Callable[[], object] = trim_heap
) -> AsyncIterator[None]:
    """Release memory whenever the process is idle, until the block ends."""
    watching = asyncio.create_task(_watch(calls, resident, trim, resident()), name="idle_memory")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(
    calls: CountsCalls, resident: Callable[[], float], trim: Callable[[], object], kept_mb: float
) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        held_mb = resident()
        kept_mb = min(kept_mb, held_mb)
        if calls.active or held_mb - kept_mb < GROWN_MB:
            continue
        gc.collect()
        # Not in a thread: a trim holds the locks of the allocator, and the loop would wait for those.
        trim()
        kept_mb = resident()
        logger.debug(f"idle: resident memory fell from {held_mb:.0f} MB to {kept_mb:.0f} MB")
