"""Program whose wall clock another process sets: ``python -m evals.abuse.shifted_clock FILE PROGRAM ...``.

``time.time`` and ``time.time_ns`` of the program are shifted by the seconds in a file; ``shift`` changes them
at any moment. The shift is done in Python, because a library that is loaded before the C library needs a
compiler. Times of the C library itself (file times, SQLite's own functions) stay right; the session store
does not use them.
"""

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

SECONDS = struct.Struct("d")
NS_PER_S = 1_000_000_000


def shift(file: Path, seconds: float) -> None:
    """Set the clock of a program ahead by ``seconds``; create the file when it is missing."""
    with file.open("r+b" if file.exists() else "wb") as output:
        output.write(SECONDS.pack(seconds))


def main(file: Path, program: list[str]) -> None:
    """Run a program with the clock of a file."""
    with file.open("rb") as shifted:
        ahead = mmap.mmap(shifted.fileno(), SECONDS.size, access=mmap.ACCESS_READ)
    right_s, right_ns = time.time, time.time_ns
    time.time = lambda: right_s() + SECONDS.unpack_from(ahead)[0]
    time.time_ns = lambda: right_ns() + round(SECONDS.unpack_from(ahead)[0] * NS_PER_S)
    sys.argv = program
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
