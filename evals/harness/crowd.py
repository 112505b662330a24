"""Run many callers of one kind in a process of their own, and measure the server meanwhile.

A crowd is a module that prints ``measuring`` when its calls are up, ``measured`` after its time, and then one
line of JSON with its figures.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from parley.core.errors import PeerError
from parley.evals.harness.launcher import Server, child

RESULT_S, MARGIN_S = 60.0, 15.0


async def measured(
    server: Server, module: str, arguments: Sequence[str], *, calls: int, seconds: float, start_s: float
) -> dict[str, Any]:
    """Run a crowd; return its figures, and the processor's time of the server and its children meanwhile.

    Args:
        server: of the calls.
        module: of the crowd.
        arguments: of its command line.
        calls: number of its calls.
        seconds: length of its measurement.
        start_s: time within which its calls are up.

    Raises:
        PeerError: it ends without a result, or a step takes too long.
    """
    async with child(module, *arguments) as crowd:
        assert crowd.stdout is not None
        try:
            async with asyncio.timeout(start_s):
                await _line(crowd.stdout, "measuring")
            begun_s, begun_cpu_s = time.perf_counter(), server.cpu_s() or 0.0
            async with asyncio.timeout(seconds + MARGIN_S):
                await _line(crowd.stdout, "measured")
            cpu_s, wall_s = (server.cpu_s() or 0.0) - begun_cpu_s, time.perf_counter() - begun_s
            async with asyncio.timeout(RESULT_S):
                found: dict[str, Any] = json.loads(await _line(crowd.stdout))
        except (TimeoutError, json.JSONDecodeError) as error:
            raise PeerError(f"the callers returned no result: {error!r}") from error
    return {
        **found,
        "cpu_percent": round(100 * cpu_s / wall_s, 1),
        "cpu_percent_per_call": round(100 * cpu_s / wall_s / calls, 2),
    }


async def _line(stream: asyncio.StreamReader, expected: str | None = None) -> str:
    line = (await stream.readline()).decode().strip()
    if not line or (expected is not None and line != expected):
        raise PeerError(f"the callers reported {line[:200]!r}")
    return line
