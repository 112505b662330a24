"""The server under test: a running one, the product, or the bare cascade of ``evals.heard_truth.server``."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from parley.core.errors import PeerError
from parley.evals.latency import servers
from parley.evals.serving_process import free_port, healthy, started


@asynccontextmanager
async def running(url: str | None, system: str, config: Path, log: Path) -> AsyncIterator[str]:
    """Yield the root of a healthy server: at ``url``, or a new ``product`` or ``bare`` one.

    Raises:
        PeerError: it is not healthy, or does not start.
    """
    if url is not None:
        if not await healthy(url):
            raise PeerError(f"no healthy server at {url}")
        yield url.rstrip("/")
        return
    if system == "product":
        async with servers.running("parley", config, log) as server:
            yield server.url
        return
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "parley.evals.heard_truth.server",
        "--config",
        str(config),
        "--port",
        str(port),
    ]
    async with started(command, port, log) as server:
        yield server.url
