"""How a worker stands that has to be asked, for the pool. ``run`` is its caller's task.

In: answers to one question, asked every ``health_ms``, and at once by ``again`` and when a connection to the
worker ends over which nothing is sent: a process that is killed is known within milliseconds. Out:
``on_health`` with each answer; ``on_silent`` when none comes within ``silent_ms``: nobody is to be given it;
``on_dead`` when a connection is refused, or none has come for as long as ``patience_ms`` says.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from loguru import logger

from core.errors import PeerError
from models.omni.minicpm_worker.health import Health
from serving.pool.settings import PoolTuning

# A process that ends may still take a connection in its last moment.
BROKEN_S = 0.02
MOST_BROKEN = 3


class Asked(Protocol):
    """A worker that can be asked."""

    async def ask(self) -> Health:
        """How it stands.

        Raises:
            ConnectionRefusedError: it is not there.
            OSError: it is not reached, or breaks off.
            PeerError: what it says makes no sense.
        """
        ...

    async def attend(self) -> None:
        """Return when a connection to it has ended, or there is none. Never raises."""
        ...


class HealthWatch:
    """See the module.

    Args:
        settings: of the pool.
        worker: who is asked.
        on_health: told how it stands, and when that was asked, in seconds of the loop.
        on_silent: told that it does not answer.
        on_dead: told that it is not there any more, once behind each time that it was.
        patience_ms: how long it may be silent, as it stands.
    """

    def __init__(
        self,
        settings: PoolTuning,
        worker: Asked,
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
        # When it answered last; None while it is dead, or was never there.
        self._heard_s: float | None = None
        self._broken = 0

    def again(self) -> None:
        """Ask now."""
        self._again.set()

    async def run(self) -> None:
        """Watch it until cancelled."""
        self._heard_s = asyncio.get_running_loop().time()
        attending: asyncio.Task[None] | None = None
        is_hurried = False
        try:
            while True:
                self._again.clear()
                # A peer that ends every connection soon is not asked without a pause: no other until then.
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
        """Whether it answered."""
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
        except Exception as error:  # the edge of a watch: whatever it says, it is watched on
            logger.error(f"a worker is not watched: {type(error).__name__}: {error}")
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
