"""The processor time that a simulated minute of talk takes, in seconds: ``python -m tests.sim.minute``.

A process of its own, so that what other tests left behind (threads, log sinks, memory to be collected) is not
counted. The least of two, as ``timeit`` does: what else the machine runs only ever adds to it.
"""

import tempfile
import time
from pathlib import Path

from tests.sim.call import silence, simulate, voice

MINUTE = [silence(500)] + [voice(1_500), silence(4_450)] * 10


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulate(MINUTE[:3], Path(folder))
        spent_s = []
        for _ in range(2):
            started = time.process_time()
            call = simulate(MINUTE, Path(folder), tail_ms=500)
            spent_s.append(time.process_time() - started)
            assert len(call.turns) == 10
    print(min(spent_s))


if __name__ == "__main__":
    main()
