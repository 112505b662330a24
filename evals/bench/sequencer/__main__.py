"""``python -m evals.bench sequencer``: events per second of a core, memory, delay from event to commit.

Two kinds of traffic run with the same settings: dense (five reports for each advance) and sparse (one report
for each two advances, as in a real conversation). A broken promise ends the run with one line and status 2,
whatever the speed.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from parley.evals.bench.sequencer.bench import measure
from parley.evals.bench.sequencer.traffic import LATENCY_US, Mix
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, markdown, run_command

# A conversation with partials, prosody windows and camera frames.
SPARSE_EVENTS_PER_S = 50


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.bench sequencer",
        description="Measure the speed, memory and commit delay of the sequencer, and check its order.",
    )
    root.add_argument("--events", type=positive, default=1_000_000, help="reports of the dense run")
    root.add_argument("--tick-ms", type=positive, default=10, help="session time between two advances")
    root.add_argument("--events-per-s", type=positive, default=500, help="reports per second of session time")
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root, with_table=False)
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
    sparse, sparse_events = replace(dense, events_per_s=SPARSE_EVENTS_PER_S), max(1, arguments.events // 20)
    say(f"dense traffic: {arguments.events:,} reports")
    dense_figures = measure(arguments.events, dense, arguments.seed, rss_at)
    say(f"sparse traffic: {sparse_events:,} reports")
    return {
        "dense": dense_figures,
        "sparse": measure(sparse_events, sparse, arguments.seed),
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
    head = ("traffic", "reports", "per second of a core", "of the clock", "each tick")
    rows = []
    for name in ("dense", "sparse"):
        figures = result[name]
        speeds = (f"{figures[key]:,}" for key in ("events", "events_per_s", "events_per_wall_s"))
        delays = (f"{figures['delay_us'][key] / 1000:.1f} ms" for key in ("p50", "p99", "max", "bound"))
        late = f"{figures['counts']['late']:,}"
        rows.append((name, *speeds, f"{figures['us_per_tick']} us", *delays, late))
    rss = ", ".join(
        f"{int(number):,} reports: {size / 2**20:.1f} MiB"
        for number, size in result["dense"]["rss_bytes"].items()
    )
    shown = markdown((*head, "delay p50", "p99", "max", "bound", "late"), rows)
    return f"{shown}\n\nmemory of the process after {rss}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: run(arguments), table)


if __name__ == "__main__":
    raise SystemExit(main())
