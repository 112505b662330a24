"""``python -m evals.bench duplex_jitter``: the clock of full duplex, on a mocked engine.

The processor is the real one.

    python -m evals.bench duplex_jitter jitter --sessions 50 --unit-ms 80 --seconds 60
    python -m evals.bench duplex_jitter finalize
    python -m evals.bench duplex_jitter slow --factor 1.5
    python -m evals.bench duplex_jitter drift --minutes 10
    python -m evals.bench duplex_jitter drift --minutes 30 --virtual
    python -m evals.bench duplex_jitter log FILE...

Prints one JSON object. ``log`` reads the files that calls have written (``duplex.tick_log``).
"""

import argparse
import asyncio
import gc
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.core.errors import MediaError
from parley.evals import virtual_time
from parley.evals.bench.duplex_jitter.figures import drift, lateness, left_out, result_times, spread
from parley.evals.bench.duplex_jitter.line import Line, Mock, hold
from parley.evals.bench.duplex_jitter.reading import read_ticks
from parley.evals.harness.command import exit_code, machine, positive, positive_number, quiet_log
from parley.evals.harness.progress import say
from parley.evals.harness.report import as_json
from parley.runtime import event_loop


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m evals.bench duplex_jitter", description="Measure the clock of full duplex."
    )
    parts = parser.add_subparsers(dest="part", required=True)
    jitter = parts.add_parser(
        "jitter", help="measure how late units begin, with many sessions in one process"
    )
    jitter.add_argument("--sessions", type=positive, default=50)
    jitter.add_argument("--unit-ms", type=positive, default=80)
    jitter.add_argument("--seconds", type=positive_number, default=60)
    jitter.add_argument("--seed", type=int, default=1)
    finalize = parts.add_parser(
        "finalize", help="measure how much finalize delays the result, deferred or not"
    )
    finalize.add_argument("--cost-ms", type=positive_number, default=20)
    finalize.add_argument("--finalize-ms", type=positive_number, default=37)
    finalize.add_argument("--seconds", type=positive_number, default=20)
    slow = parts.add_parser("slow", help="measure an engine that takes longer than a unit for each unit")
    slow.add_argument("--factor", type=positive_number, default=1.5)
    slow.add_argument("--unit-ms", type=positive, default=80)
    slow.add_argument("--seconds", type=positive_number, default=30)
    away = parts.add_parser("drift", help="compare sent with due audio over one long stretch of speech")
    away.add_argument("--minutes", type=positive_number, default=10)
    away.add_argument("--unit-ms", type=positive, default=80)
    away.add_argument("--virtual", action="store_true", help="use a virtual clock")
    log = parts.add_parser("log", help="summarise the tick logs of calls")
    log.add_argument("files", type=Path, nargs="+")
    return parser


async def _hold_many(sessions: int, mock: Mock, duration_s: float, *, seed: int) -> list[Line]:
    """Run sessions that begin at random times within two units, as calls do."""
    rng = random.Random(seed)
    offsets_s = [rng.uniform(0, 2 * mock.unit_ms / 1000) for _ in range(sessions)]
    # Garbage of the start is collected before the first session, as in a server.
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 500)
    return list(await asyncio.gather(*(hold(mock, duration_s, offset_s=offset_s) for offset_s in offsets_s)))


def _jitter(options: argparse.Namespace) -> dict[str, Any]:
    mock = Mock(options.unit_ms, cost_ms=1.0, speaks=lambda unit: unit % 50 < 25)
    say(f"{options.sessions} sessions for {options.seconds:.0f} s")
    lines = event_loop.run(_hold_many(options.sessions, mock, options.seconds, seed=options.seed))
    return {
        "sessions": options.sessions,
        "unit_ms": options.unit_ms,
        "late_ms": lateness(lines).as_dict(),
        "missed": sum(tick.missed for line in lines for tick in line.ticks),
        "holes": sum(line.holes for line in lines),
    }


def _finalize(options: argparse.Namespace) -> dict[str, Any]:
    mock = Mock(cost_ms=options.cost_ms, finalize_ms=options.finalize_ms)
    found = {}
    for name, deferred in (("deferred", True), ("in_line", False)):
        say(f"finalize {name}: {options.seconds:.0f} s")
        line = event_loop.run(hold(mock, options.seconds, deferred=deferred))
        found[name] = result_times([line]).as_dict()
    saved_ms = found["in_line"]["p50"] - found["deferred"]["p50"]
    return {"result_ms": found, "saved_p50_ms": round(saved_ms, 2)}


def _slow(options: argparse.Namespace) -> dict[str, Any]:
    mock = Mock(options.unit_ms, cost_ms=options.factor * options.unit_ms)
    say(f"an engine {options.factor} times too slow for {options.seconds:.0f} s")
    line = event_loop.run(hold(mock, options.seconds))
    return {"factor": options.factor, **left_out([line], options.unit_ms)}


def _drift(options: argparse.Namespace) -> dict[str, Any]:
    mock = Mock(options.unit_ms, speaks=lambda _unit: True, sleeps=not options.virtual)
    run = virtual_time.run if options.virtual else event_loop.run
    say(f"{options.minutes} {'virtual ' * options.virtual}minutes of speech")
    line = run(hold(mock, options.minutes * 60))
    return {"minutes": options.minutes, "virtual": options.virtual, **drift(line, options.unit_ms).as_dict()}


def _log(options: argparse.Namespace) -> dict[str, Any]:
    calls = []
    for path in options.files:
        head, units = read_ticks(path)
        ticks = list(units)
        votes = Counter(str(tick["vote"]) for tick in ticks)
        calls.append(
            {
                **{name: value for name, value in head.items() if name != "kind"},
                "units": len(ticks),
                "votes": dict(votes),
                "late_ms": spread([_number(tick, "late_us") for tick in ticks]).as_dict() if ticks else None,
                "took_ms": spread([_number(tick, "took_us") for tick in ticks]).as_dict() if ticks else None,
                "missed": sum(_number(tick, "missed") for tick in ticks),
                "said_s": round(sum(_number(tick, "said_ms") for tick in ticks) / 1000, 2),
            }
        )
    return {"calls": calls}


def _number(tick: dict[str, object], name: str) -> float:
    value = tick.get(name)
    if not isinstance(value, int | float):
        raise MediaError(f"a tick has no {name}")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    options = _parser().parse_args(argv)
    quiet_log()
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    parts = {"jitter": _jitter, "finalize": _finalize, "slow": _slow, "drift": _drift, "log": _log}
    found = parts[options.part](options)
    if options.part != "log":
        found["machine"] = machine()
    print(as_json(found), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
