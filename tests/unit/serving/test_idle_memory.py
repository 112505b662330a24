"""Memory that an idle process returns, on virtual time."""

import asyncio
from dataclasses import dataclass, field

from parley.serving.gateway.http.idle_memory import GROWN_MB, LOOK_S, returning_memory
from tests import virtual_time


@dataclass
class Process:
    """Conversations and memory of a process, as a test sets them."""

    active: int = 0
    held_mb: float = 400.0
    trims: list[float] = field(default_factory=list)

    def resident(self) -> float:
        return self.held_mb

    def trim(self) -> None:
        self.trims.append(self.held_mb)
        self.held_mb = 410.0


def test_an_idle_process_that_has_grown_is_trimmed_once():
    async def scenario() -> Process:
        process = Process()
        async with returning_memory(process, resident=process.resident, trim=process.trim):
            await asyncio.sleep(2 * LOOK_S)
            process.held_mb = 400.0 + GROWN_MB + 1
            await asyncio.sleep(5 * LOOK_S)
        return process

    assert virtual_time.run(scenario()).trims == [400.0 + GROWN_MB + 1]


def test_nothing_is_trimmed_while_a_call_is_up_and_all_of_it_afterwards():
    async def scenario() -> tuple[list[float], list[float]]:
        process = Process(active=1)
        async with returning_memory(process, resident=process.resident, trim=process.trim):
            process.held_mb = 900.0
            await asyncio.sleep(10 * LOOK_S)
            during = list(process.trims)
            process.active = 0
            await asyncio.sleep(2 * LOOK_S)
        return during, process.trims

    assert virtual_time.run(scenario()) == ([], [900.0])
