"""``python -m evals.sequencer``: events per second on one core, memory, and the delay from event to commit.

Two kinds of traffic run with the same settings: dense (five reports for each advance) and sparse (one report
for each two advances, as in a real conversation). A broken promise ends the run with one line and status 2,
whatever the speed.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parley.core.errors import AgentError
from parley.evals.harness.command import machine, positive
from parley.evals.sequencer.bench import measure
from parley.evals.sequencer.traffic import LATENCY_US, Mix

# A conversation with partials, prosody windows and camera frames.
SPARSE_EVENTS_PER_S = 50


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.sequencer",
        description="Measure the speed, memory and commit delay of the sequencer, and check its order.",
    )
    root.add_argument("--events", type=positive, default=1_000_000, help="reports of the dense run")
    root.add_argument("--tick-ms", type=positive, default=10, help="session time between two advances")
    root.add_argument("--events-per-s", type=positive, default=500, help="reports per second of session time")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    return root


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the measurements.

    Raises:
        AgentError: the sequencer broke a promise.
    """
    load_before = os.getloadavg()
    dense = Mix(events_per_s=arguments.events_per_s, tick_us=1_000 * arguments.tick_ms)
    # A tenth is late enough for every buffer to have its size and early enough to show the growth of the run.
    rss_at = (max(1, arguments.events // 10), arguments.events)
    results = {
        "dense": measure(arguments.events, dense, arguments.seed, rss_at),
        "sparse": measure(
            max(1, arguments.events // 20), replace(dense, events_per_s=SPARSE_EVENTS_PER_S), arguments.seed
        ),
    }
    return {
        **results,
        "streams": LATENCY_US,
        "seed": arguments.seed,
        "machine": {
            **machine(),
            "load_before": [round(load, 2) for load in load_before],
            "load_after": [round(load, 2) for load in os.getloadavg()],
        },
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| traffic | reports | per second of a core | of the clock | each tick "
        "| delay p50 | p99 | max | bound | late |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ("dense", "sparse"):
        figures = result[name]
        delays = " | ".join(
            f"{figures['delay_us'][key] / 1000:.1f} ms" for key in ("p50", "p99", "max", "bound")
        )
        lines.append(
            f"| {name} | {figures['events']:,} | {figures['events_per_s']:,} "
            f"| {figures['events_per_wall_s']:,} | {figures['us_per_tick']} us | {delays} "
            f"| {figures['counts']['late']:,} |"
        )
    rss = ", ".join(
        f"{int(number):,} reports: {size / 2**20:.1f} MiB"
        for number, size in result["dense"]["rss_bytes"].items()
    )
    return "\n".join([*lines, "", f"memory of the process after {rss}"]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    try:
        result = run(arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    except (AgentError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(table(result), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
