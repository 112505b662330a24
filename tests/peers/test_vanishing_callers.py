"""Callers who leave without notice: all resources of their calls are released."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.peers.server import RunningServer, running_server
from tests.peers.webrtc_caller import Caller

CALLS = 50
AT_ONCE = 10
FREED_WITHIN_S = 5.0
# Sizes of a server's thread pools. A pool starts a thread when work comes and none of its own is idle, so its
# size varies until it is full. The loop's own pool is Python's default executor.
POOLS = {
    "uvloop": min(32, (os.cpu_count() or 1) + 4),
    "speech": 2,
    **dict.fromkeys(("vad", "turn", "echo", "session_store.write"), 1),
    "session_store.read": 4,
}


async def open_call(client: httpx.AsyncClient) -> Caller:
    caller = Caller()
    await caller.accept((await client.post("/api/offer", json=await caller.offer())).json())
    await caller.until(lambda: caller.of_type("bot-started-speaking"), within_s=20)
    return caller


async def until_no_call(client: httpx.AsyncClient) -> float:
    """Return the seconds until the server holds no call any more."""
    started = time.monotonic()
    async with asyncio.timeout(30):
        while (await client.get("/health")).json()["calls"]:
            await asyncio.sleep(0.1)
    return time.monotonic() - started


async def open_and_vanish(client: httpx.AsyncClient, calls: int) -> float:
    callers = await asyncio.gather(*(open_call(client) for _ in range(calls)))
    for caller in callers:
        caller.vanish()
    freed_s = await until_no_call(client)
    for caller in callers:
        await caller.hang_up()
    return freed_s


async def tasks_of(client: httpx.AsyncClient) -> int:
    return (await client.get("/status")).json()["tasks"]


async def threads_of(client: httpx.AsyncClient, server: RunningServer) -> int:
    """Return the number of threads outside the pools, Python's and native ones; no pool exceeds its size."""
    named = (await client.get("/status")).json()["threads"]
    pools = {name: named.get(name, 0) for name in POOLS}
    assert all(count <= POOLS[name] for name, count in pools.items()), named
    return server.process.num_threads() - sum(pools.values())


async def settled(measure: Callable[[], Awaitable[int]]) -> int:
    """Return the measurement once it has been stable for a second, or its value after ``FREED_WITHIN_S``."""
    started = since = time.monotonic()
    last = await measure()
    while (now := time.monotonic()) - since < 1 and now - started < FREED_WITHIN_S:
        await asyncio.sleep(0.1)
        if (found := await measure()) != last:
            last, since = found, time.monotonic()
    return last


def sockets_of(server: RunningServer) -> int:
    return len(server.process.net_connections(kind="udp"))


async def files_of(server: RunningServer) -> int:
    """Return the number of open files, pipes and sockets of the server.

    HTTP connections are not counted: they belong to this test, and come and go. Files of the session store
    are not counted either: each of its threads opens its own with its first work.
    """
    stored = [file for file in server.process.open_files() if Path(file.path).name.startswith("sessions.db")]
    connections = server.process.net_connections(kind="tcp")
    return server.process.num_fds() - len(connections) - len(stored)


@pytest.fixture
async def server():
    async with running_server() as running:
        yield running


@pytest.mark.alone
@pytest.mark.slow
async def test_fifty_vanished_calls_leave_memory_tasks_and_files_where_they_were(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        # The first calls fill caches and arenas once; the growth by further calls is measured.
        await open_and_vanish(client, AT_ONCE)
        idle_tasks = await settled(lambda: tasks_of(client))
        tasks, sockets = idle_tasks, sockets_of(server)
        files = await settled(lambda: files_of(server))
        threads = await threads_of(client, server)
        memory_mb = server.process.memory_info().rss / 1e6
        slowest_s = 0.0
        for _ in range(CALLS // AT_ONCE):
            slowest_s = max(slowest_s, await open_and_vanish(client, AT_ONCE))
        assert slowest_s <= FREED_WITHIN_S
        assert await settled(lambda: tasks_of(client)) <= tasks
        assert sockets_of(server) == sockets
        assert await settled(lambda: files_of(server)) <= files
        assert await settled(lambda: threads_of(client, server)) <= threads
        assert server.process.memory_info().rss / 1e6 - memory_mb < 40


async def test_a_caller_who_hangs_up_is_gone_at_once(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        caller = await open_call(client)
        await caller.hang_up()
        assert await until_no_call(client) < 1.0
