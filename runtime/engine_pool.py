"""Several child processes with the same engine.

Decides which child a new stream goes to; a stream stays there until it is closed or fails. Owners: the pool
starts and closes its children. Full: a child that refused an utterance a moment ago is avoided. Dead: a child
that is not ready is avoided, and restarts itself.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from core.errors import EngineError
from runtime.engine_process import EngineProcess, ProcessStream

T = TypeVar("T")


class EnginePool(Generic[T]):
    """Several children with the same engine; a new stream goes to the least loaded one that has room.

    Raises:
        ValueError: no children.
    """

    def __init__(self, processes: list[EngineProcess[T]]) -> None:
        if not processes:
            raise ValueError("a pool needs a process")
        self._processes = tuple(processes)

    @property
    def processes(self) -> tuple[EngineProcess[T], ...]:
        return self._processes

    @property
    def rate_hz(self) -> int:
        return self._processes[0].rate_hz

    async def start(self) -> None:
        """Start all children at once. Raises what ``EngineProcess.start`` does; none is left then."""
        results = await asyncio.gather(*(one.start() for one in self._processes), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await self.close()
            raise failures[0]

    async def open_stream(
        self, on_partial: Callable[[T], None], on_failure: Callable[[EngineError], None]
    ) -> ProcessStream[T]:
        """See ``UtteranceEngine.open_stream``."""
        chosen = min(self._processes, key=lambda one: (not one.is_ready, one.is_full, one.load))
        return await chosen.open_stream(on_partial, on_failure)

    async def close(self) -> None:
        """End every child within its deadline."""
        await asyncio.gather(*(one.close() for one in self._processes))
