"""Rows of the chaos evaluation: a failure, its expected outcome, and the code that causes and judges it.

Rows whose failure another instrument causes run that instrument: ``evals.abuse`` for what happens below the
store and to engines, ``evals.crash`` for killed servers.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from parley.core.errors import ConfigError
from parley.evals.abuse.registry import chosen
from parley.evals.abuse.rounds import Rounds
from parley.evals.chaos.disk import read_only_database, slow_disk
from parley.evals.chaos.observers import hung_collector, silent_scraper
from parley.evals.chaos.split import split_network
from parley.evals.chaos.stopped_server import stopped_server
from parley.evals.chaos.workers import killed_worker, stopped_worker
from parley.evals.crash.calls import PROXY, run_calls
from parley.evals.crash.rounds import run as run_crash

ATTACK_S, KILLS = 20.0, 3


@dataclass(frozen=True, slots=True)
class ChaosRun:
    """Run of one row.

    Attributes:
        folder: for its files.
        seed: of everything random.
    """

    folder: Path
    seed: int


# Returns the faults, a line each.
Cause = Callable[[ChaosRun], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class ChaosRow:
    """Failure, with its expected outcome.

    Attributes:
        name: on the command line.
        failure: what fails.
        outcome: what callers may expect.
        cause: causes the failure, and judges the outcome.
    """

    name: str
    failure: str
    outcome: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a row.

    Attributes:
        row: its name.
        faults: differences from the outcome; empty for PASS.
    """

    row: str
    faults: list[str] = field(default_factory=list)


async def _attack(run: ChaosRun, *, name: str) -> list[str]:
    """Run a row of ``evals.abuse`` without control calls, which other work on the machine would disturb."""
    rounds = Rounds(run.folder / name, seconds=ATTACK_S, seed=run.seed, transports=())
    [row] = await rounds.run(chosen([name]))
    return row.faults


async def _killed_server(run: ChaosRun) -> list[str]:
    found = await run_crash(KILLS, run.seed)
    return [] if found.passed() else [*(f"{name}: {n}" for name, n in found.faults.items() if n)]


async def _killed_phone_server(run: ChaosRun) -> list[str]:
    found = await run_calls(KILLS, run.seed, network=PROXY)
    return [] if found.passed() else found.details or ["a call did not go on"]


ROWS: Sequence[ChaosRow] = (
    ChaosRow(
        "worker-killed",
        "SIGKILL of a worker with an open stream",
        "the caller of the worker knows at once, and the next clause is spoken by a new process",
        killed_worker,
    ),
    ChaosRow(
        "worker-stopped",
        "SIGSTOP of a worker with an open stream, and SIGCONT",
        "a clause is given up at its deadline; after SIGCONT nothing of it is spoken, and the next one is",
        stopped_worker,
    ),
    ChaosRow(
        "worker-split",
        "no packet passes between the server and a worker with an open stream, and packets pass again",
        "the clause is given up at its deadline, the worker ends the lease by its own clock, and the next "
        "clause is spoken whole",
        split_network,
    ),
    ChaosRow(
        "gateway-killed",
        "SIGKILL of the server in random phases of conversations",
        "no acknowledged event is lost or repeated, no effect of a tool happens twice",
        _killed_server,
    ),
    ChaosRow(
        "gateway-killed-phone",
        "SIGKILL of the server in the middle of phone calls",
        "every call goes on in its session, with no word lost or repeated",
        _killed_phone_server,
    ),
    ChaosRow(
        "gateway-stopped",
        "SIGSTOP of the server for 1 to 2.5 s during spoken questions, and SIGCONT",
        "every question is understood as without the stop",
        stopped_server,
    ),
    *(
        ChaosRow(name, failure, outcome, partial(_attack, name=name))
        for name, failure, outcome in (
            (
                "full-disk",
                "no file of the server can grow",
                "a typed turn is refused (503) in time, /ready says so, and turns are accepted afterwards",
            ),
            (
                "store-away",
                "another process holds the database",
                "as for a full disk",
            ),
            (
                "wrong-clock",
                "the wall clock is 40 days ahead for 12 s, with retention",
                "no session of today is deleted",
            ),
            (
                "kill-recogniser",
                "SIGKILL of the recogniser's process in the middle of a question",
                "another one serves within a second, and the question is answered",
            ),
            (
                "kill-front-end",
                "SIGKILL of the front end's process, and of its successor",
                "as for the recogniser",
            ),
            (
                "sigterm",
                "the server is ordered to stop during calls",
                "every caller hears the goodbye, and sockets are closed with 1012",
            ),
        )
    ),
    ChaosRow(
        "read-only-database",
        "the database of the sessions takes no writes any more",
        "as for a full disk",
        read_only_database,
    ),
    ChaosRow(
        "slow-disk",
        "each commit takes 0.5 s; then commits do not end",
        "turns and a spoken question are answered, and /health does not wait; then as for a full disk",
        slow_disk,
    ),
    ChaosRow(
        "collector-hangs",
        "a collector of traces that accepts connections and never answers",
        "typed turns are answered, and the server stops in time",
        hung_collector,
    ),
    ChaosRow(
        "scraper-never-reads",
        "scrapers that request /metrics and read nothing",
        "typed turns are answered, and the scrapers' connections are given up",
        silent_scraper,
    ),
)


def rows(names: Sequence[str] | None) -> list[ChaosRow]:
    """Return the rows of these names, all without names.

    Raises:
        ConfigError: there is none of a name.
    """
    by_name = {row.name: row for row in ROWS}
    if unknown := [name for name in names or () if name not in by_name]:
        raise ConfigError(f"there is no row {unknown[0]!r} (known: {', '.join(by_name)})")
    return [by_name[name] for name in names or by_name]
