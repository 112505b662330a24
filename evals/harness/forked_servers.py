"""Servers that are forked from a process which has imported the product.

A server is started hundreds of times in the tests and in ``evals.crash``, and importing its modules takes two
fifths of the processor time of a start. The process from which servers are forked imports them once
(``evals.harness.forked_imports``); it runs nothing else, so that a forked server begins as ``python bot.py``
does after its imports, with the dictionaries of its voice. What measures or tests the start itself runs the
command.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from parley.core.errors import PeerError
from parley.evals.harness.launcher import ROOT, START_TIMEOUT_S, STOP_GRACE_S, Server, healthy, last_line

READY_POLL_S = 0.05

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["parley.evals.harness.forked_imports"])


class ForkedServer:
    """A running command line of ``bot.py``; its standard output is dropped.

    Args:
        arguments: of the command line.
        folder: in which it runs.
        variables: its environment.
        log: takes its standard error. None leaves it where that of this process goes.
        continues: the log goes on; otherwise it begins anew.
        leads: it leads a process session, with everything that it starts.

    Attributes:
        pid: of its process.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        log: Path | None,
        *,
        continues: bool = False,
        leads: bool = False,
    ) -> None:
        self._process = _context.Process(
            target=_serve,
            args=(list(arguments), str(folder), dict(variables), log and str(log), continues, leads),
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status; negative after a signal; None while it runs."""
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def join(self, within_s: float) -> int | None:
        """Wait for its end, blocking; return the exit status, None when it still runs."""
        self._process.join(within_s)
        return self._process.exitcode

    async def wait(self) -> int | None:
        """Wait until the process has ended; return its exit status."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        return self._process.exitcode


@asynccontextmanager
async def forked(
    arguments: Sequence[str], port: int, log: Path, *, environment: Mapping[str, str]
) -> AsyncIterator[Server]:
    """Serve with ``bot.py`` on a port, and stop it at the end, with everything that it started.

    Args:
        arguments: of its command line, besides the port.
        port: of the loopback interface.
        log: takes its standard error, after that of earlier servers.
        environment: variables in addition to ours.

    Raises:
        PeerError: it ended or did not get healthy in time.
    """
    variables = {**os.environ, **environment}
    line = [*arguments, "--port", str(port)]
    # The first one waits for the imports. A thread cannot be cancelled: its server is ended here.
    starting = asyncio.create_task(
        asyncio.to_thread(ForkedServer, line, ROOT, variables, log, continues=True, leads=True),
        name="forked.start",
    )
    try:
        child = await asyncio.shield(starting)
    except asyncio.CancelledError:
        child = await starting
        child.kill()
        # It may have begun to lead a group.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
        raise
    try:
        url = f"http://127.0.0.1:{port}"
        await _wait_healthy(url, child, log)
        yield Server(url, child.pid)
    finally:
        if child.returncode is None:
            child.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE_S):
                    await child.wait()
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


async def _wait_healthy(url: str, child: ForkedServer, log: Path) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await healthy(url):
                if child.returncode is not None:
                    raise PeerError(f"the server ended with {child.returncode}: {last_line(log)}")
                await asyncio.sleep(READY_POLL_S)
    except TimeoutError:
        raise PeerError(
            f"the server is not healthy after {START_TIMEOUT_S:.0f} s: {last_line(log)}"
        ) from None


def _serve(
    arguments: list[str],
    folder: str,
    variables: dict[str, str],
    log: str | None,
    continues: bool,
    leads: bool,
) -> None:
    if leads:
        os.setsid()
    kept = os.O_APPEND if continues else os.O_TRUNC
    for stream, path in ((1, os.devnull), (2, log)):
        if path is not None:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | kept, 0o644)
            os.dup2(file, stream)
            os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["bot.py", *arguments]
    from parley.command.bot_line import main
    from parley.runtime.process_exit import exit_process

    exit_process(main())
