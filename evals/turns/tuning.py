"""``python -m evals.turns.tuning``: measure the tuning calls of ``evals.turns --audio``.

Writes ``tuning.json``: for each pause of the tuning seed's callers, who speak the tuning sentences, the
model's log odds at each look and the recognised words. It is committed, so that an audio run measures the
reported calls alone. It must be written anew when an engine, a voice, a text or a mark changes.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from parley.evals.command import positive
from parley.evals.turns import audio
from parley.evals.turns.calibration import SEED
from parley.evals.turns.callers import CallSpec, generate

SPEC = CallSpec(callers=40, turns=12)
MARKS = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    root = argparse.ArgumentParser(prog="python -m evals.turns.tuning")
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    root.add_argument("--out", type=Path, default=audio.TUNING)
    root.add_argument("--callers", type=positive, default=SPEC.callers)
    root.add_argument("--turns", type=positive, default=SPEC.turns)
    arguments = root.parse_args(argv)
    began = time.monotonic()
    spec = CallSpec(callers=arguments.callers, turns=arguments.turns)
    calls = list(generate(spec, SEED))
    measured, lags = audio.measure_in_processes(
        calls, spec, seed=SEED, marks=MARKS, processes=arguments.processes
    )
    audio.save(arguments.out, measured, lags)
    print(f"{lags.pieces} pauses of {len(calls)} callers in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
