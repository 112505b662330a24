"""``python -m research.turn_taking.patience``: the frontier of ``evals.turns`` on the tuning side.

The default of ``hearing.endpoint.patience`` is the lowest at which at most 10 % of these holds are cut. A
frontier on the report side is printed by ``python -m evals.turns.frontier``.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from parley.evals.harness.command import exit_code, positive
from parley.evals.turns import frontier
from parley.evals.turns.callers import replayed
from research.turn_taking import tuning, tuning_callers

REPLAY_SEED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.patience")
    root.add_argument("--keep", type=Path, help="folder for the measurements; existing ones are reused")
    root.add_argument("--learn", action="store_true", help="let the predictive policy adapt to its caller")
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    arguments = root.parse_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    """Measure, run the policies and print.

    Raises:
        AgentError: recordings were not fetched, weights are missing, or a set has no pauses.
    """
    sets = (
        ("scripted", tuning.SPEC, tuning_callers.scripted()),
        (
            "people",
            tuning_callers.PEOPLE,
            tuning_callers.people(processes=arguments.processes, kept=arguments.keep),
        ),
    )
    pooled, result = [], {}
    for name, spec, calls in sets:
        pooled += replayed(calls, spec, seed=REPLAY_SEED, times=frontier.REPLAYS)
        replays = pooled[-frontier.REPLAYS * len(calls) :]
        result[name] = frontier.of_set(name, replays, spec, learn=arguments.learn)
    result["all"] = frontier.of_set("all", pooled, tuning.SPEC, learn=arguments.learn)
    print(frontier.report(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
