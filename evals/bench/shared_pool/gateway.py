"""Gateway of a shared pool, without calls: the line, the leases and the process of a real one.

``python -m evals.bench.shared_pool.gateway URL SETTINGS`` reads commands from standard input and writes what
happens to standard output, each a line of JSON. Times are seconds of the machine's monotonic clock, which all
processes share.

    {"do": "reach", "worker": NAME, "slots": N}
    {"do": "ask", "tickets": [...], "at_s": [...]}    each at its time
    {"do": "release", "ticket": TICKET}
    {"do": "pass_on"}                                 release each grant at once from now on
    {"do": "await", "waiting": N}                     until N wait, those of all gateways together
    -> {"is": "asked", "granted" or "refused", "ticket": TICKET, "at_s": TIME}
    -> {"is": "waiting", "waiting": N}

It ends with its standard input.
"""

import asyncio
import json
import sys
import time
from typing import Any

from parley.evals.harness.command import quiet_log
from parley.runtime.event_loop import run
from parley.serving.pool.settings import SharedPoolSettings
from parley.serving.pool.shared.lines import SharedLines
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.scheduler import SchedulerSettings
from parley.serving.scheduler.types import Effect, LeaseGranted, Task, WorkerCapacity, WorkerRequest
from parley.session_store.settings import StoreSettings

# A command may have the tickets and times of all callers.
MOST_COMMAND_BYTES = 16_000_000


class BenchGateway:
    """Gateway that does as it is commanded.

    Args:
        url: of the database; empty where the line is on a Ray cluster.
        settings: of the shared pool.
    """

    def __init__(self, url: str, settings: SharedPoolSettings) -> None:
        self.lines = SharedLines(settings, StoreSettings(url=url) if url else None)
        self.scheduler = self.lines.scheduler(
            "omni",
            SchedulerSettings(max_waiting=1_000_000, no_worker_ms=600_000),
            self._on_effects,
            eta=Eta(),
            now_ms=_now_ms,
        )
        self._passes_on = False
        # Length of the line that is reported when it is reached.
        self._awaited: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def obey(self, command: dict[str, Any]) -> None:
        """Carry out a command."""
        now_ms = _now_ms()
        match command["do"]:
            case "reach":
                self.scheduler.worker_up(WorkerCapacity(command["worker"], "1", command["slots"]), now_ms)
            case "ask":
                asking = asyncio.create_task(self._ask(command["tickets"], command["at_s"]), name="bench.ask")
                self._tasks.add(asking)
                asking.add_done_callback(self._tasks.discard)
            case "release":
                self.scheduler.release(command["ticket"], now_ms, well=True)
            case "pass_on":
                self._passes_on = True
            case "await":
                self._awaited = command["waiting"]
                self._count()

    async def close(self) -> None:
        """Leave the line."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.lines.close()

    async def _ask(self, tickets: list[str], at_s: list[float]) -> None:
        for ticket, due_s in zip(tickets, at_s, strict=True):
            if (left_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
            want = WorkerRequest(ticket, f"session of {ticket}", Task.OMNI_DUPLEX)
            asked_ms = _now_ms()
            self.scheduler.ask(want, asked_ms)
            say({"is": "asked", "ticket": ticket, "at_s": asked_ms / 1_000})

    def _on_effects(self, effects: list[Effect]) -> None:
        at_s = time.monotonic()
        for effect in effects:
            is_granted = isinstance(effect, LeaseGranted)
            say({"is": "granted" if is_granted else "refused", "ticket": effect.ticket_id, "at_s": at_s})
            if is_granted and self._passes_on:
                self.scheduler.release(effect.ticket_id, _now_ms(), well=True)
        self._count()

    def _count(self) -> None:
        if self._awaited is not None and self.scheduler.waiting == self._awaited:
            say({"is": "waiting", "waiting": self._awaited})
            self._awaited = None


def _now_ms() -> int:
    # The clock of a loop stands still while the loop runs its callbacks, which this measurement would count.
    return time.monotonic_ns() // 1_000_000


def say(fact: dict[str, Any]) -> None:
    """Write a line of JSON."""
    print(json.dumps(fact), flush=True)


async def serve(url: str, settings: SharedPoolSettings) -> None:
    """Obey standard input until its end."""
    gateway = BenchGateway(url, settings)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_COMMAND_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    gateway.lines.start()
    try:
        while line := await reader.readline():
            await gateway.obey(json.loads(line))
    finally:
        await gateway.close()


def main() -> None:
    """Run the program."""
    quiet_log()
    url, settings = sys.argv[1:]
    run(serve(url, SharedPoolSettings.model_validate_json(settings)))


if __name__ == "__main__":
    main()
