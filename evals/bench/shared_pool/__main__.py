"""``python -m evals.bench shared_pool --url URL``: measure a line that two gateways share in PostgreSQL.

With ``--ray ADDRESS`` in place of ``--url`` the line is on a Ray cluster, and has no cost of its own here.

* **Order.** Two gateway processes bring callers to one line, in turn, while its only slot is taken. Then each
  caller is granted the slot and releases it at once. Callers must get it in the order in which they came, on
  whichever gateway they are.
* **Notice.** The time from a release on one gateway to the grant of the next caller on the other one.
* **Cost.** The time of each operation with a long line: in this process (the queue of one gateway), and in
  PostgreSQL (a transaction each).

The database is one that the sessions use, or an empty one; rows of a pool of its own are written and deleted.
Faults end the run with one line and status 2.
"""

import argparse
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import asyncpg

from parley.evals.bench import scheduler as in_process
from parley.evals.bench.shared_pool.processes import GatewayProcess, end_pool, gateway
from parley.evals.harness.command import machine, positive, positive_number
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, markdown, ranked, run_command
from parley.runtime.event_loop import run
from parley.serving.pool.settings import RaySettings, SharedPoolSettings
from parley.serving.pool.shared import tables
from parley.serving.scheduler.types import Task, WorkerCapacity, WorkerRequest
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionStore

FIRST = "first"
# Time for the processes to start and to see each other's callers.
START_S = 60.0
# Longest time of a grant, on a machine with other work.
GRANT_S = 0.5
IN_PROCESS_ROUNDS = 2_000
TIMES = ("mean", "p50", "p95", "p99", "max")


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.bench shared_pool",
        description="Measure order, notice and cost of a line that gateways share in PostgreSQL.",
    )
    place = root.add_mutually_exclusive_group(required=True)
    place.add_argument("--url", help="address of the database")
    place.add_argument("--ray", metavar="ADDRESS", help="address of the head of a Ray cluster")
    root.add_argument(
        "--ray-python", metavar="FILE", help="interpreter of an environment with Ray (default: this one)"
    )
    root.add_argument("--callers", type=positive, default=1_000, help="callers of both gateways together")
    root.add_argument(
        "--every-ms", type=positive_number, default=5.0, help="time between the arrivals of two callers"
    )
    root.add_argument("--waiting", type=positive, default=10_000, help="length of the line for the cost")
    root.add_argument("--rounds", type=positive, default=300, help="calls of each operation in PostgreSQL")
    add_outputs(root)
    return root


def measure(
    place: str | RaySettings, *, callers: int, every_ms: float, waiting: int, rounds: int
) -> dict[str, Any]:
    """Measure and return the JSON.

    Raises:
        AgentError: the database or the cluster cannot be used.
    """
    progress = Progress("shared pool", 2 + isinstance(place, str))
    order = run(kept_order(place, callers=callers, every_ms=every_ms))
    progress.step(f"{order['out_of_order']} of {callers} out of order")
    shared_us: dict[str, dict[str, float]] = {}
    if isinstance(place, str):
        shared_us = run(_cost(place, waiting, rounds))
        progress.step("cost in PostgreSQL")
    own = in_process.measure([waiting], workers=250, rounds=IN_PROCESS_ROUNDS, seed=1)
    progress.step("cost in this process")
    return {
        "order": order,
        "waiting": waiting,
        "postgresql_us": shared_us,
        "in_process_us": own["results"][0]["us"],
        "machine": machine(),
    }


async def kept_order(place: str | RaySettings, *, callers: int, every_ms: float) -> dict[str, Any]:
    """Queue callers on two gateways and serve them; return their order and the times of the grants.

    Args:
        place: of the line: the address of a database, or a cluster.
        callers: of both gateways together.
        every_ms: time between the arrivals of two callers.

    Raises:
        TimeoutError: not all of them were served in time.
    """
    url, ray = (place, None) if isinstance(place, str) else ("", place)
    if url:
        await _prepare(url)
    settings = SharedPoolSettings(name=f"bench-{secrets.token_hex(4)}", ray=ray)
    try:
        async with gateway(url, settings) as here, gateway(url, settings) as there:
            granted, asked = await _served((here, there), callers=callers, every_ms=every_ms)
    finally:
        await end_pool(settings)
    return _order(sorted(granted), asked)


async def _served(
    both: tuple[GatewayProcess, GatewayProcess], *, callers: int, every_ms: float
) -> tuple[list[tuple[float, str, int]], dict[str, float]]:
    """Return the grants with their times and gateways, and the times of the requests."""
    here, there = both
    for each in both:
        each.command(do="reach", worker="w", slots=1)
    here.command(do="ask", tickets=[FIRST], at_s=[time.monotonic()])
    await here.said("granted", 1, START_S)
    # The other one has joined when it sees no caller, and its own arrive at once.
    there.command(do="ask", tickets=["0"], at_s=[time.monotonic()])
    await here.until_waiting(1, START_S)
    began_s = time.monotonic() + 0.2
    for number, each in enumerate(both):
        mine = [caller for caller in range(1, callers) if caller % 2 == number]
        at_s = [began_s + caller * every_ms / 1_000 for caller in mine]
        each.command(do="ask", tickets=[str(caller) for caller in mine], at_s=at_s)
    for each in both:
        await each.until_waiting(callers, START_S + callers * every_ms / 1_000)
        each.command(do="pass_on")
    here.command(do="release", ticket=FIRST)
    granted: list[tuple[float, str, int]] = []
    for number, each in enumerate(both):
        count = sum(fact["is"] == "asked" for fact in each.facts)
        facts = await each.said("granted", count, START_S + callers * GRANT_S)
        granted += [(fact["at_s"], fact["ticket"], number) for fact in facts if fact["ticket"] != FIRST]
    asked = {
        fact["ticket"]: fact["at_s"]
        for each in both
        for fact in each.facts
        if fact["is"] == "asked" and fact["ticket"] != FIRST
    }
    return granted, asked


