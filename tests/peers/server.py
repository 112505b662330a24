"""The product as a user starts it: ``python bot.py`` in a process of its own on a free port."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.peers.operations_gateway import TOKEN, TOKEN_ENV

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60


@dataclass
class RunningServer:
    """A server that answers.

    Attributes:
        url: of the page.
        process: for looking at its memory and files, and for pulling its plug.
    """

    url: str
    process: psutil.Process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def running_server(*arguments: str, log: Path | None = None) -> AsyncIterator[RunningServer]:
    """``log``: where its log goes; None: where that of the tests does."""
    port = free_port()
    command = [sys.executable, str(ROOT / "bot.py"), "--port", str(port), *arguments]
    with ExitStack() as files:
        stderr = files.enter_context(log.open("wb")) if log is not None else None
        child = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, TOKEN_ENV: TOKEN},
        )
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient() as client, asyncio.timeout(START_TIMEOUT_S):
            while True:
                assert child.returncode is None, "the server ended"
                try:
                    if (await client.get(f"{url}/health")).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        yield RunningServer(url, psutil.Process(child.pid))
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                await asyncio.wait_for(child.wait(), 3)
            except TimeoutError:
                # A call that nobody hung up is not drained.
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), 15)
            except TimeoutError:
                child.kill()
                await child.wait()
