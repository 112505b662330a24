"""Host of a worker process on a node, which Ray runs as an actor: the process and its reports."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import psutil
import pytest

from parley.serving.pool.on_ray.messages import HOST_REPORT, HostReport
from parley.serving.pool.on_ray.worker_host import WorkerHost
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from tests.fakes.worker import SECRET, SECRET_ENV
from tests.peers.minicpm_server import minicpm_server

pytestmark = pytest.mark.paired

WITHIN_S = 30.0


@pytest.fixture
def engine() -> Iterator[str]:
    with minicpm_server() as server:
        yield server.url


@asynccontextmanager
async def hosted(engine: str, **tuning: object) -> AsyncIterator[WorkerHost]:
    spec = WorkerSpec(name="w", engine="minicpm_worker", settings={"url": engine})
    settings = PoolTuning.model_validate({"secret_env": SECRET_ENV, **tuning})
    host = WorkerHost(spec, settings, traces=None, address="127.0.0.1")
    running = asyncio.create_task(host.run())
    try:
        yield host
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def reported(host: WorkerHost, holds: Callable[[HostReport], object]) -> HostReport:
    """Follow the reports until one has a property."""
    async with asyncio.timeout(WITHIN_S):
        report = HOST_REPORT.validate_json(host.report())
        while not holds(report):
            report = HOST_REPORT.validate_json(await host.attend(report.version, report.life, WITHIN_S))
        return report


def worker_pid() -> int:
    """Return the id of the worker's process, which is a child of this one."""
    [found] = [each.pid for each in psutil.Process().children() if "--print-url" in each.cmdline()]
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_process_that_ends_or_hangs_is_replaced_and_reported(
    engine: str, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    async with hosted(engine, silent_ms=400, dead_ms=1_500) as host:
        first = await reported(host, lambda report: report.incarnation)
        assert first.url is not None and first.url.startswith("ws://127.0.0.1:") and first.held == ()
        os.kill(worker_pid(), number)
        gone = await reported(host, lambda report: report.url is None)
        assert gone.incarnation is None
        again = await reported(host, lambda report: report.incarnation)
        assert again.starts == 2 and again.incarnation != first.incarnation and again.life == first.life
        assert gone.status == -signal.SIGKILL or again.status == -signal.SIGKILL


async def test_a_node_without_the_secret_says_so_and_starts_nothing(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_ENV, raising=False)
    async with hosted(engine) as host:
        report = await reported(host, lambda report: report.fault)
        assert report.fault == f"{SECRET_ENV} is not set on the node 127.0.0.1" and report.starts == 0
