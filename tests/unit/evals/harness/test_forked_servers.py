"""Servers that are forked: none outlives an evaluation that is interrupted while it starts one."""

import asyncio
from pathlib import Path

import psutil
import pytest

from parley.evals.harness.forked_servers import forked
from parley.evals.harness.launcher import free_port


async def test_a_start_that_is_cancelled_leaves_no_server(tmp_path: Path):
    entered = asyncio.Event()

    async def start() -> None:
        entered.set()
        async with forked([], free_port(), tmp_path / "log", environment={}):
            pass

    starting = asyncio.create_task(start())
    await entered.wait()
    # The thread that starts it has begun, and cannot be stopped.
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    # What forks them and tracks their resources stays; it has no child that runs.
    below = [grand for child in psutil.Process().children() for grand in child.children()]
    assert [each for each in below if each.status() != psutil.STATUS_ZOMBIE] == []
