"""Time of a loop on a machine that has other work to do."""

import asyncio
import threading
import time

import pytest

from parley.runtime import unhurried_loop


def test_time_passes_while_the_loop_waits_as_it_does_outside():
    async def scenario() -> tuple[float, float]:
        loop, began_s = asyncio.get_running_loop(), time.monotonic()
        at_s = loop.time()
        await asyncio.sleep(0.2)
        return loop.time() - at_s, time.monotonic() - began_s

    inside_s, outside_s = unhurried_loop.run(scenario())
    assert inside_s == pytest.approx(0.2, abs=0.01)
    assert outside_s >= 0.19


def test_a_loop_that_is_held_up_misses_no_time():
    async def scenario() -> list[str]:
        happened: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, happened.append, "first")
        loop.call_later(0.3, happened.append, "last")
        loop.call_soon(time.sleep, 0.5)
        await asyncio.sleep(0.1)
        happened.append("between")
        await asyncio.sleep(0.3)
        return happened

    assert unhurried_loop.run(scenario()) == ["first", "between", "last"]


def test_the_work_of_a_thread_takes_the_time_that_it_computes():
    def compute() -> None:
        until_s = time.thread_time() + 0.2
        while time.thread_time() < until_s:
            pass

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        at_s = loop.time()
        await asyncio.to_thread(compute)
        return loop.time() - at_s

    # However long this machine takes for it.
    assert unhurried_loop.run(scenario(), most_held_s=60) == pytest.approx(0.2, abs=0.08)


def test_time_stands_still_while_a_thread_computes_nothing():
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        at_s = loop.time()
        # The usual loop would be 0.4 s on.
        assert await asyncio.to_thread(lambda: time.sleep(0.4)) is None
        return loop.time() - at_s

    assert unhurried_loop.run(scenario()) < 0.05


def test_a_thread_that_waits_for_the_loop_does_not_stop_its_time():
    async def scenario() -> None:
        woken = threading.Event()
        waiting = asyncio.get_running_loop().run_in_executor(None, woken.wait, 10)
        # It is woken by a timer, which needs time.
        asyncio.get_running_loop().call_later(0.1, woken.set)
        assert await waiting

    unhurried_loop.run(scenario(), most_held_s=0.2)


def test_jobs_that_fail_or_are_cancelled_hold_nothing():
    async def scenario() -> float:
        loop = asyncio.get_running_loop()

        def fails() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await asyncio.to_thread(fails)
        cancelled = loop.run_in_executor(None, time.sleep, 0.1)
        cancelled.cancel()
        at_s = loop.time()
        await asyncio.sleep(0.2)
        return loop.time() - at_s

    assert unhurried_loop.run(scenario()) == pytest.approx(0.2, abs=0.01)
