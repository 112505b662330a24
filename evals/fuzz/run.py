"""Run of the fuzzer: a server and a worker, control calls without it and with it, and what stays."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from parley.core.errors import PeerError
from parley.evals.abuse.controls import TRANSPORTS, UP_S, Report, controls
from parley.evals.abuse.report import GAP_BEYOND_MS, footprint_faults
from parley.evals.abuse.target import Setting, Target, serving
from parley.evals.abuse.warming import warm
from parley.evals.fuzz.dialects import phone, worker
from parley.evals.fuzz.log import Failure, LogWatch
from parley.evals.fuzz.report import Finding, FuzzRun
from parley.evals.fuzz.sender import Order, encoded
from parley.evals.harness.launcher import ROOT, child, healthy
from parley.evals.harness.progress import say

WORKER_SECRET = "a secret of the fuzzer, long enough"
WORKER_NAME = "fuzzed"
SECRET_ENV = "PARLEY_WORKER_SECRET"
LOOK_S = 0.1
# Findings of one place that are kept, with the conversations that may have caused them.
KEPT = 3
SETTLE_S, END_S, WORKER_S = 60.0, 90.0, 30.0
WARMINGS = 5
# Every conversation gets in: what a limit refuses is not fuzzed.
DEPLOYMENT: dict[str, Any] = {
    "server": {
        "sessions_per_minute": 100_000,
        "admission": "off",
        "max_calls": 64,
        "clients": {
            "anonymous": {
                "turns_per_minute": 10_000,
                "instructions": True,
                "client_tools": True,
                "max_calls": 64,
            }
        },
    },
    "phone": {"call_codes": {"per_minute": 10_000}},
}


class Fuzzer:
    """Evaluation of one server.

    Args:
        folder: for its files.
        order: of the sending process.
        base_s: length of the control calls without the fuzzer.
        transports: of the control callers; empty for none.
        gap_beyond_ms: allowed excess of a gap.
        settle_s: the longest time for resources to be released.
    """

    def __init__(
        self,
        folder: Path,
        order: Order,
        *,
        base_s: float,
        transports: Sequence[str] = TRANSPORTS,
        gap_beyond_ms: float = GAP_BEYOND_MS,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._folder = folder
        self._order = order
        self._base_s = base_s
        self._transports = transports
        self._settle_s = settle_s
        self.result = FuzzRun(order.seed, gap_beyond_ms=gap_beyond_ms)
        self._watches: list[LogWatch] = []

    async def run(self) -> FuzzRun:
        """Run everything; return the figures.

        Raises:
            PeerError: the server does not start, or is not usable without the fuzzer.
        """
        setting = Setting(DEPLOYMENT, phone.ENVIRONMENT)
        async with (
            voice_worker(self._folder) as (url, _),
            serving(self._folder / "server", setting) as target,
        ):
            facts = {worker.URL: url, worker.WORKER: WORKER_NAME, worker.SECRET: WORKER_SECRET}
            target = replace(target, facts={**target.facts, **facts})
            await self._measure(target)
        return self.result

    async def _measure(self, target: Target) -> None:
        result = self.result
        if self._transports:
            result.base = await self._without(target)
        else:
            await _warm(target)
        result.before = await target.footprint()
        self._watches = [
            LogWatch(Path(target.log), ROOT),
            LogWatch(self._folder / "worker.log", ROOT),
        ]
        if self._transports:
            async with controls(target.url, self._folder / "speech", self._transports) as callers:
                if not await callers.up(UP_S):
                    raise PeerError("the control calls fail even without the fuzzer")
                await self._fuzz(target)
                result.controls = await callers.reports()
        else:
            await self._fuzz(target)
        await self._settle(target)
        self._take_failures([])
        if not await healthy(target.url):
            result.broken = "the server does not answer any more"

    async def _without(self, target: Target) -> Mapping[str, Report]:
        async with controls(target.url, self._folder / "speech", self._transports) as callers:
            if not await callers.up(UP_S):
                raise PeerError("the control calls cannot be established")
            await asyncio.sleep(self._base_s)
            return await callers.reports()

    async def _fuzz(self, target: Target) -> None:
        """Run the sending process, and watch the log meanwhile."""
        began_s = time.monotonic()
        async with child("parley.evals.fuzz.sender") as process:
            assert process.stdin is not None
            process.stdin.write(encoded(self._order, target))
            looking = asyncio.create_task(self._look(process), name="fuzz.look")
            try:
                async with asyncio.timeout(self._order.seconds + END_S):
                    await self._follow(process)
            except TimeoutError:
                self.result.broken = "the sending process did not end"
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
        self.result.seconds = time.monotonic() - began_s

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            given = json.loads(line)
            match given["kind"]:
                case "finding":
                    suspect = {name: given[name] for name in ("protocol", "conversation", "last")}
                    place = re.sub(r"\d{4,}", "N", f"{given['protocol']}: {given['detail']}")
                    self._take(place, given["detail"], [suspect])
                case "active":
                    self._take_failures(given["conversations"])
                case "progress":
                    say(f"{given['sent']} messages, {sum(self.result.places.values())} findings")
                case "end":
                    self.result.sent = given["sent"]
                    self.result.conversations = given["conversations"]
                    self.result.tallies = given["tallies"]
                    return
        self.result.broken = "the sending process ended early"

    async def _look(self, process: asyncio.subprocess.Process) -> None:
        """Ask for the last messages when the log has grown."""
        assert process.stdin is not None
        pending = [watch.size() for watch in self._watches]
        while True:
            await asyncio.sleep(LOOK_S)
            sizes = [watch.size() for watch in self._watches]
            if sizes != pending:
                pending = sizes
                process.stdin.write(b"look\n")

    def _take_failures(self, suspects: Sequence[Mapping[str, Any]]) -> None:
        for watch in self._watches:
            for failure in watch.new():
                self._take_failure(failure, suspects)

    def _take_failure(self, failure: Failure, suspects: Sequence[Mapping[str, Any]]) -> None:
        self._take(failure.place, failure.text, suspects)

    def _take(self, place: str, detail: str, suspects: Sequence[Mapping[str, Any]]) -> None:
        self.result.places[place] += 1
        if self.result.places[place] <= KEPT:
            self.result.findings.append(Finding(place, detail, suspects))
            say(f"finding: {place}: {detail}")

    async def _settle(self, target: Target) -> None:
        """Wait until the resources of the fuzzer are released, at most ``settle_s``."""
        assert self.result.before is not None
        until_s = time.monotonic() + self._settle_s
        while True:
            self.result.later = await target.footprint()
            if not footprint_faults(self.result.before, self.result.later) or time.monotonic() > until_s:
                return
            await asyncio.sleep(1.0)


async def _warm(target: Target) -> None:
    """Hold the first calls, again where a busy machine answers one too late."""
    for left in reversed(range(WARMINGS)):
        try:
            await warm(target)
            return
        except PeerError:
            if not left:
                raise


@asynccontextmanager
async def voice_worker(folder: Path) -> AsyncIterator[tuple[str, int]]:
    """Run a worker with a voice; yield its address and its process.

    Raises:
        PeerError: it does not start.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    arguments = ("--role", "worker", "--engine", "flite", "--name", WORKER_NAME, "--port", "0", "--print-url")
    with (folder / "worker.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "runner.py",
            *arguments,
            cwd=ROOT,
            env={**os.environ, SECRET_ENV: WORKER_SECRET},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(WORKER_S):
                url = (await process.stdout.readline()).decode().strip()
            if not url:
                raise PeerError("the worker did not start: see worker.log")
            yield url, process.pid
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
