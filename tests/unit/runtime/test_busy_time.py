"""Processor time of a coroutine's own steps."""

import asyncio
import time

import pytest

from parley.runtime.busy_time import Metered


def burn(ms: int) -> None:
    until_ns = time.thread_time_ns() + ms * 1_000_000
    while time.thread_time_ns() < until_ns:
        pass


async def test_only_the_steps_of_the_coroutine_itself_are_counted():
    done = asyncio.Event()

    async def other() -> None:
        burn(30)
        done.set()

    async def mine() -> str:
        burn(5)
        task = asyncio.create_task(other())
        await done.wait()
        burn(5)
        await task
        return "said"

    metered = Metered(mine())
    assert await metered == "said"
    assert 10_000 <= metered.busy_us < 30_000


async def test_what_is_raised_passes_through_and_its_time_is_counted():
    async def fails() -> None:
        await asyncio.sleep(0)
        burn(3)
        raise ValueError("no")

    metered = Metered(fails())
    with pytest.raises(ValueError, match="no"):
        await metered
    assert metered.busy_us >= 3_000


async def test_a_cancelled_coroutine_can_clean_up():
    seen: list[str] = []
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("cleaned")
            raise

    async def run() -> None:
        await Metered(waits())

    task = asyncio.create_task(run())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cleaned"]


async def test_a_wait_inside_can_time_out():
    async def waits() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "early"

    assert await Metered(waits()) == "late"
