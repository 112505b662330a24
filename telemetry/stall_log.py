"""Log the stalls of an event loop: at most one line a minute, with the number of stalls and the worst stack.

On a machine that is too slow or too busy, every stall has a cause of the same kind, and a line for each hides
the other lines. Measured on two cores that other work kept busy: 20 stalls a minute on a server without a
call, most of them waits for a core (0 ms of CPU). A minute is also the interval in which a metrics server
usually reads the counters, which have every stall (``telemetry.metrics``), as does ``/status``.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from loguru import logger

from parley.runtime.stall_monitor import Stall

EVERY_S = 60.0


class StallLog:
    """Callback for the stalls that ``StallMonitor`` counts. Runs on the watchdog's thread.

    The first stall is logged at once. Later ones are collected, and the first one after ``EVERY_S`` logs
    them all.

    Args:
        clock_s: monotonic clock.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._logged_s: float | None = None
        self._count = 0
        self._worst: Stall | None = None

    def __call__(self, stall: Stall) -> None:
        """Count a stall, and log all since the last line unless that is less than a minute old."""
        self._count += 1
        if self._worst is None or stall.stalled_ms > self._worst.stalled_ms:
            self._worst = stall
        now_s = self._clock_s()
        if self._logged_s is not None and now_s - self._logged_s < EVERY_S:
            return
        since_s = None if self._logged_s is None else now_s - self._logged_s
        line = _line(self._worst, self._count, since_s)
        self._logged_s, self._count, self._worst = now_s, 0, None
        logger.warning(line)


def _line(worst: Stall, count: int, since_s: float | None) -> str:
    collected = f", {worst.collected_ms} ms of it in garbage collection" if worst.collected_ms else ""
    where = " < ".join(worst.stack) or "native code that held the interpreter"
    took = f"{worst.stalled_ms} ms ({worst.cpu_ms} ms of CPU{collected})"
    if count == 1 or since_s is None:
        return f"the event loop was blocked for {took}: {where}"
    at = datetime.fromtimestamp(worst.at_s, UTC).isoformat(timespec="seconds")
    times = f"{count} times in {since_s:.0f} s"
    return f"the event loop was blocked {times}, at most for {took} until {at}: {where}"
