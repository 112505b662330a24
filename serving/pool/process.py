"""One worker process that is started here, and started again when it ends.

Owns the process; ``run`` is its caller's task and ends it: told first (SIGTERM), killed behind ``close_ms``.
It holds the other end of this process's pipe, and ends when we are gone. A process that ends is started again
behind a wait that doubles with each that did not get ready, so that one that cannot load is no storm. Its log
is on standard error, which is ours; what else it prints is read and dropped. It is told nothing of our
environment but what a worker needs: no keys of providers.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from loguru import logger

from runtime.engine_hosting.supervisor import PASSED_ENVIRONMENT, PASSED_TO_MODELS
from serving.pool.settings import PoolSettings, WorkerSpec

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """See the module.

    Args:
        spec: of the worker.
        settings: of the pool.
        secret: that it is told.
        on_url: told where it listens, and that it ended (None).
    """

    def __init__(
        self,
        spec: WorkerSpec,
        settings: PoolSettings,
        *,
        secret: str,
        on_url: Callable[[str | None], None],
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._secret = secret
        self._on_url = on_url
        self._process: asyncio.subprocess.Process | None = None
        self._waits_ms = settings.retry_ms
        self._is_retired = False
        # Of the last one that ended.
        self.status: int | None = None
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def is_ready(self) -> None:
        """It works: the next end of it is waited for as if it were the first."""
        self._waits_ms = self._settings.retry_ms

    def retire(self) -> None:
        """It is told to end by somebody else: no other is started in its place."""
        self._is_retired = True

    def kill(self) -> None:
        """It does not answer any more."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def run(self) -> None:
        """Keep one running until cancelled."""
        while not self._is_retired:
            try:
                await self._live()
            except Exception as error:  # the edge of a supervisor: whatever fails, it is tried again
                logger.error(f"the worker {self._spec.name} is not started: {type(error).__name__}: {error}")
            wait_ms = self._waits_ms
            self._waits_ms = min(2 * wait_ms, self._settings.longest_retry_ms)
            await asyncio.sleep(wait_ms / 1000)

    async def _live(self) -> None:
        """One life of it."""
        self.starts += 1
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command(),
            cwd=ROOT,
            env=self._environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(self._settings.load_ms / 1000):
                line = await process.stdout.readline()
            if line.startswith(b"ws://"):
                self._on_url(line.decode().strip())
            # Whatever it prints then is read, so that it never blocks.
            while await process.stdout.read(65_536):
                pass
            status = await process.wait()
            logger.warning(f"the worker {self._spec.name} ended with status {status}")
        finally:
            self._on_url(None)
            await self._end(process)
            self._process = None
            self.status = process.returncode

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._settings.close_ms / 1000):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _command(self) -> list[str]:
        spec = self._spec
        command = [spec.python or sys.executable, "-P", str(ROOT / "runner.py"), "--role", "worker"]
        command += ["--engine", str(spec.engine), "--name", spec.name, "--port", "0", "--print-url"]
        if spec.kind is not None:
            command += ["--kind", spec.kind]
        for flag, values in (("--set", spec.settings), ("--limit", spec.limits)):
            for name, value in values.items():
                # JSON is YAML.
                command += [flag, f"{name}={json.dumps(value)}"]
        return command

    def _environment(self) -> dict[str, str]:
        names = (*PASSED_ENVIRONMENT, *PASSED_TO_MODELS)
        environment = {name: os.environ[name] for name in names if name in os.environ}
        return environment | {"PARLEY_WORKER_SECRET": self._secret, "PYTHONPATH": str(ROOT)}
