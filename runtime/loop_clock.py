"""Session time from the running event loop.

A loop that jumps to its next timer therefore moves every ``LoopClock`` with it: no part of Parley reads the
operating system's clock while a simulated call runs.
"""

import asyncio


class LoopClock:
    """Implementation of ``core.clock.Clock`` on ``loop.time()``.

    A clock stays with the loop in which it is first read, until that loop is closed. Looking the running loop
    up takes a system call each time (``getpid``, in Python 3.11), and a call reads its clocks some hundred
    times a second.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def now_us(self) -> int:
        loop = self._loop
        if loop is None or loop.is_closed():
            loop = self._loop = asyncio.get_running_loop()
        # Rounded to the nearest: a timer fires up to a rounding error early. A deadline in whole milliseconds
        # must have passed then, or its owner would sleep again for no time at all.
        return round(loop.time() * 1_000_000)

    def now_ms(self) -> int:
        return self.now_us() // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        await asyncio.sleep(max(0.0, deadline_ms / 1_000 - asyncio.get_running_loop().time()))
