"""Watch the health of a worker that must be polled. The caller's task runs ``run``.

Inputs: answers to a poll, sent every ``health_ms``, at once after ``again``, and when an otherwise unused
connection to the worker ends. The end of a killed process is thus noticed within milliseconds. Outputs:
``on_health`` with each answer; ``on_silent`` when none comes within ``silent_ms``, so that the worker is
assigned to no conversation; ``on_dead`` when a connection is refused, or no answer has come for
``patience_ms``.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from loguru import logger

from parley.core.errors import PeerError
from parley.models.omni.minicpm_worker.health import Health
from parley.serving.pool.settings import PoolTuning

# A process that ends may still accept a connection at its last moment.
BROKEN_S = 0.02
MOST_BROKEN = 3


class HealthProbe(Protocol):
    """Worker that can be polled."""

    async def ask(self) -> Health:
        """Return its health.

        Raises:
            ConnectionRefusedError: it is not running.
            OSError: it is not reached, or disconnects.
            PeerError: its answer is invalid.
        """
        ...

    async def attend(self) -> None:
        """Return when a connection to it has ended, or there is none. Never raises."""
        ...


class HealthWatch:
    """Watch of one worker.

    Args:
        settings: of the pool.
        worker: to be polled.
        on_health: called with its health, and the loop time of the poll in seconds.
        on_silent: called when it does not answer.
        on_dead: called when it has stopped running, once each time.
        patience_ms: returns how long it may be silent in its present state.
    """

    def __init__(
        self,
        settings: PoolTuning,
        worker: HealthProbe,
        *,
        on_health: Callable[[Health, float], None],
        on_silent: Callable[[], None],
        on_dead: Callable[[], None],
        patience_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._on_health, self._on_silent, self._on_dead = on_health, on_silent, on_dead
        self._patience_ms = patience_ms
        self._again = asyncio.Event()
        # Time of its last answer; None while it is dead, or has never run.
        self._heard_s: float | None = None
        self._broken = 0

    def again(self) -> None:
        """Poll now."""
        self._again.set()

    async def run(self) -> None:
        """Watch the worker until cancelled."""
        self._heard_s = asyncio.get_running_loop().time()
        attending: asyncio.Task[None] | None = None
        is_hurried = False
        try:
            while True:
                self._again.clear()
                # A peer that soon ends every connection is not polled without a pause: no new connection
                # until then.
                if await self._ask() and attending is None and not is_hurried:
                    attending = asyncio.create_task(self._worker.attend(), name="pool.attend")
                await self._pause(attending)
                is_hurried = attending is not None and attending.done()
                if is_hurried:
                    attending = None
        finally:
            if attending is not None:
                attending.cancel()
                await asyncio.gather(attending, return_exceptions=True)

    async def _pause(self, attending: asyncio.Task[None] | None) -> None:
        is_breaking = 0 < self._broken <= MOST_BROKEN
        wait_s = BROKEN_S if is_breaking else self._settings.health_ms / 1000
        again = asyncio.create_task(self._again.wait(), name="pool.again")
        try:
            waited: set[asyncio.Task[Any]] = {again}
            if attending is not None:
                waited.add(attending)
            await asyncio.wait(waited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            again.cancel()

    async def _ask(self) -> bool:
        """Poll the worker; return whether it answered."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        try:
            async with asyncio.timeout(self._settings.silent_ms / 1000):
                health = await self._worker.ask()
        except ConnectionRefusedError:
            self._broken = 0
            self._is_gone()
        except TimeoutError:
            self._is_late()
        except (OSError, PeerError):
            self._broken += 1
            self._is_late()
        except Exception as error:  # the outermost level of a watch: it continues after any error
            logger.error(f"health checks of a worker failed: {type(error).__name__}: {error}")
            self._is_late()
        else:
            self._broken, self._heard_s = 0, loop.time()
            self._on_health(health, asked_s)
            return True
        return False

    def _is_late(self) -> None:
        self._on_silent()
        if self._heard_s is not None:
            silent_s = asyncio.get_running_loop().time() - self._heard_s
            if silent_s * 1000 >= self._patience_ms():
                self._is_gone()

    def _is_gone(self) -> None:
        if self._heard_s is not None:
            self._heard_s = None
            self._on_dead()
