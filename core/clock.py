"""Clock of a session.

Defines what time means and decides nothing. Every pure core takes times as arguments; every edge reads a
``Clock``. ``runtime.loop_clock.LoopClock`` reads the running event loop. A loop whose selector jumps to the
next timer (``tests.virtual_time``) therefore runs a whole call on virtual time.
"""

from typing import Protocol


class Clock(Protocol):
    """Monotonic session time.

    Wall-clock time is for what leaves the process (log lines, file names, records) and is not read here.
    """

    def now_us(self) -> int:
        """Return microseconds since an arbitrary, fixed origin."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since the same origin, rounded down."""
        ...

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        """Return at ``deadline_ms`` or, when that has passed, at the next iteration of the loop."""
        ...
