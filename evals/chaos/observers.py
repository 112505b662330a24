"""Programs that watch a server and hang: a collector of traces, and scrapers of its metrics."""

import asyncio
import os
import random
import signal
import socket
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from parley.core.errors import PeerError
from parley.evals.abuse.attacks.ending import is_running
from parley.evals.abuse.attacks.requests import new_session, type_turn
from parley.evals.abuse.registry import AttackRun
from parley.evals.abuse.target import Setting, Target, serving

if TYPE_CHECKING:
    from parley.evals.chaos.rows import ChaosRun


QUESTION = "What are your opening hours?"
TURNS, SCRAPERS = 5, 40
STOPS_S, LOOK_S = 30.0, 0.1
# Buffers of a scraper that reads nothing.
RECEIVE_BYTES = 4_096


async def _typed(target: Target, seed: int) -> list[str]:
    """Return the faults of typed turns."""
    run = AttackRun(target, 0.0, random.Random(seed))
    async with run.client() as client:
        session = await new_session(client)
        statuses = [await type_turn(client, session, QUESTION) for _ in range(TURNS)]
    return [] if set(statuses) == {200} else [f"typed turns get {statuses}"]


async def hung_collector(run: "ChaosRun") -> list[str]:
    """Send traces to a collector that never answers, and stop the server."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}/v1/traces"
        setting = Setting({"telemetry": {"traces": {"endpoint": endpoint}}})
        async with serving(run.folder / "collector", setting) as target:
            faults = await _typed(target, run.seed)
            os.kill(target.pid, signal.SIGTERM)
            if not await _gone(target.pid):
                faults.append(f"the server still runs {STOPS_S:g} s after SIGTERM")
    return faults


async def silent_scraper(run: "ChaosRun") -> list[str]:
    """Request metrics again and again over connections that are never read."""
    async with serving(run.folder / "scraper", Setting()) as target:
        before = await _typed(target, run.seed)
        if before:
            raise PeerError(f"without scrapers: {before[0]}")
        await target.footprint()
        with ExitStack() as open_sockets:
            await asyncio.to_thread(_scrape, target, open_sockets)
            faults = await _typed(target, run.seed)
        found = await target.footprint()
        if found.tasks is None:
            faults.append("the server does not answer any more")
    return faults


def _scrape(target: Target, open_sockets: ExitStack) -> None:
    request = (
        f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.operator_token}\r\n\r\n"
    ).encode()
    for _ in range(SCRAPERS):
        scraper = open_sockets.enter_context(socket.socket())
        scraper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        scraper.connect(("127.0.0.1", target.port))
        scraper.sendall(request * 8)


async def _gone(pid: int) -> bool:
    """Return whether a process ends in time."""
    for _ in range(round(STOPS_S / LOOK_S)):
        if not is_running(pid):
            return True
        await asyncio.sleep(LOOK_S)
    return False
