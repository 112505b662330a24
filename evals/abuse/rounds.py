"""Attacks one after the other: a server, control calls, an attack, and the resources that remain of it.

A server is kept as long as the attacks on it pass: a failed row may have damaged it, and the next one begins
with a new server. A server's first control calls run without an attack and are the base of the comparison.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from parley.core.errors import PeerError
from parley.evals.abuse.attackers import run_attack
from parley.evals.abuse.controls import (
    ADMITTED_UP_S,
    SOCKET_TURNS,
    TRANSPORTS,
    UP_S,
    ControlProcess,
    Report,
    controls,
)
from parley.evals.abuse.registry import Attack
from parley.evals.abuse.report import GAP_BEYOND_MS, Row, footprint_faults
from parley.evals.abuse.settings import setting
from parley.evals.abuse.target import Target, serving
from parley.evals.abuse.warming import warm
from parley.evals.harness.launcher import healthy
from parley.evals.harness.progress import say

SAMPLE_S, LOOK_S, IDLE_S = 0.5, 1.0, 2.0
# Number of servers that are started for a row whose control calls do not come up without an attack.
STARTS = 2


@dataclass
class Bench:
    """A server that is attacked, and its figures without an attack.

    Attributes:
        target: the server.
        base: of its control calls. Empty for a server without any.
    """

    target: Target
    base: Mapping[str, Report] = field(default_factory=dict)


class Rounds:
    """Evaluation of a list of attacks.

    Args:
        folder: for servers' files.
        seconds: of each attack.
        seed: of everything random.
        settle_s: the longest time for memory and descriptors to be released.
        transports: of the control callers. Empty for none.
        turns: questions of each of their calls over a socket.
        gap_beyond_ms: see ``Row``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float,
        seed: int,
        settle_s: float = 30.0,
        transports: Sequence[str] = TRANSPORTS,
        turns: int = SOCKET_TURNS,
        gap_beyond_ms: float = GAP_BEYOND_MS,
    ) -> None:
        self._folder = folder
        self._seconds = seconds
        self._seed = seed
        self._settle_s = settle_s
        self._transports = transports
        self._turns = turns
        self._gap_beyond_ms = gap_beyond_ms
        self._servers = 0

    async def run(self, attacks: Sequence[Attack]) -> list[Row]:
        """Run every attack, those of one setting in a row; return the rows in the order of the attacks."""
        rows: dict[str, Row] = {}
        for name in dict.fromkeys(attack.setting for attack in attacks):
            pending = [attack for attack in attacks if attack.setting == name]
            failed = 0
            while pending:
                async with AsyncExitStack() as stack:
                    try:
                        lasting = [max(self._seconds, each.least_s) for each in pending if each.controls]
                        lasting = lasting if self._transports else []
                        up_s = max(map(_up_s, pending))
                        bench = await stack.enter_async_context(
                            self._bench(name, base_s=max(lasting, default=0.0), up_s=up_s)
                        )
                    except PeerError as error:
                        failed += 1
                        if failed == STARTS:
                            # Only this row: the next one may have a quieter machine.
                            failed, lost = 0, pending.pop(0)
                            rows[lost.name] = Row(lost.name, lost.covers, broken=str(error))
                            _say(rows[lost.name])
                        continue
                    failed = 0
                    while pending:
                        attack = pending.pop(0)
                        row = rows[attack.name] = await self.measure(bench, attack)
                        _say(row)
                        if row.faults or attack.ends_server:
                            break
        return [rows[attack.name] for attack in attacks]

    async def measure(self, bench: Bench, attack: Attack) -> Row:
        """Measure one attack on a running server."""
        target = bench.target
        row = Row(
            attack.name,
            attack.covers,
            base=bench.base,
            judges_wait=attack.judges_wait,
            may_refuse=attack.may_refuse,
            gap_beyond_ms=self._gap_beyond_ms,
        )
        failures = target.failures()
        row.before = await target.footprint()
        row.peak_mb = row.before.rss_mb
        watching = asyncio.create_task(self._watch(target, row), name="abuse.watch")
        try:
            if attack.controls and self._transports:
                async with self._controls(target) as callers:
                    await self._with_controls(callers, attack, target, row)
            else:
                row.outcome = await run_attack(attack, target, self._seconds, self._seed)
            if attack.ends_server:
                row.before = None
            else:
                row.after = await target.footprint()
                await self._settle(target, row)
        except PeerError as error:
            row.broken = str(error)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        row.failures = target.failures() - failures
        if not attack.ends_server and not await healthy(target.url):
            row.broken = row.broken or "the server does not answer any more"
        return row

    def _controls(self, target: Target) -> AbstractAsyncContextManager[ControlProcess]:
        return controls(target.url, self._folder / "speech", self._transports, turns=self._turns)

    async def _with_controls(self, callers: ControlProcess, attack: Attack, target: Target, row: Row) -> None:
        if not await callers.up(_up_s(attack)):
            raise PeerError("the control calls fail even without an attack")
        row.outcome = await run_attack(attack, target, self._seconds, self._seed)
        row.controls = await callers.reports()

    async def _settle(self, target: Target, row: Row) -> None:
        """Wait until the resources of the attack are released, at most ``settle_s``."""
        assert row.before is not None
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while True:
            row.later = await target.footprint()
            row.later_s = loop.time() - begun_s
            if not footprint_faults(row.before, row.later) or row.later_s > self._settle_s:
                return
            await asyncio.sleep(LOOK_S)

    async def _watch(self, target: Target, row: Row) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            found = await target.footprint()
            row.peak_mb = max(row.peak_mb, found.rss_mb)

    @asynccontextmanager
    async def _bench(self, name: str, *, base_s: float, up_s: float) -> AsyncIterator[Bench]:
        """Start a new server that has held calls: what the first call loads stays, and is no growth.

        Args:
            name: of its setting.
            base_s: length of its first control calls, as long as those with the longest attack, because the
                largest of more gaps is larger. With 0 there are none, and one call of each kind is held
                instead.
            up_s: time within which they must be established.
        """
        self._servers += 1
        async with (
            setting(name) as given,
            serving(self._folder / f"server{self._servers}", given) as target,
        ):
            bench = Bench(target)
            if base_s:
                bench.base = await self._without_attack(target, base_s, up_s)
            else:
                await warm(target)
                await asyncio.sleep(IDLE_S)
            yield bench

    async def _without_attack(self, target: Target, seconds: float, up_s: float) -> Mapping[str, Report]:
        async with self._controls(target) as callers:
            if not await callers.up(up_s):
                raise PeerError("the control calls cannot be established")
            await asyncio.sleep(seconds)
            base = await callers.reports()
        _say_base(base)
        await asyncio.sleep(IDLE_S)
        return base


def _up_s(attack: Attack) -> float:
    """Return the time within which control calls must be established before this attack."""
    return ADMITTED_UP_S if attack.may_refuse else UP_S


def _say(row: Row) -> None:
    verdict = "FAIL: " + "; ".join(row.faults) if row.faults else "pass"
    say(f"{row.name}: {verdict}")


def _say_base(base: Mapping[str, Report]) -> None:
    found = ", ".join(
        f"{transport} gap {report.gap_ms} ms, {report.answered}/{report.asked} answered"
        for transport, report in base.items()
    )
    say(f"without an attack: {found}")
