"""Supervision of one process: one life after the other until its owner closes.

Inputs: ``live``, a coroutine that runs one life from start to end and leaves no process running;
``mark_ready``, called by it as soon as the engine is loaded. Outputs: ``wait_ready``, and the reason for
which the engine does not become ready.

Owns one task. Late: a life that is not ready within ``start_timeout_s`` is cancelled. Dead: the next life
begins after a pause that grows while lives are short. Misconfigured: a permanent failure ends the supervision
of an engine that was never ready. An engine that was ready once is expected to be ready again. Memory or a
file may be missing for a while, and a supervisor that gives up leaves every later call without the engine.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loguru import logger

from parley.core.errors import AgentError, ConfigError, EngineError
from parley.core.installation import IMPORT_DIR, IS_CHECKOUT

# Environment variables that are passed to a child. Keys of services are not among them.
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
# Further variables that a process needs to run a large model on a device.
PASSED_TO_MODELS = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_MODULES_CACHE",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
)


def child_environment(*, on_device: bool = False) -> dict[str, str]:
    """Return the environment variables of a child; ``on_device`` adds those that a large model needs."""
    names = PASSED_ENVIRONMENT + (PASSED_TO_MODELS if on_device else ())
    # The child finds the same modules, including the deployment's own engines, from any working directory.
    own = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    # An interpreter has an installed Parley in its own packages, which are not those of another interpreter.
    checkout = [str(IMPORT_DIR)] if IS_CHECKOUT else []
    modules = os.pathsep.join([*checkout, *map(os.path.abspath, own)])
    passed = {name: os.environ[name] for name in names if name in os.environ}
    return passed | ({"PYTHONPATH": modules} if modules else {})


@dataclass(frozen=True, slots=True)
class RestartPauses:
    """Pauses before the next life.

    Attributes:
        first_ms: pause before the first restart.
        least_ms: pause before the second restart; later pauses double.
        most_ms: longest pause.
        settled_ms: a life that was ready for longer resets the pause to ``first_ms``.
    """

    first_ms: int
    least_ms: int
    most_ms: int
    settled_ms: int


class Supervisor:
    """Supervisor that runs lives of one process, with pauses and a deadline for loading.

    Args:
        live: runs one life; raises the error that ended it, or returns.
        name: registry name of the engine, for errors and logs.
        pauses: pauses before restarts.
        start_timeout_s: longest loading, and longest wait for it; None for no bound.

    Attributes:
        restarts: number of lives begun after the first one.
        failure: error of the last loading; None when it succeeded.
        ended_s: Unix time at which the last life ended that was followed by another; None before that.
        end_reason: why it ended; empty where it reported nothing.
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
        self.ended_s: float | None = None
        self.end_reason = ""
        self._is_retired = False
        self._live = live
        self._pauses = pauses
        self._start_timeout_s = start_timeout_s
        self._ready = asyncio.Event()
        # Set when the last loading failed permanently.
        self._unusable = asyncio.Event()
        self._ready_since_s: float | None = None
        self._has_been_ready = False
        self._deadline: asyncio.Timeout | None = None
        self._task: asyncio.Task[None] | None = None
        # Number of waiters in ``wait_ready``; they raise the permanent failure.
        self._waiters = 0
        self._ended: asyncio.Future[None] | None = None

    @property
    def is_ready(self) -> bool:
        """True while a life has loaded its engine and lasts."""
        return self._ready.is_set()

    async def start(self) -> None:
        """Begin the first life and wait until it is ready.

        Raises:
            AgentError: the errors of ``wait_ready``. No life remains then.
        """
        self._task = asyncio.create_task(self.run(), name=f"{self.name}.supervisor")
        try:
            await Supervisor.wait_ready(self)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the present life and the task that ``start`` created."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def mark_ready(self) -> None:
        """Record that the present life has loaded its engine; has no effect between two lives."""
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
        """Record that the present life is ending and takes no more work."""
        self._ready.clear()

    async def wait_ready(self) -> None:
        """Wait for a life that is ready, also during a restart.

        Raises:
            ConfigError: the settings of the engine are wrong.
            EngineError: the engine does not load, or not in time, or supervision has ended.
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
            raise self.failure or self.error("the engine did not become ready in time")

    async def wait_ended(self) -> None:
        """Wait until the present life or the supervision has ended."""
        if self._ended is not None:
            await asyncio.wait({self._ended})

    def error(self, message: str, *, retryable: bool = True) -> EngineError:
        """Return an EngineError that names the engine."""
        return EngineError(f"{self.name}: {message}", engine=self.name, retryable=retryable)

    def retire(self) -> None:
        """Begin no further life; the present one continues."""
        self._is_retired = True

    async def run(self) -> None:
        """Run lives until cancelled, retired or given up. Called by ``start``, or by the owner's own task."""
        pauses, reported = self._pauses, ""
        pause_ms = pauses.first_ms
        loop = asyncio.get_running_loop()
        while not self._is_retired:
            self._ready_since_s = None
            ended = self._ended = loop.create_future()
            reason = ""
            try:
                await self._live_in_time()
            except Exception as error:  # boundary of the supervisor: the next life begins after any error
                reason = reported = self._report(error, reported)
            finally:
                self._ready.clear()
                ended.set_result(None)
            if self._is_retired or (self._unusable.is_set() and not self._has_been_ready):
                return
            ready_s = self._ready_since_s
            if ready_s is not None and (loop.time() - ready_s) * 1000 > pauses.settled_ms:
                pause_ms = pauses.first_ms
            self.restarts += 1
            self.ended_s, self.end_reason = time.time(), reason
            when = f"in {pause_ms} ms" if pause_ms else "at once"
            logger.warning(f"{self.name}: the engine process ended, restarting it {when}")
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(max(pause_ms * 2, pauses.least_ms), pauses.most_ms)

    async def _live_in_time(self) -> None:
        try:
            async with asyncio.timeout(self._start_timeout_s) as self._deadline:
                await self._live()
        except TimeoutError as error:
            raise self.error("the engine did not load in time") from error
        finally:
            self._deadline = None

    def _report(self, error: Exception, reported: str) -> str:
        if self._ready_since_s is None and isinstance(error, AgentError):
            self.failure = error
            if isinstance(error, ConfigError) or not getattr(error, "retryable", True):
                self._unusable.set()
        # Waiters raise the permanent failure themselves, so it is logged only once.
        if str(error) != reported and not (self._unusable.is_set() and self._waiters):
            kind = "" if isinstance(error, AgentError | OSError) else f"{type(error).__name__}: "
            logger.error(f"{self.name}: the engine process failed: {kind}{error}")
        return str(error)
