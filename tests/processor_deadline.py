"""Deadline of processor time for work that must be linear in its input.

It ends what hangs and measures nothing: an input is long enough that work which grows with its square would
take minutes, and linear work takes a small part of the deadline on any machine.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

DEADLINE_S = 10.0


@contextmanager
def processor_deadline(limit_s: float = DEADLINE_S) -> Iterator[None]:
    """End the block with an error when this process has computed for ``limit_s`` in it.

    Time in which other processes run does not count. Regular expressions look for signals as they search, so
    that an endless search is ended as well.

    Raises:
        TimeoutError: the block computed for longer.
    """

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it has computed for {limit_s:g} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
