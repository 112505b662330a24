"""Session time from the running event loop.

A loop that jumps to its next timer therefore moves every ``LoopClock`` with it: no part of Parley asks the
operating system what time it is while a simulated call runs.
"""

import asyncio


class LoopClock:
    """``core.clock.Clock`` on ``loop.time()``."""

    def now_us(self) -> int:
        # To the nearest: a timer wakes up to a rounding error early, and a deadline that is asked for in
        # whole milliseconds must have come then, or its owner would go to sleep again for no time at all.
        return round(asyncio.get_running_loop().time() * 1_000_000)

    def now_ms(self) -> int:
        return self.now_us() // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        await asyncio.sleep(max(0.0, deadline_ms / 1_000 - asyncio.get_running_loop().time()))
