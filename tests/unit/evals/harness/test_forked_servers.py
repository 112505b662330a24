"""Servers that are forked: none outlives an evaluation that is interrupted while it starts one."""

import asyncio
import os
from pathlib import Path

import pytest

from parley.evals.harness import forked_servers
from parley.evals.harness.forked_servers import ForkedServer, forked
from parley.evals.harness.launcher import free_port


async def test_a_start_that_is_cancelled_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begun: list[ForkedServer] = []

    class Noted(ForkedServer):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            begun.append(self)

    monkeypatch.setattr(forked_servers, "ForkedServer", Noted)

    async def start() -> None:
        async with forked([], free_port(), tmp_path / "log", environment={}):
            pass

    starting = asyncio.create_task(start())
    # The thread that starts it has begun, and cannot be stopped.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    for each in begun:
        assert await asyncio.wait_for(each.wait(), 30) is not None
        with pytest.raises(ProcessLookupError):
            os.kill(each.pid, 0)
    assert len(begun) == 1
