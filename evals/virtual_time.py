"""Event loop whose clock jumps to the next timer instead of waiting for it: for simulations.

``run`` gives a coroutine such a loop. While it runs, ``time.time`` and ``time.monotonic`` follow the loop
too, so that Pipecat, which reads them, lives on the same clock. Threads do not: jobs for an executor run
inline.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")

# A Monday in 2026, so that nothing depends on the day of the run.
EPOCH_S = 1_767_600_000.0

# Beginning of the loop's time. Not zero: Pipecat takes a clock that reads zero for one that was not started.
START_S = 1_000.0

# A task that never sleeps may wait for a thread: the operating system is polled at least this often.
ASK_EVERY = 16


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S
        self._unasked = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        # While something is ready to run, polling the operating system is not needed. It is polled before
        # time moves.
        if timeout == 0:
            self._unasked += 1
            if self._unasked < ASK_EVERY:
                return []
        self._unasked = 0
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Loop that runs timers in order without waiting."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        # Timers may lie a rounding error ahead of the time that was jumped to.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._jumping.now_s

    def stand_still(self, for_s: float) -> None:
        """Let time pass in which nothing runs, as while the host stops the process."""
        self._jumping.now_s += for_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run inline: a thread would not follow this loop's time."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run ``scenario`` to its end on virtual time and return its result."""
    loop = VirtualLoop()
    time_follows = patch.multiple(
        time,
        time=lambda: EPOCH_S + loop.time(),
        time_ns=lambda: int((EPOCH_S + loop.time()) * 1_000_000_000),
        monotonic=loop.time,
        monotonic_ns=lambda: int(loop.time() * 1_000_000_000),
    )
    with time_follows, asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(scenario)
