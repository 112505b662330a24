"""Log the stalls of an event loop: at most one line in ten seconds, with the blocking stack."""

import time

from loguru import logger

from parley.runtime.stall_monitor import Stall
from parley.telemetry.log_throttle import LogThrottle

EVERY_S = 10.0


class StallLog:
    """Callback for the stalls that ``StallMonitor`` counts. Runs on the watchdog's thread."""

    def __init__(self) -> None:
        self._lines = LogThrottle(EVERY_S)

    def __call__(self, stall: Stall) -> None:
        """Log a stall, unless another was logged within the last ten seconds."""
        collected = f", {stall.collected_ms} ms of it in garbage collection" if stall.collected_ms else ""
        where = " < ".join(stall.stack) or "native code that held the interpreter"
        took = f"{stall.stalled_ms} ms ({stall.cpu_ms} ms of CPU{collected})"
        text = f"the event loop was blocked for {took}: {where}"
        if (line := self._lines.line(text, time.monotonic())) is not None:
            logger.warning(line)
