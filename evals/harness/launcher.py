"""Launcher of servers under test, and of other programs, each as a process of its own.

``started`` runs a command, waits for ``GET /health``, and ends it again (SIGTERM, then SIGKILL after a grace
time) with everything that it started, whatever happened in between. Its output is appended to the log: a
server that is started again continues it. When it does not start, the last line of its output is the error
message. ``launched`` starts a program on a free port with a new log, ``running`` one of the ``SYSTEMS`` under
comparison. ``child`` runs callers or peers, which serve nothing, next to the measuring process.
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from parley.core.errors import PeerError

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 90.0
STOP_GRACE_S = 10.0
HEALTH_TIMEOUT_S = 3.0
# Below those that Linux gives to connections (from 32768): while a server starts, or is started again on its
# port, no client of another process takes the port.
PORTS = range(20_000, 32_000)
MOST_PORTS_TRIED = 100
# Arguments of Python: a relative program counts from the root of the checkout.
PRODUCT = ("bot.py",)
SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "parley": PRODUCT,
    "stock": ("-m", "parley.evals.latency.stock"),
    "bare": ("-m", "parley.evals.heard_truth.server"),
}
# Longest line of a child.
LINE_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers.

    Attributes:
        url: its root.
        pid: its process. None when it was not started here.
    """

    url: str
    pid: int | None = None

    def cpu_s(self) -> float | None:
        """Return the CPU seconds of the process and its children so far; None when it was not
        started here.
        """
        return None if self.pid is None else _tree_cpu_s(self.pid)


@asynccontextmanager
async def started(
    command: Sequence[str], port: int, log: Path, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Start a command that serves on a port, and stop it at the end, with everything that it started.

    Args:
        command: the whole command line.
        port: of the loopback interface. The command gets it too.
        log: takes its output.
        environment: variables in addition to ours.

    Raises:
        PeerError: it ended or did not get healthy in time. The message ends with its last line of output.
    """
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            url = f"http://127.0.0.1:{port}"
            await _wait_healthy(url, process, log)
            yield Server(url, process.pid)
        finally:
            await _stop(process)


def command(program: Sequence[str], port: int, *arguments: str) -> list[str]:
    """Return the command line of a server."""
    return [sys.executable, *program, *arguments, "--port", str(port)]


def launched(
    program: Sequence[str], log: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[Server]:
    """Run a program on a free port until the end of the context. Its log begins anew.

    Entering raises PeerError as ``started`` does.
    """
    log.unlink(missing_ok=True)
    port = free_port()
    return started(command(program, port, *arguments), port, log, environment=environment)


def running(system: str, config: Path, log: Path) -> AbstractAsyncContextManager[Server]:
    """Run one of the ``SYSTEMS`` with a deployment, as ``launched`` does.

    Sessions of a measurement are stored apart from the sessions of real users.
    """
    store = {"PARLEY_STORE_URL": f"sqlite:///{log.parent.resolve()}/sessions.db"}
    return launched(SYSTEMS[system], log, "--config", str(config), environment=store)


@asynccontextmanager
async def server_at(url: str | None, system: str, config: Path, log: Path) -> AsyncIterator[Server]:
    """Yield the server at a URL, or a new one of ``SYSTEMS``.

    Raises:
        PeerError: it is not healthy, or does not start.
    """
    if url is None:
        async with running(system, config, log) as server:
            yield server
    elif await healthy(url):
        yield Server(url.rstrip("/"))
    else:
        raise PeerError(f"no healthy server at {url}")


@asynccontextmanager
async def child(
    module: str, *arguments: str, stderr: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a module in a process of its own, with pipes to it, until the end of the context.

    Args:
        module: name of it.
        arguments: of its command line.
        stderr: as for a subprocess. None shows it.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        cwd=ROOT, limit=LINE_BYTES,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def healthy(url: str) -> bool:
    """Return whether ``GET /health`` answers 200."""
    try:
        async with (
            asyncio.timeout(HEALTH_TIMEOUT_S),
            aiohttp.ClientSession() as session,
            session.get(f"{url.rstrip('/')}/health") as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago, from ``PORTS``.

    Raises:
        PeerError: none is free.
    """
    for _ in range(MOST_PORTS_TRIED):
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise PeerError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free")


async def _wait_healthy(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await healthy(url):
                if process.returncode is not None:
                    raise PeerError(f"the server ended with {process.returncode}: {last_line(log)}")
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise PeerError(
            f"the server is not healthy after {START_TIMEOUT_S:.0f} s: {last_line(log)}"
        ) from None


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            pass
    # The process session started for it holds its children too: no engine's process may outlive the run.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    await process.wait()


def last_line(log: Path) -> str:
    """Return the last line of a server's output."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"


def _tree_cpu_s(pid: int) -> float:
    ticks = 0
    pending = [pid]
    while pending:
        current = pending.pop()
        try:
            # Fields after the command name, which may itself hold spaces and brackets.
            fields = Path(f"/proc/{current}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{current}/task").iterdir():
                pending.extend(int(child) for child in (task / "children").read_text().split())
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
