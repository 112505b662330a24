import asyncio

from parley.runtime.loop_clock import LoopClock
from tests import virtual_time


def test_a_deadline_has_come_when_its_sleep_returns():
    async def scenario() -> None:
        clock = LoopClock()
        for step_ms in (1, 7, 33, 160, 601) * 200:
            # Times that are not whole milliseconds, as other timers produce them.
            await asyncio.sleep(0.0003337)
            deadline_ms = clock.now_ms() + step_ms
            await clock.sleep_until_ms(deadline_ms)
            assert clock.now_ms() >= deadline_ms

    virtual_time.run(scenario())


def test_time_starts_anywhere_and_goes_forward():
    async def scenario() -> tuple[int, int]:
        clock = LoopClock()
        before_us = clock.now_us()
        await asyncio.sleep(1.5)
        return before_us, clock.now_us()

    before_us, after_us = virtual_time.run(scenario())
    assert after_us - before_us == 1_500_000


def test_a_clock_goes_on_with_the_next_loop_when_its_own_is_closed():
    clock = LoopClock()

    async def read_us(after_s: float) -> int:
        await asyncio.sleep(after_s)
        return clock.now_us()

    first_us = virtual_time.run(read_us(10.0))
    with asyncio.Runner() as runner:
        assert runner.run(read_us(0.0)) != first_us
        assert abs(clock.now_us() - runner.get_loop().time() * 1_000_000) < 1_000_000
