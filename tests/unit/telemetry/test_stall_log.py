"""Stalls in the log."""

from loguru import logger

from parley.runtime.stall_monitor import Stall
from parley.telemetry.stall_log import StallLog


def test_of_many_stalls_one_is_logged_with_its_stack():
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]))
    try:
        log = StallLog()
        for stalled_ms in (120, 60, 60):
            log(Stall(0.0, stalled_ms, 118, 0, ("a.py:1 inner", "b.py:2 outer")))
    finally:
        logger.remove(sink)
    assert lines == ["the event loop was blocked for 120 ms (118 ms of CPU): a.py:1 inner < b.py:2 outer"]
