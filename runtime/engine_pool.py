"""Pool of child processes with the same engine.

Decides which child a new stream goes to; a stream stays there until it is closed or fails. Owners: the pool
starts and closes its children. Full: a child that refused an utterance a moment ago is avoided. Dead: a child
that is not ready is avoided, and restarts itself. With spares: a loaded child without streams replaces a dead
one, which becomes the spare. A caller thus never waits for loading.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from loguru import logger

from parley.core.errors import AgentError, EngineError
from parley.runtime.engine_process import EngineProcess, ProcessStream

T = TypeVar("T")


class EnginePool(Generic[T]):
    """Children with the same engine; a new stream goes to the least loaded one that has room.

    Args:
        processes: children that take streams from the start.
        spares: children that replace one that died; started by ``start_spares``.

    Raises:
        ValueError: ``processes`` is empty.
    """

    def __init__(self, processes: list[EngineProcess[T]], *, spares: Sequence[EngineProcess[T]] = ()) -> None:
        if not processes:
            raise ValueError("a pool needs at least one process")
        self._active = list(processes)
        self._spares = list(spares)
        self._starting: asyncio.Task[None] | None = None
        self._has_started = asyncio.Event()

    @property
    def processes(self) -> tuple[EngineProcess[T], ...]:
        """Processes that take streams."""
        return tuple(self._active)

    @property
    def spares(self) -> tuple[EngineProcess[T], ...]:
        """Processes that replace one that dies."""
        return tuple(self._spares)

    @property
    def rate_hz(self) -> int:
        return self._active[0].rate_hz

    @property
    def is_ready(self) -> bool:
        """True when a stream that is opened now works at once."""
        return any(one.is_ready for one in (*self._active, *self._spares))

    @property
    def real_time_factor(self) -> float | None:
        """Real-time factor of the slowest child; None before any of them has worked."""
        known = [one.work.real_time_factor for one in self._active]
        return max((factor for factor in known if factor is not None), default=None)

    @property
    def utterances(self) -> int:
        """Number of streams with an utterance whose result is pending."""
        return sum(one.utterances for one in self._active)

    async def start(self) -> None:
        """Start all children at once. Raises the errors of ``EngineProcess.start``; no child remains then."""
        results = await asyncio.gather(*(one.start() for one in self._active), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await self.close()
            raise failures[0]
        self._has_started.set()

    def start_spares(self) -> None:
        """Load the spares after ``start`` is done, so that they delay no other child. Later calls have no
        effect.

        A spare that does not load is missing, which is logged.
        """
        if self._spares and self._starting is None:
            self._starting = asyncio.create_task(self._start_spares(), name="engine_pool.spares")

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> ProcessStream[T]:
        """Open a stream as ``UtteranceEngine.open_stream``. Waits for the first child that becomes ready."""
        chosen = self._choose()
        if not chosen.is_ready and len(self._active) + len(self._spares) > 1:
            await self._wait_ready()
            chosen = self._choose()
        return await chosen.open_stream(on_partial, on_failure)

    def open_now(self, on_failure: Callable[[EngineError], None]) -> ProcessStream[T]:
        """Open a stream as ``EngineProcess.open_now``; a ready spare replaces a child that is not ready."""
        return self._choose().open_now(on_failure)

    async def close(self) -> None:
        """End every child within its deadline, and the task that loads spares."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in (*self._active, *self._spares)))

    def _choose(self) -> EngineProcess[T]:
        for place, one in enumerate(self._active):
            spare = next((each for each in self._spares if each.is_ready), None)
            if one.is_ready or spare is None:
                continue
            self._spares.remove(spare)
            self._spares.append(one)
            self._active[place] = spare
        return min(self._active, key=lambda one: (not one.is_ready, one.is_full, one.load))

    async def _wait_ready(self) -> None:
        waits = [asyncio.ensure_future(one.wait_ready()) for one in (*self._active, *self._spares)]
        failure: EngineError | None = None
        try:
            for first in asyncio.as_completed(waits):
                try:
                    await first
                    return
                except EngineError as error:
                    failure = error
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        assert failure is not None
        raise failure

    async def _start_spares(self) -> None:
        await self._has_started.wait()
        for one in tuple(self._spares):
            try:
                await one.start()
            except AgentError as error:
                logger.warning(f"{one.name}: there is no spare process: {error}")
