"""Measure the cost of a simulated minute of talk.

``python -m tests.sim.minute`` prints the number of function calls and the seconds of processor time. Seconds
differ threefold between machines, and on one machine with the load of its host; they are only informative.
The number of function calls is the same everywhere. It runs in a process of its own, so that leftovers of
other tests (threads, log sinks) are not counted.
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
        # One-time work is not part of the minute.
        talk(folder)
        calls = counted_calls(folder)
        started_s = time.process_time()
        talk(folder)
        print(calls, time.process_time() - started_s)


if __name__ == "__main__":
    main()
