"""Stalls in the log."""

from collections.abc import Iterator

import pytest
from loguru import logger

from parley.runtime.stall_monitor import Stall
from parley.telemetry.stall_log import EVERY_S, StallLog


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def lines() -> Iterator[list[str]]:
    written: list[str] = []
    sink = logger.add(lambda message: written.append(message.record["message"]))
    yield written
    logger.remove(sink)


def stall(stalled_ms: int, *stack: str) -> Stall:
    return Stall(60.0, stalled_ms, 8, 0, stack)


def test_the_first_stall_is_logged_at_once_with_its_stack(lines: list[str]):
    StallLog(Clock())(stall(120, "a.py:1 inner", "b.py:2 outer"))
    assert lines == ["the event loop was blocked for 120 ms (8 ms of CPU): a.py:1 inner < b.py:2 outer"]


def test_a_minute_has_one_line_with_the_number_and_the_worst_stall(lines: list[str]):
    clock = Clock()
    log = StallLog(clock)
    log(stall(300, "first"))
    for stalled_ms in (60, 150, 70):
        clock.now_s += EVERY_S / 4
        log(stall(stalled_ms, f"of {stalled_ms}"))
    assert len(lines) == 1
    clock.now_s += EVERY_S / 4
    log(stall(80, "of 80"))
    assert lines[1:] == [
        "the event loop was blocked 4 times in 60 s, at most for 150 ms (8 ms of CPU) until "
        "1970-01-01T00:01:00+00:00: of 150"
    ]
    # What was logged is not counted again.
    clock.now_s += EVERY_S
    log(stall(51, "of 51"))
    assert lines[2:] == ["the event loop was blocked for 51 ms (8 ms of CPU): of 51"]
