"""Link of a gateway to its Ray process (``bridge``), which is restarted when it ends.

Input: ``call``, for the result of a method of ``cluster.RayCluster``. Owns the process and one task, from
``start`` to ``close``. While the cluster is not reached every call fails at once, and callers try again.
"""

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from parley.core.errors import ConfigError, EngineError, PeerError
from parley.core.installation import pip_command, written_dir
from parley.runtime.engine_hosting.supervisor import RestartPauses, Supervisor, child_environment
from parley.serving.pool.on_ray.messages import CALL, REPLY, RayCall, RayReply
from parley.serving.pool.settings import RaySettings

# Calls at a time: two for each line, one for each worker.
MOST_CALLS = 2_100
MOST_LINE_BYTES = 64 * 1_048_576
PAUSES = RestartPauses(first_ms=250, least_ms=500, most_ms=10_000, settled_ms=60_000)
END_S = 5.0
# Longest time to connect to the cluster: a node that joins one takes some 10 s on a busy machine.
CONNECT_S = 30.0
# Longest wait for an actor, after which it is asked again. An actor answers within milliseconds; one that Ray
# restarts elsewhere takes longer and is found by the next request.
ANSWER_S = 5.0
# Variables of Ray, such as those of its authentication.
PREFIX = "RAY_"


class RayLink:
    """Link to one cluster. Close it with ``close``.

    Args:
        settings: of the cluster.

    Attributes:
        settings: as given.
        was_connected: the cluster was reached at least once.

    Raises:
        ConfigError: Ray, or the interpreter that should have it, is not installed.
    """

    def __init__(self, settings: RaySettings) -> None:
        if settings.python is None and importlib.util.find_spec("ray") is None:
            raise ConfigError(f"workers.shared.ray needs the extra 'ray': {pip_command('ray')}")
        if settings.python is not None and shutil.which(settings.python) is None:
            raise ConfigError(f"workers.shared.ray.python: no program {settings.python}")
        self.settings = settings
        self.was_connected = False
        self._supervisor = Supervisor(self._live, name="ray", pauses=PAUSES, start_timeout_s=CONNECT_S)
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._last = 0

    def start(self) -> None:
        """Start the process, and keep one running."""
        self._task = asyncio.create_task(self._supervisor.run(), name="ray")

    async def close(self) -> None:
        """End the process."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def call(self, method: str, facts: Mapping[str, Any], *, within_s: float | None = None) -> str:
        """Return the result of a method.

        Args:
            method: of ``RayCluster``.
            facts: its arguments.
            within_s: longest wait; None: ``ANSWER_S``.

        Raises:
            PeerError: the cluster or the actor is not reached.
            TimeoutError: it does not answer in time.
        """
        process = self._process
        if process is None or process.stdin is None or not self._supervisor.is_ready:
            raise PeerError("the Ray cluster is not connected")
        if len(self._waiting) >= MOST_CALLS:
            raise PeerError("too many calls to the Ray cluster wait")
        self._last += 1
        number = self._last
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        within_s = ANSWER_S if within_s is None else within_s
        try:
            async with asyncio.timeout(within_s):
                call = RayCall(number, method, dict(facts), within_s)
                process.stdin.write(CALL.dump_json(call) + b"\n")
                await process.stdin.drain()
                return await answer
        except ConnectionError as error:
            raise PeerError("the Ray process has ended") from error
        finally:
            del self._waiting[number]

    async def _live(self) -> None:
        """Run the process once, from its start to its end."""
        chosen = self.settings
        process = self._process = await asyncio.create_subprocess_exec(
            chosen.python or sys.executable,
            *("-P", "-m", "parley.serving.pool.on_ray.bridge", chosen.address, chosen.namespace),
            cwd=written_dir(),
            env=ray_environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MOST_LINE_BYTES,
        )
        try:
            assert process.stdout is not None
            while line := await process.stdout.readline():
                self._on_reply(REPLY.validate_json(line))
            status = await process.wait()
            raise EngineError(f"the Ray process ended with status {status}", engine="ray")
        finally:
            self._process = None
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(PeerError("the Ray process has ended"))
            await _end(process)

    def _on_reply(self, reply: RayReply) -> None:
        if reply.number == 0:
            if reply.error:
                raise EngineError(reply.error, engine="ray")
            self._supervisor.mark_ready()
            self.was_connected = True
            return
        answer = self._waiting.get(reply.number)
        if answer is None or answer.done():
            return
        if reply.error:
            answer.set_exception(PeerError(reply.error))
        else:
            answer.set_result(reply.result)


def ray_environment() -> dict[str, str]:
    """Return the environment variables of a program on the cluster."""
    return child_environment() | {
        name: value for name, value in os.environ.items() if name.startswith(PREFIX)
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the input of the process, and kill it if it does not end."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
