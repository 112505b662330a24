"""Digests of the decisions about voices over the bot in seeded calls, to compare: ``python -m
tests.sim.traces``.

``--write FILE`` records the calls, ``--compare FILE`` holds them again and names those that differ, and
``--show KIND SEED`` prints one. A change of the code that is not meant to change decisions leaves all digests
as it was.

There are two kinds of call, both on virtual time. ``machine`` is ``BargeIn`` alone, with inputs in any order
and its visible state after each step. ``shell`` is the start strategy and the stop strategy as a user
aggregator drives them, with the real spotter and looks around scripted engines. Its caller talks, hums,
coughs and falls silent at random; its bot answers, is cut and goes on. The trace has every event of the call,
the volume, turns, interruptions and pushed frames, each with its microsecond.
"""

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from loguru import logger

from tests.sim.trace_call import shell_trace
from tests.sim.trace_machine import machine_trace

KINDS: dict[str, Callable[[random.Random], list[str]]] = {"machine": machine_trace, "shell": shell_trace}
DIGEST_LENGTH = 16


def traced(kind: str, seed: int) -> list[str]:
    """Return the trace of one call, line by line."""
    return KINDS[kind](random.Random(f"{kind} {seed}"))


def digest(lines: list[str]) -> str:
    """Return the digest of a trace."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGEST_LENGTH]


def recorded(calls: int) -> dict[str, list[str]]:
    """Return the digests of a number of calls of each kind, in the order of their seeds."""
    return {kind: [digest(traced(kind, seed)) for seed in range(calls)] for kind in KINDS}


def differing(before: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """Return the kind and seed of each call that both have and whose digests differ."""
    return [
        f"{kind} {seed}"
        for kind in KINDS
        for seed, (old, new) in enumerate(zip(before[kind], now[kind], strict=False))
        if old != new
    ]


def main() -> int:
    """Run the command; 1 when a call differs."""
    root = argparse.ArgumentParser(prog="python -m tests.sim.traces")
    root.add_argument("--calls", type=int, default=500)
    root.add_argument("--write", type=Path)
    root.add_argument("--compare", type=Path)
    root.add_argument("--show", nargs=2, metavar=("KIND", "SEED"))
    root.add_argument("--count", action="store_true", help="what the calls have of each kind of line")
    arguments = root.parse_args()
    logger.remove()
    if arguments.show:
        kind, seed = arguments.show
        print("\n".join(traced(kind, int(seed))))
        return 0
    if arguments.count:
        for kind in KINDS:
            lines = Counter(line.split()[1] for seed in range(arguments.calls) for line in traced(kind, seed))
            print(kind, json.dumps(dict(lines.most_common()), indent=1))
        return 0
    now = recorded(arguments.calls)
    if arguments.write:
        arguments.write.write_text(json.dumps(now) + "\n")
    if not arguments.compare:
        return 0
    before = json.loads(arguments.compare.read_text())
    found = differing(before, now)
    compared = sum(min(len(before[kind]), len(now[kind])) for kind in KINDS)
    print(f"{compared} calls compared, {len(found)} differ: {', '.join(found[:40])}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
