"""``python -m evals.echo``: measure echo control on simulated speakerphones. A simulator result.

Reported are echo loss, voice activity on the caller in double talk, self-interruptions of call starts,
barge-in during the greeting, and processor time. Rooms, levels and voices are drawn from the seed, which is
printed.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from loguru import logger

from parley.core.errors import AgentError
from parley.evals.echo.calls import ROWS
from parley.evals.echo.measure import DELAYS_MS, DRIFTS_PPM, Ears, begin, double_talk, scenes, starts
from parley.evals.harness.command import count, machine

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
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    return root


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the requested measurements.

    Raises:
        AgentError: an engine is missing or failed.
        ValueError: an unknown row.
    """
    rows = tuple(arguments.rows.split(","))
    if not set(rows) <= set(ROWS):
        raise ValueError(f"unknown row in {arguments.rows!r} (known: {', '.join(ROWS)})")
    ears = Ears()
    load_before = os.getloadavg()
    calls = [
        one for scene in scenes(arguments.seed, arguments.rooms) for one in double_talk(scene, ears, rows)
    ]
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
    heard = [begin(one, ears, row) for one in starts(arguments.seed, arguments.starts, with_caller=False)]
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
    for start in starts(arguments.seed, arguments.barge_ins, with_caller=True):
        began_ms = start.near_at_ms or 0
        heard = [at_ms for at_ms, is_own in begin(start, ears, row) if not is_own]
        early += any(at_ms < began_ms for at_ms in heard)
        found = [at_ms - began_ms for at_ms in heard if 0 <= at_ms - began_ms <= 1_000]
        latencies += found[:1]
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
    lines = [
        f"simulated speakerphones, seed {result['seed']}; worst (median) of the calls",
        "",
        "| row | calls | ERLE first second | steady | after double talk | VAD recall in double talk "
        "| VAD on echo | CPU per 10 ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, figures in result["rows"].items():
        if not figures["calls"]:
            continue
        first, steady, after, recall = (
            f"{figures[name]['min']:{form}} ({figures[name]['p50']:{form}})"
            for name, form in zip(FIGURES, (".1f", ".1f", ".1f", ".2f"), strict=False)
        )
        on_echo = figures["vad_on_echo"]
        lines.append(
            f"| {row} | {figures['calls']} | {first} dB | {steady} dB | {after} dB | {recall} "
            f"| {on_echo['max']:.3f} ({on_echo['p50']:.3f}) | {figures['cpu_us_per_10_ms']:.0f} us |"
        )
    lines += [
        "",
        "| row | call starts | with voice activity | self-interruptions | barge-ins | found within 1 s "
        "| latency p50 | p95 | max |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row, begun in result["starts"].items():
        cut = result["barge_in"][row]
        times = " | ".join(str(cut["latency_ms"][key]) for key in ("p50", "p95", "max"))
        lines.append(
            f"| {row} | {begun['starts']} | {begun['voice_activity']} | {begun['self_interruptions']} "
            f"| {cut['barge_ins']} | {cut['found_within_1_s']} | {times} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    try:
        result = run(arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    except (AgentError, OSError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(table(result), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
