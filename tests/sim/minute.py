"""The cost of a simulated minute of talk.

``python -m tests.sim.minute`` prints calls of functions and seconds of processor time. Seconds are for
reading: they differ threefold between machines, and on one with what other guests of its host do. Calls are
the same everywhere. A process of its own, so that what other tests left behind (threads, log sinks) is not
counted.
"""

import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from tests.sim.call import silence, simulate, voice

MINUTE = [silence(500)] + [voice(1_500), silence(4_450)] * 10


def talk(folder: Path) -> None:
    call = simulate(MINUTE, folder, tail_ms=500)
    assert len(call.turns) == 10


def counted_calls(folder: Path) -> int:
    """Talk for a minute and return how many functions of Python and C were called."""
    calls = 0

    def count(_frame: FrameType, event: str, _about: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        talk(folder)
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # What is done once is not of the minute.
        talk(folder)
        calls = counted_calls(folder)
        started_s = time.process_time()
        talk(folder)
        print(calls, time.process_time() - started_s)


if __name__ == "__main__":
    main()
