"""``python -m evals.soak --hours 2``: measure the growth of a server with a line that is always up.

The command starts a server that samples itself and keeps one line up for ``--hours``. Meanwhile short calls
over WebRTC (cascade and full duplex), the telephone and a socket begin and end, and so do typed turns. It
then fits the slopes of resident memory, threads, descriptors, tasks, objects and the database, and those of
the latencies of typed answers and phone greetings, each with its 95 % confidence, after a warm-up of a
quarter of the run. Then all callers hang up, and the last samples show how much is given back. The database
holds every session, so it grows with the calls. Status 1: a quantity grows by more than ``LIMITS``, or the
run was too short to tell. Faults end the run with one line and status 2.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from parley.configs.load import read_yaml
from parley.core.errors import PeerError
from parley.evals.harness.command import exit_code, machine, positive, positive_number
from parley.evals.harness.launcher import ROOT, child, launched
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, check_outputs, markdown, publish
from parley.evals.soak.callers import CALLS
from parley.evals.soak.slopes import Slope, Verdict, slope

# For an hour. Memory: the growth of a server with pauses between its calls, in which it collected garbage (7
# MB). The others do not grow: the 95 % confidence of a soak of an hour, rounded up (1.8, 0.5 and 3.4).
LIMITS: Mapping[str, float] = {"rss_mb": 7.0, "threads": 2.0, "descriptors": 1.0, "tasks": 4.0}
QUANTITIES = (*LIMITS, "objects")
SETTLE_S = 30.0
SERVER = ("-m", "parley.evals.harness.product_server")


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.soak",
        description="Measure the growth of a server that is never idle.",
    )
    root.add_argument(
        "--hours", type=positive_number, default=1.0, help="duration; half an hour is too short"
    )
    root.add_argument(
        "--at-a-time", type=positive, default=2, help="concurrent short calls in addition to the long one"
    )
    root.add_argument("--kinds", nargs="+", choices=sorted(CALLS), default=sorted(CALLS))
    root.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    root.add_argument(
        "--faked",
        action="store_true",
        help="fake voice activity detection and the voice, so that they cost nothing",
    )
    root.add_argument("--every-s", type=positive_number, default=5.0, help="interval between samples")
    root.add_argument("--out-dir", type=Path, default=Path("out/soak"))
    add_outputs(root, with_table=False)
    return root


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Soak one server; return the JSON.

    Raises:
        AgentError: the server does not start, or no call was held.
    """
    folder = arguments.out_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    deployment, samples, log = folder / "soak.yaml", folder / "samples.jsonl", folder / "server.log"
    deployment.write_text(yaml.safe_dump(_deployment(ROOT / arguments.config)))
    for old in folder.glob("sessions.db*"):
        old.unlink(missing_ok=True)
    given = ["--config", str(deployment), "--samples", str(samples), "--every-s", str(arguments.every_s)]
    given += ["--faked"] * arguments.faked
    store = {"PARLEY_STORE_URL": f"sqlite:///{folder}/sessions.db"}
    async with launched(SERVER, log, *given, environment=store) as server:
        say(f"calls for {arguments.hours:g} hours; samples are in {samples}")
        sizes: list[tuple[float, float]] = []
        sizing = asyncio.create_task(_follow_sizes(folder, arguments.every_s, sizes), name="soak.sizes")
        try:
            calls = await _call(server.url, arguments)
        finally:
            sizing.cancel()
        busy = len(samples.read_text().splitlines())
        say(f"no calls for {SETTLE_S:.0f} s")
        await asyncio.sleep(SETTLE_S)
        taken = [json.loads(line) for line in samples.read_text().splitlines()]
    if not sum(calls["held"].values()):
        raise PeerError(f"every call failed: {calls['failed']}; see {log}")
    seconds = [each["at_s"] for each in taken[:busy]]
    try:
        slopes = {name: slope(seconds, [each[name] for each in taken[:busy]]) for name in QUANTITIES}
    except ValueError as error:
        raise PeerError(f"the run was too short: {error}") from error
    series = {"database_mb": sizes, **{f"{kind}_ms": each for kind, each in calls.pop("latencies").items()}}
    for name, measured in series.items():
        # A short run has few calls of a kind: it has no slope of their latency.
        with suppress(ValueError):
            slopes[name] = slope([at_s for at_s, _ in measured], [value for _, value in measured])
    verdicts = {name: slopes[name].verdict(limit) for name, limit in LIMITS.items()}
    return {
        "calls": calls,
        "hours": arguments.hours,
        "database_kb_per_call": _per_call(sizes, calls["held"]),
        "slopes": {name: _figures(each) for name, each in slopes.items()},
        "collections": {
            key: taken[busy - 1][key] for key in ("collections", "longest_collection_ms", "collected")
        },
        "idle": {name: round(taken[-1][name], 1) for name in QUANTITIES},
        "grows": [name for name, each in slopes.items() if each.grows],
        "verdicts": verdicts,
        "met": all(verdict is Verdict.MET for verdict in verdicts.values()),
        "machine": machine(),
    }


def _deployment(config: Path) -> dict[str, Any]:
    """Return the deployment with a telephone that checks no signatures, for callers of this machine."""
    given = read_yaml(config)
    return {
        **given,
        "phone": {"signatures": False},
        # A call that is refused cannot leak anything.
        "server": {**given.get("server", {}), "sessions_per_minute": 10_000, "admission": "off"},
    }


async def _call(url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    command = (url, "--seconds", str(arguments.hours * 3_600), "--at-a-time", str(arguments.at_a_time))
    async with child("parley.evals.soak.callers", *command, "--kinds", *arguments.kinds) as process:
        output, _ = await process.communicate()
    lines = output.decode().strip().splitlines()
    if process.returncode or not lines:
        raise PeerError(f"the callers ended with {process.returncode}")
    calls: dict[str, Any] = json.loads(lines[-1])
    return calls


async def _follow_sizes(folder: Path, every_s: float, sizes: list[tuple[float, float]]) -> None:
    """Append the size of the session store in MB, with its time, until cancelled."""
    while True:
        sizes.append((time.monotonic(), await asyncio.to_thread(_size_mb, folder)))
        await asyncio.sleep(every_s)


def _size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("sessions.db*")) / 1e6


def _per_call(sizes: Sequence[tuple[float, float]], held: Mapping[str, int]) -> float | None:
    """Return the growth of the store for each call; None without any."""
    calls = sum(held.values())
    return round((sizes[-1][1] - sizes[0][1]) * 1000 / calls, 1) if sizes and calls else None


def _figures(fitted: Slope) -> dict[str, float]:
    return {
        "per_hour": round(fitted.per_hour, 1),
        "within": round(fitted.within, 1),
        "first": round(fitted.first, 1),
        "last": round(fitted.last, 1),
        "largest": round(fitted.largest, 1),
    }


def table(found: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    head = ("", "begins at", "ends at", "largest", "an hour", "limit", "verdict")
    rows = [
        (
            *(name, each["first"], each["last"], each["largest"]),
            *(f"{each['per_hour']:+} ± {each['within']}", LIMITS.get(name, "")),
            found["verdicts"].get(name, ""),
        )
        for name, each in found["slopes"].items()
    ]
    rest = {
        key: found[key]
        for key in ("calls", "database_kb_per_call", "collections", "idle", "grows", "met", "machine")
    }
    return f"{markdown(head, rows)}\n{json.dumps(rest)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when a quantity grows, 2 after printing one line to standard error."""
    given = parser().parse_args(arguments)
    return exit_code(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    check_outputs(given)
    found = asyncio.run(measure(given))
    publish(given, found, table)
    return 0 if found["met"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
