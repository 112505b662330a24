"""The one clock of a session.

Decides nothing: it names what time means. Every pure core takes times as arguments; every edge asks a
``Clock``. ``runtime.loop_clock.LoopClock`` reads the running event loop, so that a loop whose selector jumps
to the next timer (``tests.virtual_time``) makes a whole call run on virtual time.
"""

from typing import Protocol


class Clock(Protocol):
    """Monotonic session time.

    Wall-clock time is for what leaves the process (log lines, file names, records) and is not read here.
    """

    def now_us(self) -> int:
        """Microseconds since an arbitrary origin that does not move."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the same origin, rounded down."""
        ...

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        """Return at ``deadline_ms`` or, when that has passed, at the next turn of the loop."""
        ...
