"""Supervise one process: lives of it, one after the other, until its owner closes.

In: ``live``, a coroutine that runs one life from start to end and leaves no process behind; ``mark_ready``,
called in it as soon as the engine is loaded. Out: ``wait_ready``, and why the engine does not become ready.

Owns one task. Late: a life that is not ready within ``start_timeout_s`` is cancelled. Dead: the next life
begins after a pause that grows while lives are short. Wrong: a failure that does not pass by itself ends the
supervision of an engine that was never ready. One that was ready once will be ready again: memory or a file
may be missing for a while, and a supervisor that gives up leaves every later call without the engine.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from core.errors import AgentError, ConfigError, EngineError

# What a child may know of our environment. Keys of services are not in it.
PASSED_ENVIRONMENT = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PATH",
    "TMPDIR",
    "XDG_CACHE_HOME",
)
# What else a process needs that runs a large model on a device.
PASSED_TO_MODELS = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_MODULES_CACHE",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
)
ROOT = Path(__file__).resolve().parents[2]


def child_environment(*, on_device: bool = False) -> dict[str, str]:
    """Return the environment variables of a child; ``on_device``: of one that runs a large model."""
    names = PASSED_ENVIRONMENT + (PASSED_TO_MODELS if on_device else ())
    # The child finds the same modules wherever it is started from, the deployment's own engines among them.
    own = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    modules = os.pathsep.join([str(ROOT), *map(os.path.abspath, own)])
    return {name: os.environ[name] for name in names if name in os.environ} | {"PYTHONPATH": modules}


@dataclass(frozen=True, slots=True)
class RestartPauses:
    """Pauses before the next life.

    Attributes:
        first_ms: before the first restart.
        least_ms: before the second one; later ones double.
        most_ms: pause that grows no more.
        settled_ms: a life that was ready and lasted longer begins the row anew.
    """

    first_ms: int
    least_ms: int
    most_ms: int
    settled_ms: int


class Supervisor:
    """See the module.

    Args:
        live: runs one life; raises what ended it, or returns.
        name: registry name of the engine, for errors and logs.
        pauses: before restarts.
        start_timeout_s: longest loading, and longest wait for it; None for no bound.

    Attributes:
        restarts: how often a life began after the first one.
        failure: why the engine did not load the last time; None when it did.
    """

    def __init__(
        self,
        live: Callable[[], Awaitable[None]],
        *,
        name: str,
        pauses: RestartPauses,
        start_timeout_s: float | None,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.failure: AgentError | None = None
        self._is_retired = False
        self._live = live
        self._pauses = pauses
        self._start_timeout_s = start_timeout_s
        self._ready = asyncio.Event()
        # The last loading failed for a reason that does not pass by itself.
        self._unusable = asyncio.Event()
        self._ready_since_s: float | None = None
        self._has_been_ready = False
        self._deadline: asyncio.Timeout | None = None
        self._task: asyncio.Task[None] | None = None
        # Those who wait until the engine is ready are given the reason why it never will be.
        self._waiters = 0
        self._ended: asyncio.Future[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Tell whether a life has loaded its engine and lasts."""
        return self._ready.is_set()

    async def start(self) -> None:
        """Begin the first life and wait until it is ready.

        Raises:
            AgentError: see ``wait_ready``. No life is left then.
        """
        self._task = asyncio.create_task(self.run(), name=f"{self.name}.supervisor")
        try:
            await Supervisor.wait_ready(self)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the life and the task of ``start``."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def mark_ready(self) -> None:
        """Record that the present life has loaded its engine; between two lives nothing happens."""
        if self._deadline is None:
            return
        self._deadline.reschedule(None)
        self.failure = None
        self._unusable.clear()
        self._has_been_ready = True
        if self._ready_since_s is None:
            self._ready_since_s = asyncio.get_running_loop().time()
        self._ready.set()

    def mark_down(self) -> None:
        """Record that the present life ends: it takes no more work."""
        self._ready.clear()

    async def wait_ready(self) -> None:
        """Wait for a life that is ready, also during a restart.

        Raises:
            ConfigError: the settings of the engine are wrong.
            EngineError: it does not load, or not in time, or there is no supervision any more.
        """
        if self._task is None or self._task.done():
            raise self.failure or self.error("the engine process is not running", retryable=False)
        waiters = {asyncio.ensure_future(each.wait()) for each in (self._ready, self._unusable)}
        self._waiters += 1
        try:
            await asyncio.wait(
                {*waiters, self._task}, timeout=self._start_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self._waiters -= 1
            for waiter in waiters:
                waiter.cancel()
        if not self._ready.is_set():
            raise self.failure or self.error("the engine does not become ready in time")

    async def wait_ended(self) -> None:
        """Wait until the present life has ended, or the supervision."""
        if self._ended is not None:
            await asyncio.wait({self._ended})

    def error(self, message: str, *, retryable: bool = True) -> EngineError:
        """Return an error that names the engine."""
        return EngineError(f"{self.name}: {message}", engine=self.name, retryable=retryable)

    def retire(self) -> None:
        """Begin no life any more; the present one goes on."""
        self._is_retired = True

    async def run(self) -> None:
        """Live until cancelled, retired or given up. Called by ``start``, or by the owner's own task."""
        pauses, reported = self._pauses, ""
        pause_ms = pauses.first_ms
        loop = asyncio.get_running_loop()
        while not self._is_retired:
            self._ready_since_s = None
            ended = self._ended = loop.create_future()
            try:
                await self._live_in_time()
            except Exception as error:  # the edge of a supervisor: whatever ended a life, the next one begins
                reported = self._report(error, reported)
            finally:
                self._ready.clear()
                ended.set_result(None)
            if self._is_retired or (self._unusable.is_set() and not self._has_been_ready):
                return
            ready_s = self._ready_since_s
            if ready_s is not None and (loop.time() - ready_s) * 1000 > pauses.settled_ms:
                pause_ms = pauses.first_ms
            self.restarts += 1
            when = f"in {pause_ms} ms" if pause_ms else "at once"
            logger.warning(f"{self.name}: engine process ended, starting it again {when}")
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(max(pause_ms * 2, pauses.least_ms), pauses.most_ms)

    async def _live_in_time(self) -> None:
        try:
            async with asyncio.timeout(self._start_timeout_s) as self._deadline:
                await self._live()
        except TimeoutError as error:
            raise self.error("the engine does not load in time") from error
        finally:
            self._deadline = None

    def _report(self, error: Exception, reported: str) -> str:
        if self._ready_since_s is None and isinstance(error, AgentError):
            self.failure = error
            if isinstance(error, ConfigError) or not getattr(error, "retryable", True):
                self._unusable.set()
        # Each waiter raises the final error itself, which is then logged once.
        if str(error) != reported and not (self._unusable.is_set() and self._waiters):
            kind = "" if isinstance(error, AgentError | OSError) else f"{type(error).__name__}: "
            logger.error(f"{self.name}: engine process failed: {kind}{error}")
        return str(error)
