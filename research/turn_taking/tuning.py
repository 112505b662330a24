"""``python -m research.turn_taking.tuning``: measure the tuning calls, on which weights are fitted.

Writes ``tuning.json``: for each pause of the tuning seed's callers, who speak the tuning sentences, the
model's log odds at each look and the recognised words. It is committed, so that a fit takes seconds. It must
be written anew when an engine, a voice, a text or a mark changes.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from parley.evals.harness.command import positive
from research.turn_taking import synthetic_speech
from research.turn_taking.simulated_callers import TUNING_SEED, SimulationSpec, generate

SPEC = SimulationSpec(callers=40, turns=12)
MARKS = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.tuning")
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    root.add_argument("--out", type=Path, default=synthetic_speech.TUNING)
    root.add_argument("--callers", type=positive, default=SPEC.callers)
    root.add_argument("--turns", type=positive, default=SPEC.turns)
    arguments = root.parse_args(argv)
    began = time.monotonic()
    spec = SimulationSpec(callers=arguments.callers, turns=arguments.turns)
    calls = list(generate(spec, TUNING_SEED))
    measured, lags = synthetic_speech.measure_in_processes(
        calls, spec, seed=TUNING_SEED, marks=MARKS, processes=arguments.processes
    )
    synthetic_speech.save(arguments.out, measured, lags)
    print(f"{lags.pieces} pauses of {len(calls)} callers in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