def _order(granted: Sequence[tuple[float, str, int]], asked: Mapping[str, float]) -> dict[str, Any]:
    served = [asked[ticket] for _, ticket, _ in granted]
    newest, early_s = 0.0, []
    for asked_s in served:
        # How much later the latest of those before came.
        early_s.append(max(0.0, newest - asked_s))
        newest = max(newest, asked_s)
    notices = [
        (after[0] - before[0]) * 1e6
        for before, after in zip(granted, granted[1:], strict=False)
        if before[2] != after[2]
    ]
    return {
        "callers": len(asked),
        "served": len(granted),
        "out_of_order": sum(each > 0 for each in early_s),
        "overtaken_by_ms": round(max(early_s) * 1_000, 2),
        "notice_us": {**ranked(notices, digits=0), "mean": round(sum(notices) / len(notices))},
    }


async def _prepare(url: str) -> None:
    """Migrate the database."""
    store = await SessionStore.open(StoreSettings(url=url))
    await store.close()


async def _cost(url: str, waiting: int, rounds: int) -> dict[str, dict[str, float]]:
    """Time each operation with a line of ``waiting`` requests."""
    address = StoreSettings(url=url).address()
    _, options = address.get_dialect()().create_connect_args(address)
    connection = await asyncpg.connect(**options, server_settings={"synchronous_commit": "off"})
    try:
        bench = _Line(connection)
        await bench.fill(waiting)
        taken_us: dict[str, list[float]] = {}
        for number in range(rounds):
            for name, operation in bench.round(number):
                began_s = time.perf_counter()
                async with connection.transaction():
                    await tables.lock(connection, bench.line)
                    await operation()
                taken_us.setdefault(name, []).append((time.perf_counter() - began_s) * 1e6)
    finally:
        await bench.empty()
        await connection.close()
    return {
        name: {**ranked(values, digits=0), "mean": round(sum(values) / len(values))}
        for name, values in taken_us.items()
    }


class _Line:
    """Line of a length that stays the same, with one slot that is always taken."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.line = self._member = f"bench-{secrets.token_hex(8)}"
        self._holder = "holder"

    async def fill(self, waiting: int) -> None:
        """Put the requests into the line."""
        connection = self._connection
        await tables.join(connection, self.line, self._member, restores=False)
        await self._ask([self._holder])
        await tables.put_reports(
            connection, self.line, self._member, [WorkerCapacity(f"w of {self._member}", "1", 1)]
        )
        await tables.grant(connection, self.line)
        await self._ask([f"{self._member}.{number}" for number in range(waiting)])
        # As the server does by itself soon after such a change.
        await connection.execute("ANALYZE pool_request")

    async def empty(self) -> None:
        """Delete all of it."""
        await tables.leave(self._connection, self._member)

    def round(self, number: int) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
        """Return operations after which the line is as long as before."""
        ticket = f"{self._member}.new {number}"
        return [
            ("sign of life", partial(tables.beat, self._connection, self._member)),
            ("ask", partial(self._ask_and_grant, ticket)),
            ("cancel", partial(self._over, ticket)),
            ("release and grant", self._release),
            ("ask again", partial(self._ask_and_grant, f"{ticket}.")),
            ("read the whole line", self._read),
        ]

    async def _ask(self, tickets: Sequence[str]) -> None:
        wants = (WorkerRequest(ticket, f"session of {ticket}", Task.OMNI_DUPLEX) for ticket in tickets)
        rows = [tables.RequestRow(want, time.time_ns() // 1_000, is_new=True) for want in wants]
        await tables.put_requests(self._connection, self.line, self._member, rows)

    async def _ask_and_grant(self, ticket: str) -> None:
        await self._ask([ticket])
        await tables.grant(self._connection, self.line)

    async def _over(self, ticket: str) -> None:
        await tables.drop(self._connection, self._member, [ticket])
        await tables.grant(self._connection, self.line)

    async def _release(self) -> None:
        await self._over(self._holder)
        [granted] = await tables.granted_rows(self._connection, self._member, 0)
        self._holder = granted.ticket

    async def _read(self) -> None:
        await tables.seen_requests(self._connection, self.line, self._member)


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    order = result["order"]
    rows = [
        (where, name, *(us[key] for key in TIMES))
        for where, costs in (("process", result["in_process_us"]), ("PostgreSQL", result["postgresql_us"]))
        for name, us in costs.items()
    ]
    head = ("notice", *(f"{key} ms" for key in TIMES))
    notice = (
        "next caller, on the other gateway",
        *(round(order["notice_us"][key] / 1_000, 1) for key in TIMES),
    )
    return (
        f"{order['served']} of {order['callers']} callers of two gateways were served,"
        f" {order['out_of_order']} of them after one who came later, by {order['overtaken_by_ms']} ms at most"
        ".\n\n"
        f"{markdown(head, [notice])}\n\n"
        f"With {result['waiting']} waiting:\n\n"
        f"{markdown(('in', 'operation', *(f'{key} us' for key in TIMES)), rows)}\n\n"
        f"Load {result['machine']['load_1min']}.\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = parser().parse_args(argv)
    measured = partial(
        measure,
        given.url or RaySettings(address=given.ray, python=given.ray_python),
        callers=given.callers,
        every_ms=given.every_ms,
        waiting=given.waiting,
        rounds=given.rounds,
    )
    return run_command(given, measured, table)


if __name__ == "__main__":
    raise SystemExit(main())
