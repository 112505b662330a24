"""Call an engine in its own thread, each call within a deadline.

An engine that does not answer in time is stopped. When it does not come back within ``grace_ms``, it is given
up together with its thread, in which it is cleaned up if it ever returns. Any error that it raises, and an
invalid result (not finite, another shape, longer than its unit), becomes an ``EngineError``.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

import numpy as np
from loguru import logger

from parley.core.errors import AgentError, EngineError
from parley.models.omni import OmniEngine, OmniHost, Preparation, UnitResult
from parley.processors.duplex.tick import TickSettings

T = TypeVar("T")


async def open_engine(host: OmniHost, executor: Executor, within_ms: int) -> OmniEngine:
    """Open an engine in its thread; one that comes too late is given back there.

    Raises:
        EngineError: it was not opened in time.
    """
    opening = executor.submit(host.open_engine)
    opened = asyncio.wrap_future(opening)
    try:
        done, _ = await asyncio.wait({opened}, timeout=within_ms / 1000)
    except asyncio.CancelledError:
        executor.submit(lambda: opening.result().cleanup())
        raise
    if not done:
        executor.submit(lambda: opening.result().cleanup())
        raise EngineError("no engine became available in time", engine=type(host).__name__)
    return opened.result()


class EngineCalls:
    """Engine calls of one conversation.

    Args:
        engine: not prepared yet.
        executor: has one thread, for this conversation alone.
        settings: deadlines.

    Attributes:
        begun: set when the engine's thread has begun a unit.
    """

    def __init__(self, engine: OmniEngine, executor: Executor, settings: TickSettings) -> None:
        self._engine, self._executor, self._settings = engine, executor, settings
        self._name = type(engine).__name__
        self._unit_ms = max(settings.hang_ms, 2 * engine.unit_ms)
        self._finalizing: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.begun = asyncio.Event()

    async def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation."""
        self._loop = asyncio.get_running_loop()
        await self._call(self._engine.prepare, preparation, within_ms=self._settings.prepare_ms)

    async def renew(self, preparation: Preparation) -> None:
        """Begin another context."""
        await self.finalized()
        await self._call(self._engine.cleanup, within_ms=self._settings.prepare_ms)
        await self.prepare(preparation)

    async def unit(
        self, audio: np.ndarray, frames: tuple[np.ndarray, ...], *, must_listen: bool
    ) -> UnitResult:
        """Return the engine's result for a unit."""
        result = await self._call(self._hear_and_say, audio, frames, must_listen, within_ms=self._unit_ms)
        self._check(result)
        return result

    def finalize(self) -> None:
        """Begin to finalize the unit that was taken."""
        self._finalizing = self._submit(self._engine.finalize)

    async def finalized(self) -> None:
        """Return when the unit before is finalized."""
        finalizing, self._finalizing = self._finalizing, None
        if finalizing is not None:
            await self._answer(finalizing, "finalize", self._unit_ms)

    async def give_back(self) -> None:
        """Stop the engine and clean it up, in its thread and after any work that runs there."""
        self._engine.stop()
        try:
            future = self._submit(self._engine.cleanup)
        except RuntimeError:
            # The executor is shut down: the process is ending.
            return
        done, _ = await asyncio.wait({future}, timeout=self._settings.grace_ms / 1000)
        if not done:
            logger.warning(f"{self._name} did not return in time and is abandoned")
        elif isinstance(error := future.exception(), AgentError):
            logger.warning(f"{self._name} could not be released properly: {error}")
        elif error is not None:
            logger.opt(exception=error).error("an engine failed when it was released")

    def _hear_and_say(self, audio: np.ndarray, frames: tuple[np.ndarray, ...], forced: bool) -> UnitResult:
        """Run in the engine's thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.begun.set)
        self._engine.prefill(audio, frames)
        return self._engine.generate(force_listen=forced)

    def _check(self, result: UnitResult) -> None:
        name, engine = self._name, self._engine
        audio = result.audio if isinstance(result, UnitResult) else None
        if not isinstance(audio, np.ndarray):
            raise EngineError("a result has no audio", engine=name)
        if audio.ndim != 1 or audio.dtype != np.float32:
            raise EngineError(f"a result of {audio.dtype}, {audio.shape} is not audio", engine=name)
        if not np.isfinite(audio).all():
            raise EngineError("a result has non-finite values", engine=name)
        # Twice a unit is a wrong rate, or speech that cannot be said in time.
        if len(audio) > 2 * engine.unit_ms * engine.output_rate_hz // 1000:
            raise EngineError(f"a result of {len(audio)} samples is longer than its unit", engine=name)
        if not result.is_listen and not len(audio) and result.text:
            logger.debug(f"{name}: words without audio")

    async def _call(self, work: Callable[..., T], *arguments: Any, within_ms: int) -> T:
        return await self._answer(self._submit(work, *arguments), work.__name__, within_ms)

    def _submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        future = asyncio.wrap_future(self._executor.submit(work, *arguments))
        # Retrieve the error of a call that is no longer awaited.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    async def _answer(self, future: asyncio.Future[T], what: str, within_ms: int) -> T:
        done, _ = await asyncio.wait({future}, timeout=within_ms / 1000)
        what = what.strip("_")
        if done:
            try:
                return future.result()
            except AgentError:
                raise
            except Exception as error:  # An engine of another package may raise any error.
                raise EngineError(f"{what} failed: {type(error).__name__}", engine=self._name) from error
        self._engine.stop()
        await asyncio.wait({future}, timeout=self._settings.grace_ms / 1000)
        state = "and was stopped" if future.done() else "and does not stop"
        raise EngineError(f"{what} returned nothing within {within_ms} ms {state}", engine=self._name)
