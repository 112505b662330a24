"""``python -m evals.echo``: measure echo control on simulated speakerphones. A simulator result.

Reported are echo loss, voice activity on the caller in double talk, self-interruptions of call starts,
barge-in during the greeting, and processor time. Rooms, levels and voices are drawn from the seed, which is
printed.
"""

import argparse
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from parley.core.errors import ConfigError
from parley.evals.echo.calls import ROWS
from parley.evals.echo.measure import DELAYS_MS, DRIFTS_PPM, Ears, begin, double_talk, scenes, starts
from parley.evals.harness.command import count, machine, quiet_log
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, markdown, run_command

ECHO_HEAD = (
    *("row", "calls", "ERLE first second", "steady", "after double talk", "VAD recall in double talk"),
    *("VAD on echo", "CPU per 10 ms"),
)
STARTS_HEAD = (
    *("row", "call starts", "with voice activity", "self-interruptions", "barge-ins", "found within 1 s"),
    *("latency p50", "p95", "max"),
)
FIGURES = ("erle_first_second_db", "erle_steady_db", "erle_after_double_talk_db", "vad_recall", "vad_on_echo")


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.echo",
        description="Measure echo control on simulated speakerphones.",
    )
    scene_count = len(DELAYS_MS) * len(DRIFTS_PPM)
    root.add_argument(
        "--rooms", type=count, default=2, help=f"rooms, each with {scene_count} delays and drifts"
    )
    root.add_argument("--starts", type=count, default=100, help="call starts without a caller's voice")
    root.add_argument("--barge-ins", type=count, default=30, help="call starts with a caller's voice")
    root.add_argument("--rows", default=",".join(ROWS), help="rows to measure, separated by commas")
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root, with_table=False)
    return root


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the requested measurements.

    Raises:
        AgentError: an engine is missing or failed.
        ConfigError: an unknown row.
    """
    rows = tuple(arguments.rows.split(","))
    if not set(rows) <= set(ROWS):
        raise ConfigError(f"unknown row in {arguments.rows!r}", known=tuple(ROWS))
    ears = Ears()
    load_before = os.getloadavg()
    calls: list[dict[str, Any]] = []
    progress = Progress("double talk", arguments.rooms * len(DELAYS_MS) * len(DRIFTS_PPM))
    for scene in scenes(arguments.seed, arguments.rooms):
        calls += double_talk(scene, ears, rows)
        progress.step()
    result: dict[str, Any] = {
        "kind": "simulator",
        "seed": arguments.seed,
        "rows": {row: _summary([one for one in calls if one["row"] == row]) for row in rows},
        "starts": {row: _self_interruptions(arguments, ears, row) for row in rows},
        "barge_in": {row: _barge_ins(arguments, ears, row) for row in rows},
        "calls": calls,
        "machine": {
            **machine(),
            "load_before": [round(load, 2) for load in load_before],
            "load_after": [round(load, 2) for load in os.getloadavg()],
        },
    }
    return result


def _summary(calls: list[dict[str, Any]]) -> dict[str, Any]:
    if not calls:
        return {"calls": 0}
    figures: dict[str, Any] = {"calls": len(calls)}
    for name in FIGURES:
        values = [one[name] for one in calls]
        figures[name] = {
            "min": round(min(values), 3),
            "p50": round(float(np.median(values)), 3),
            "mean": round(float(np.mean(values)), 3),
            "max": round(max(values), 3),
        }
    figures["cpu_us_per_10_ms"] = round(float(np.mean([one["cpu_us_per_10_ms"] for one in calls])), 1)
    return figures


def _self_interruptions(arguments: argparse.Namespace, ears: Ears, row: str) -> dict[str, Any]:
    """Count self-interruptions without and with the self-voice check."""
    progress = Progress(f"call starts, {row}", arguments.starts)
    heard = []
    for one in starts(arguments.seed, arguments.starts, with_caller=False):
        heard.append(begin(one, ears, row))
        progress.step()
    return {
        "starts": len(heard),
        "voice_activity": sum(bool(one) for one in heard),
        "self_interruptions": sum(any(not is_own for _, is_own in one) for one in heard),
    }


def _barge_ins(arguments: argparse.Namespace, ears: Ears, row: str) -> dict[str, Any]:
    """Measure a caller's first voice in the greeting: detections within 1 s, their latency, and earlier
    reports.
    """
    latencies: list[int] = []
    early = 0
    progress = Progress(f"barge-ins, {row}", arguments.barge_ins)
    for start in starts(arguments.seed, arguments.barge_ins, with_caller=True):
        began_ms = start.near_at_ms or 0
        heard = [at_ms for at_ms, is_own in begin(start, ears, row) if not is_own]
        early += any(at_ms < began_ms for at_ms in heard)
        found = [at_ms - began_ms for at_ms in heard if 0 <= at_ms - began_ms <= 1_000]
        latencies += found[:1]
        progress.step()
    return {
        "barge_ins": arguments.barge_ins,
        "found_within_1_s": len(latencies),
        "self_interrupted_before": early,
        "latency_ms": {
            "p50": round(float(np.percentile(latencies, 50))) if latencies else None,
            "p95": round(float(np.percentile(latencies, 95))) if latencies else None,
            "max": max(latencies, default=None),
        },
    }


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown tables."""
    rows = []
    for row, figures in result["rows"].items():
        if not figures["calls"]:
            continue
        first, steady, after, recall = (
            f"{figures[name]['min']:{form}} ({figures[name]['p50']:{form}})"
            for name, form in zip(FIGURES, (".1f", ".1f", ".1f", ".2f"), strict=False)
        )
        on_echo = f"{figures['vad_on_echo']['max']:.3f} ({figures['vad_on_echo']['p50']:.3f})"
        cpu = f"{figures['cpu_us_per_10_ms']:.0f} us"
        rows.append(
            (row, figures["calls"], f"{first} dB", f"{steady} dB", f"{after} dB", recall, on_echo, cpu)
        )
    begun = []
    for row, counts in result["starts"].items():
        cut = result["barge_in"][row]
        counted = (counts[name] for name in ("starts", "voice_activity", "self_interruptions"))
        times = (str(cut["latency_ms"][key]) for key in ("p50", "p95", "max"))
        begun.append((row, *counted, cut["barge_ins"], cut["found_within_1_s"], *times))
    return (
        f"simulated speakerphones, seed {result['seed']}; worst (median) of the calls\n\n"
        f"{markdown(ECHO_HEAD, rows)}\n\n{markdown(STARTS_HEAD, begun)}\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    quiet_log()
    return run_command(arguments, lambda: run(arguments), table)


if __name__ == "__main__":
    raise SystemExit(main())
