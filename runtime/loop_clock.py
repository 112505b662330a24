"""Session time from the running event loop.

A loop that jumps to its next timer therefore moves every ``LoopClock`` with it: no part of Parley reads the
operating system's clock while a simulated call runs.
"""

import asyncio


class LoopClock:
    """Implementation of ``core.clock.Clock`` on ``loop.time()``."""

    def now_us(self) -> int:
        # Rounded to the nearest: a timer fires up to a rounding error early. A deadline in whole milliseconds
        # must have passed then, or its owner would sleep again for no time at all.
        return round(asyncio.get_running_loop().time() * 1_000_000)

    def now_ms(self) -> int:
        return self.now_us() // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        await asyncio.sleep(max(0.0, deadline_ms / 1_000 - asyncio.get_running_loop().time()))
