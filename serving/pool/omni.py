"""Full-duplex engines of a pool of workers, as a call uses them: waited for, leased, given back.

``PooledOmni`` is of the process, ``PooledConversation`` of one call. ``place`` waits in the queue and leases,
in a thread, because the lease is the socket of the conversation and its other side blocks; a worker that does
not take it is told to the pool, and the wait goes on at the head. Owns no task. Cancelled: the place in the
queue, or the worker, is given back.
"""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Executor

from loguru import logger
from pydantic import Field

from core.errors import AgentError, CapacityError, EngineError
from models.omni import OmniEngine
from models.omni.hosted.engine import HostedSettings, WorkerOmniEngine
from runtime.engine_hosting.messages import EngineMessage
from runtime.engine_thread import EngineThread
from serving.pool.pool import NotPlaced, Placed, Pool
from serving.scheduler.wants import Place, Reason, Refused, Task, Want

ENGINE = "pool"
# Told where it stands in the queue, why it gets no worker, and None when it has one.
OnQueue = Callable[[Place | NotPlaced | None], None]
# Somebody wants this conversation not to wait: it does not ask again.
FINAL = (Reason.CANCELLED, Reason.WITHDRAWN)
# Workers that do not take a conversation, in a row, and the pool is not what it says.
MOST_REFUSALS = 10


class PoolOmniSettings(HostedSettings):
    """Full-duplex engines in the workers of this deployment."""

    open_timeout_s: float = Field(1, gt=0, le=60, description="longest wait for a lease")
    unit_timeout_s: float = Field(
        2.5, gt=0, le=60, description="longest wait for what becomes of a unit: a worker that is behind hangs"
    )
    kv_bytes: int = Field(0, ge=0, description="memory that a conversation may come to need on its worker")
    sees: bool = Field(False, description="its engines look at the caller's camera")


class PooledOmni:
    """The host of a process. Its engines are had by ``of_call``.

    Args:
        pool: of workers.
        settings: see the model.
    """

    sessions: int | None = None

    def __init__(self, pool: Pool, settings: PoolOmniSettings) -> None:
        self.pool = pool
        self.settings = settings
        self.takes_frames = settings.sees

    def open_engine(self) -> OmniEngine:
        """See ``OmniHost``.

        Raises:
            EngineError: always: a worker has to be waited for.
        """
        raise EngineError(f"{ENGINE}: its engines are had by a call", engine=ENGINE)

    def close(self) -> None:
        """See ``OmniHost``: the pool closes its workers."""

    def of_call(
        self, session_id: str, epoch: int, *, task: Task = Task.OMNI_DUPLEX, on_queue: OnQueue | None = None
    ) -> "PooledConversation":
        """The host of one call.

        Args:
            session_id: of its session.
            epoch: of that, which fences an owner that was superseded.
            task: what for.
            on_queue: told where it stands in the queue, when it has a worker, and why it gets none; must
                not block.
        """
        return PooledConversation(self, session_id, epoch, task=task, on_queue=on_queue)


class PooledConversation:
    """See ``OmniHost`` and ``Placing``."""

    sessions: int | None = 1

    def __init__(
        self,
        host: PooledOmni,
        session_id: str,
        epoch: int,
        *,
        task: Task,
        on_queue: OnQueue | None,
        executors: Callable[[], Executor] = lambda: EngineThread("lease"),
    ) -> None:
        self._pool, self._settings = host.pool, host.settings
        self.takes_frames = host.takes_frames
        self._session_id, self._epoch = session_id, epoch
        self._task = task
        self._sees = host.takes_frames
        self._on_queue = on_queue
        self._executors = executors
        self._placed: Placed | None = None
        # One that failed waits at the head of the queue under its old ticket.
        self._failed: Placed | None = None
        self._engine: OmniEngine | None = None
        self._taken_out: Reason | None = None
        self._never = asyncio.Event()

    @property
    def lost(self) -> asyncio.Event:
        """See ``Placing``."""
        return self._never if self._placed is None else self._placed.lost

    async def place(self) -> None:
        """See ``Placing``.

        Raises:
            NotPlaced: there will be no worker.
            EngineError: none of those that were had takes the conversation.
        """
        news: NotPlaced | None = None
        try:
            if self._taken_out is not None:
                # At the end of the queue it would wait all the same, and whoever took it out would have to
                # again.
                raise NotPlaced(Refused("", self._taken_out))
            await self._place()
        except NotPlaced as refused:
            news = refused
            if refused.reason in FINAL:
                self._taken_out = refused.reason
            raise
        finally:
            if self._on_queue is not None:
                self._on_queue(news)

    async def _place(self) -> None:
        placed = await self._had()
        for _ in range(MOST_REFUSALS):
            try:
                self._engine = await self._leased(placed)
            except AgentError as error:
                logger.info(f"{placed.lease.worker} does not take the conversation: {error}")
                self._pool.not_taken(placed, busy=isinstance(error, CapacityError))
                placed = await self._again(placed)
            except BaseException:
                self._pool.release(placed, well=False)
                raise
            else:
                self._placed = placed
                return
        self._pool.release(placed, well=False)
        raise EngineError(f"{ENGINE}: no worker takes the conversation", engine=ENGINE)

    def open_engine(self) -> OmniEngine:
        """See ``OmniHost``: the one that was placed."""
        engine, self._engine = self._engine, None
        if engine is None:
            raise EngineError(f"{ENGINE}: no worker was waited for", engine=ENGINE)
        return engine

    def over(self, *, well: bool) -> None:
        """See ``Placing``."""
        placed, self._placed = self._placed, None
        engine, self._engine = self._engine, None
        if placed is None:
            return
        if engine is not None:
            # It was had and never opened.
            thread = self._executors()
            thread.submit(engine.cleanup)
            thread.shutdown(wait=False)
        if well:
            self._pool.release(placed, well=True)
        else:
            # Suspect until it says that it is not; the conversation waits at the head.
            self._pool.failed(placed)
            self._failed = placed

    def leave(self) -> None:
        """See ``Placing``."""
        self.close()

    def close(self) -> None:
        """The call is over: it waits for nothing any more."""
        failed, self._failed = self._failed, None
        if failed is not None:
            self._pool.release(failed, well=False)

    async def _had(self) -> Placed:
        failed, self._failed = self._failed, None
        if failed is not None:
            return await self._again(failed)
        want = Want(
            secrets.token_urlsafe(18), self._session_id, self._task, self._epoch, self._settings.kv_bytes
        )
        return await self._pool.acquire(want, on_place=self._on_queue)

    async def _again(self, placed: Placed) -> Placed:
        return await self._pool.regain(placed, on_place=self._on_queue)

    async def _leased(self, placed: Placed) -> OmniEngine:
        thread = self._executors()
        try:
            if placed.server is not None:
                return await placed.server.opened(thread, sees=self._sees)
            opening = thread.submit(lambda: WorkerOmniEngine(_There(self._pool, placed), self._settings))
            try:
                return await asyncio.wrap_future(opening)
            except asyncio.CancelledError:
                # What is opened too late is given back there.
                thread.submit(lambda: opening.result().cleanup())
                raise
        finally:
            thread.shutdown(wait=False)


class _There:
    """Goes where it was placed, with one context after the other, while the worker is there."""

    def __init__(self, pool: Pool, placed: Placed) -> None:
        self._pool = pool
        self._placed = placed

    def lease(self) -> tuple[str, EngineMessage]:
        if self._placed.lost.is_set():
            raise EngineError(f"{ENGINE}: the worker is gone", engine=ENGINE)
        return self._placed.url, self._pool.first(self._placed.lease)
