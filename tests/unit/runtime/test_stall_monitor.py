"""Stalls of an event loop: those that are counted, and the facts in their reports."""

import asyncio
import gc
import time

import pytest

from parley.runtime.stall_monitor import BUSY_S, IDLE_S, HeartbeatTimes, Stall, StallMonitor

MS = 1_000_000
BUSY_MS, IDLE_MS = round(BUSY_S * 1000), round(IDLE_S * 1000)


def stalled_ms(*, interval_ms: int, passed_ms: int, cpu_ms: int) -> int:
    stalled_ns = HeartbeatTimes().stalled_ns(
        interval_ns=interval_ms * MS, passed_ns=passed_ms * MS, cpu_ns=cpu_ms * MS
    )
    return stalled_ns // MS


@pytest.mark.parametrize("begins_ms", [0, 1, 25, 49])
def test_a_stall_that_computes_is_counted_wherever_it_meets_an_idle_loop(begins_ms):
    assert stalled_ms(interval_ms=IDLE_MS, passed_ms=begins_ms + 60, cpu_ms=60) == 60


@pytest.mark.parametrize("begins_ms", range(BUSY_MS))
def test_a_stall_that_waits_is_counted_wherever_it_meets_a_loop_that_works(begins_ms):
    assert stalled_ms(interval_ms=BUSY_MS, passed_ms=begins_ms + 51, cpu_ms=1) > 0


@pytest.mark.parametrize(
    ("interval_ms", "passed_ms", "cpu_ms"),
    [(IDLE_MS, IDLE_MS, 0), (IDLE_MS, IDLE_MS + 4, 54), (BUSY_MS, BUSY_MS + 29, 20), (IDLE_MS, 95, 10)],
)
def test_what_is_shorter_is_not_counted(interval_ms, passed_ms, cpu_ms):
    assert stalled_ms(interval_ms=interval_ms, passed_ms=passed_ms, cpu_ms=cpu_ms) == 0


def test_a_loop_that_does_nothing_is_woken_twenty_times_a_second():
    times = HeartbeatTimes()
    assert times.interval_s(passed_ns=50 * MS, cpu_ns=MS // 10) == 0.05
    assert times.interval_s(passed_ns=50 * MS, cpu_ns=10 * MS) == BUSY_S


def stand_for_s(seconds: float) -> None:
    """Block for that long, under the name that is searched in the stack."""
    time.sleep(seconds)


async def reported(block, function: str) -> tuple[StallMonitor, Stall]:
    """Return the monitor and the stall that it reports of a function that blocks the loop.

    A busy machine causes stalls of its own, and a stack that is taken late has another function. The loop is
    blocked again until a stall names the expected function.
    """
    loop = asyncio.get_running_loop()
    stalls: asyncio.Queue[Stall] = asyncio.Queue()

    def report(stall: Stall) -> None:
        loop.call_soon_threadsafe(stalls.put_nowait, stall)

    async with StallMonitor(report) as monitor, asyncio.timeout(30):
        while True:
            loop.call_soon(block)
            stall = await stalls.get()
            if any(frame.endswith(function) for frame in stall.stack):
                return monitor, stall


async def test_a_stall_is_counted_with_the_stack_that_stood():
    monitor, stall = await reported(lambda: stand_for_s(0.4), " stand_for_s")
    assert stall.stalled_ms >= 300
    assert monitor.count >= 1
    assert monitor.longest_ms >= stall.stalled_ms
    assert stall.stack[0].endswith(" stand_for_s")


async def test_values_of_variables_are_in_no_stack():
    def knows_a_secret() -> None:
        secret = "4929 1234 5678 9012"
        time.sleep(0.4)
        assert secret

    _, stall = await reported(knows_a_secret, "knows_a_secret")
    assert "knows_a_secret" in " ".join(stall.stack)
    assert "4929" not in str(stall.as_message())


async def test_full_garbage_collection_is_named():
    def collect() -> None:
        until_s = time.monotonic() + 0.3
        while time.monotonic() < until_s:
            gc.collect()

    _, stall = await reported(collect, "collect")
    assert 0 < stall.collected_ms <= stall.stalled_ms


async def test_status_has_counts_and_the_last_stack():
    monitor, stall = await reported(lambda: stand_for_s(0.2), " stand_for_s")
    message = monitor.as_message()
    assert message["count"] >= 1
    assert message["longest_ms"] >= stall.stalled_ms
    assert set(message["last"]) == {"at", "stalled_ms", "cpu_ms", "collected_ms", "stack"}


async def test_nothing_is_left_of_a_monitor_that_ended():
    before = list(gc.callbacks)
    async with StallMonitor() as monitor:
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
    monitor._watchdog.join(5)
    assert not monitor._watchdog.is_alive()
