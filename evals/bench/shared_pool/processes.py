"""Gateways of a shared pool in processes of their own, commanded from this one; and the end of a pool."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from parley.core.installation import written_dir
from parley.serving.pool.on_ray.link import ray_environment
from parley.serving.pool.settings import SharedPoolSettings

START_S = 60
END_POOL_S = 120
CLOSE_S = 10


class GatewayProcess:
    """Process of one gateway (``gateway``).

    Attributes:
        facts: what it has said, in order.
        process: the process.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.facts: list[dict[str, Any]] = []
        self._more = asyncio.Condition()

    def command(self, **command: Any) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    async def read(self) -> None:
        """Read what it says, until its end."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._more:
                self.facts.append(json.loads(line))
                self._more.notify_all()

    async def said(self, what: str, count: int, within_s: float) -> list[dict[str, Any]]:
        """Wait until it has said something that often, and return it.

        Raises:
            TimeoutError: it has not.
        """
        async with asyncio.timeout(within_s), self._more:
            while len(found := [fact for fact in self.facts if fact["is"] == what]) < count:
                await self._more.wait()
        return found

    async def until_waiting(self, count: int, within_s: float = START_S) -> None:
        """Wait until it sees that many requests in the line.

        Raises:
            TimeoutError: it does not.
        """
        number = sum(fact["is"] == "waiting" for fact in self.facts) + 1
        self.command(do="await", waiting=count)
        await self.said("waiting", number, within_s)


@asynccontextmanager
async def gateway(url: str, settings: SharedPoolSettings) -> AsyncIterator[GatewayProcess]:
    """Run a gateway."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "parley.evals.bench.shared_pool.gateway",
        url,
        settings.model_dump_json(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    opened = GatewayProcess(process)
    reading = asyncio.create_task(opened.read(), name="bench.gateway")
    try:
        yield opened
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def end_pool(settings: SharedPoolSettings) -> None:
    """End the actors of a pool on a Ray cluster, which outlive its gateways; those of a database have none.

    Raises:
        TimeoutError: the cluster does not answer.
    """
    ray = settings.ray
    if ray is None:
        return
    ending = await asyncio.create_subprocess_exec(
        ray.python or sys.executable,
        *("-P", "-m", "parley.serving.pool.on_ray.end", "--name", settings.name),
        *("--address", ray.address, "--namespace", ray.namespace),
        cwd=written_dir(),
        env=ray_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(END_POOL_S):
            await ending.wait()
    finally:
        if ending.returncode is None:
            ending.kill()
            await ending.wait()
