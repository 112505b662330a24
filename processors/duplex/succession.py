"""Run a conversation with one engine after another, until none is left.

When an engine fails it is given up: the caller hears an apology, and the next one of the hosts continues with
the conversation so far. When ``most_failures`` come in a row without ``recovered_units`` between them,
``EnginesGivenUp`` is published, and nothing is said any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from loguru import logger

from parley.core.call_events import EnginesGivenUp
from parley.core.errors import AgentError, CapacityError, EngineError
from parley.models.omni import OmniEngine, OmniHost, Placing, Preparation
from parley.processors.duplex.engine_calls import open_engine
from parley.processors.duplex.settings import DuplexTuning
from parley.runtime.engine_thread import EngineThread
from parley.runtime.event_stream import CallEvents


@dataclass(frozen=True)
class EngineSource:
    """Source of the engines of a call.

    Attributes:
        hosts: hosts of engines; those after the first are used when it fails.
        prepare: returns how a conversation begins, with the conversation so far; for each engine and context.
        executors: makes the thread of an engine.
    """

    hosts: Sequence[OmniHost]
    prepare: Callable[[], Awaitable[Preparation]]
    executors: Callable[[], Executor] = lambda: EngineThread("omni")


class SuccessiveConversation(Protocol):
    """Conversation that engines hold, one after another."""

    ticks: int

    async def hold(self, engine: OmniEngine, executor: Executor, preparation: Preparation) -> None:
        """Hold the conversation with an engine until that fails."""
        ...

    def refused(self) -> None:
        """Note that there is no room for an engine."""
        ...

    async def failed(self, *, is_first: bool) -> None:
        """Handle the failure of an engine; ``is_first``: after one that held a conversation."""
        ...


class EngineSuccession:
    """Sequence of the engines of one call. ``run`` is its caller's task.

    Args:
        source: source of the engines.
        conversation: the conversation that they hold.
        events: events of the call.
        settings: limits on failures, and deadlines.
        name: name for the log.
    """

    def __init__(
        self,
        source: EngineSource,
        conversation: SuccessiveConversation,
        events: CallEvents,
        settings: DuplexTuning,
        name: str,
    ) -> None:
        self._source, self._conversation, self._events = source, conversation, events
        self._settings, self._name = settings, name

    async def run(self) -> None:
        """Hold the conversation until no engine is left."""
        hosts, most = self._source.hosts, self._settings.most_failures
        failures = place = 0
        last: Exception = EngineError("no engine", engine="omni")
        while failures < most:
            host, ticks = hosts[place % len(hosts)], self._conversation.ticks
            try:
                await self._with_host(host)
            except CapacityError as error:
                # There is no room, and there will be none: use the next one, or none at all.
                logger.warning(f"{self._name}: an engine was refused: {error}")
                last = error
                self._conversation.refused()
                failures = most if len(hosts) == 1 else failures + 1
            except Exception as error:  # the boundary of a conversation: the caller hears an apology
                last, units = error, self._conversation.ticks - ticks
                failures = 1 if units >= self._settings.recovered_units else failures + 1
                logger.opt(exception=None if isinstance(error, AgentError) else error).error(
                    f"{self._name}: giving an engine up after {failures} failures in a row: "
                    f"{type(error).__name__}: {error}"
                )
                await self._conversation.failed(is_first=failures == 1)
                if not units and failures < most:
                    await asyncio.sleep(failures * self._settings.retry_ms / 1000)
            if isinstance(host, Placing) and len(hosts) > 1:
                host.leave()
            place += 1
        self._events.publish(EnginesGivenUp(self._events.now_ms(), last))

    async def _with_host(self, host: OmniHost) -> None:
        """Hold the conversation until the engine fails, or the conversation is over."""
        placing = host if isinstance(host, Placing) else None
        if placing is None:
            await self._with_engine(host)
            return
        await placing.place()
        well = False
        try:
            await self._until_lost(host, placing)
        except asyncio.CancelledError:
            # The call is over, and not because of the engine.
            well = True
            raise
        finally:
            placing.over(well=well)

    async def _until_lost(self, host: OmniHost, placing: Placing) -> None:
        """Hold the conversation; a worker that is gone is noticed before the engine's next call fails."""
        conversation = asyncio.create_task(self._with_engine(host), name=f"{self._name}::conversation")
        lost = asyncio.create_task(placing.lost.wait(), name=f"{self._name}::lost")
        try:
            await asyncio.wait({conversation, lost}, return_when=asyncio.FIRST_COMPLETED)
            if conversation.done():
                conversation.result()
            raise EngineError("the worker is lost", engine=type(host).__name__)
        finally:
            for task in (conversation, lost):
                task.cancel()
            await asyncio.gather(conversation, lost, return_exceptions=True)

    async def _with_engine(self, host: OmniHost) -> None:
        preparation, executor = await self._source.prepare(), self._source.executors()
        try:
            engine = await open_engine(host, executor, self._settings.tick.prepare_ms)
            await self._conversation.hold(engine, executor, preparation)
        finally:
            executor.shutdown(wait=False)
