"""Worker process that is started here, and restarted when it ends.

Owns the process; the caller's task runs ``run`` and ends the process: SIGTERM first, SIGKILL after
``close_ms``. The process holds the other end of a pipe of ours, and ends when we are gone. Its supervisor
(``runtime.engine_hosting``) restarts it after a pause that doubles with each life that did not become ready,
so that a process that cannot load is not restarted too often. Its log is on standard error, which is ours;
its other output is read and dropped. Of our environment it gets only the variables that a worker needs, and
no keys of providers.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from loguru import logger

from parley.core.installation import written_dir
from parley.runtime.engine_hosting.supervisor import RestartPauses, Supervisor, child_environment
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from parley.telemetry.settings import TRACE_ENV, TraceSettings


class WorkerProcess(Supervisor):
    """Supervised process of one worker; it is ready when the pool reports so.

    Args:
        spec: of the worker.
        settings: of the pool.
        secret: passed to the worker.
        on_url: called with its address, and with None when it has ended.
        traces: of the deployment. The worker has them too, unless its ``limits`` name others, or it has a
            Python environment of its own, which may lack the packages.
        host: address on which it listens; None: loopback.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        settings: PoolTuning,
        *,
        secret: str,
        on_url: Callable[[str | None], None],
        traces: TraceSettings | None = None,
        host: str | None = None,
    ) -> None:
        self._spec = spec
        self._host = host
        self._settings = settings
        self._secret = secret
        self._on_url = on_url
        self._traces = traces if spec.python is None else None
        self._process: asyncio.subprocess.Process | None = None
        pauses = RestartPauses(settings.retry_ms, settings.retry_ms, settings.longest_retry_ms, settled_ms=0)
        # The pool decides how long it may load.
        super().__init__(self._live_once, name=spec.name, pauses=pauses, start_timeout_s=None)
        # Exit status of the last process that ended.
        self.status: int | None = None
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Id of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """Kill a process that does not answer any more."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _live_once(self) -> None:
        """Run the process once, from its start to its end."""
        self.starts += 1
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command(),
            cwd=written_dir(),
            env=child_environment(on_device=True)
            | {"PARLEY_WORKER_SECRET": self._secret}
            | self._trace_variables(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(self._settings.load_ms / 1000):
                line = await process.stdout.readline()
            if line.startswith(b"ws://"):
                self._on_url(line.decode().strip())
            # Later output is read, so that the process never blocks.
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

    def _trace_variables(self) -> dict[str, str]:
        """Return the variables of the environment for the collector of traces, where there is one."""
        names = () if self._traces is None else TRACE_ENV
        return {name: os.environ[name] for name in names if name in os.environ}

    def _command(self) -> list[str]:
        spec = self._spec
        limits = dict(spec.limits)
        if self._traces is not None:
            limits.setdefault("traces", self._traces.model_dump(mode="json"))
        command = [spec.python or sys.executable, "-P", "-m", "parley", "worker"]
        command += ["--engine", str(spec.engine), "--name", spec.name, "--port", "0", "--print-url"]
        if self._host is not None:
            command += ["--host", self._host]
        if spec.kind is not None:
            command += ["--kind", spec.kind]
        for flag, values in (("--set", spec.settings), ("--limit", limits)):
            for name, value in values.items():
                # JSON is YAML.
                command += [flag, f"{name}={json.dumps(value)}"]
        return command
