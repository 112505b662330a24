"""Full-duplex engines in a pool of workers, for calls: waited for, leased, released.

``PooledOmni`` belongs to the process, ``PooledConversation`` to one call. ``place`` waits in the queue and
leases a worker. It leases in a thread, because the lease is the socket of the conversation and the engine's
side of it blocks. A worker that does not accept is reported to the pool, and the wait continues at the head
of the queue. Owns no task. Cancelled: the place in the queue, or the worker, is released.
"""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Executor

from loguru import logger
from pydantic import Field

from parley.core.call_choices import CLONING
from parley.core.errors import AgentError, CapacityError, EngineError
from parley.models.omni import OmniEngine
from parley.models.omni.hosted.engine import HostedSettings, WorkerOmniEngine
from parley.runtime.engine_hosting.messages import EngineMessage
from parley.runtime.engine_thread import EngineThread
from parley.serving.pool.pool import Assignment, AssignmentRefused, Pool
from parley.serving.scheduler.types import QueuePlace, RefusalReason, RequestRefused, Task, WorkerRequest

ENGINE = "pool"
# Called with the place in the queue, with the reason for getting no worker, or with None when there is one.
OnQueue = Callable[[QueuePlace | AssignmentRefused | None], None]
# An operator or the client has ended the wait: the conversation does not request another worker.
FINAL = (RefusalReason.CANCELLED, RefusalReason.WITHDRAWN)
# Consecutive workers that refuse a conversation, after which the pool's information is considered wrong.
MOST_REFUSALS = 10


class PoolOmniSettings(HostedSettings):
    """Full-duplex engines in the workers of this deployment."""

    open_timeout_s: float = Field(1, gt=0, le=60, description="longest wait for a lease")
    unit_timeout_s: float = Field(
        2.5,
        gt=0,
        le=60,
        description="longest wait for the result of a unit; a worker that exceeds it has hung",
    )
    kv_bytes: int = Field(0, ge=0, description="memory that a conversation may need on its worker")
    sees: bool = Field(False, description="the workers' engines use the caller's camera")


class PooledOmni:
    """Host of a process. ``of_call`` returns the host that opens engines.

    Args:
        pool: of workers.
        settings: of the engines.
    """

    sessions: int | None = None
    choices = CLONING

    def __init__(self, pool: Pool, settings: PoolOmniSettings) -> None:
        self.pool = pool
        self.settings = settings
        self.takes_frames = settings.sees

    def open_engine(self) -> OmniEngine:
        """Refuse to open an engine (``OmniHost``).

        Raises:
            EngineError: always, because a worker must be waited for.
        """
        raise EngineError(f"{ENGINE}: a worker has to be requested from the pool first", engine=ENGINE)

    def close(self) -> None:
        """Do nothing (``OmniHost``): the pool closes its workers."""

    def of_call(
        self, session_id: str, epoch: int, *, task: Task = Task.OMNI_DUPLEX, on_queue: OnQueue | None = None
    ) -> "PooledConversation":
        """Return the host of one call.

        Args:
            session_id: of its session.
            epoch: of the session, which fences a superseded owner.
            task: type of the conversation.
            on_queue: called with its place in the queue, when it has a worker, and with the reason for
                getting none; must not block.
        """
        return PooledConversation(self, session_id, epoch, task=task, on_queue=on_queue)


class PooledConversation:
    """Host of one call (``OmniHost`` and ``Placing``)."""

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
        self._placed: Assignment | None = None
        # Assignment that failed; it waits at the head of the queue under its old ticket.
        self._failed: Assignment | None = None
        self._engine: OmniEngine | None = None
        self._taken_out: RefusalReason | None = None
        self._never = asyncio.Event()

    @property
    def lost(self) -> asyncio.Event:
        """Set when the worker is lost (``Placing``)."""
        return self._never if self._placed is None else self._placed.lost

    async def place(self) -> None:
        """Wait for a worker (``Placing``).

        Raises:
            AssignmentRefused: there will be no worker.
            EngineError: none of the assigned workers accepts the conversation.
        """
        news: AssignmentRefused | None = None
        try:
            if self._taken_out is not None:
                # It would only wait again at the end of the queue, and would have to be removed again.
                raise AssignmentRefused(RequestRefused("", self._taken_out))
            await self._place()
        except AssignmentRefused as refused:
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
                logger.info(f"{placed.lease.worker} does not accept the conversation: {error}")
                self._pool.lease_rejected(placed, busy=isinstance(error, CapacityError))
                placed = await self._again(placed)
            except BaseException:
                self._pool.release(placed, well=False)
                raise
            else:
                self._placed = placed
                return
        self._pool.release(placed, well=False)
        raise EngineError(f"{ENGINE}: no worker accepted the conversation", engine=ENGINE)

    def open_engine(self) -> OmniEngine:
        """Return the engine of the assigned worker (``OmniHost``)."""
        engine, self._engine = self._engine, None
        if engine is None:
            raise EngineError(f"{ENGINE}: no worker was requested", engine=ENGINE)
        return engine

    def over(self, *, well: bool) -> None:
        """Release the worker, in good order or as failed (``Placing``)."""
        placed, self._placed = self._placed, None
        engine, self._engine = self._engine, None
        if placed is None:
            return
        if engine is not None:
            # It was leased and never opened.
            thread = self._executors()
            thread.submit(engine.cleanup)
            thread.shutdown(wait=False)
        if well:
            self._pool.release(placed, well=True)
        else:
            # The worker is suspect until it reports otherwise; the conversation waits at the head.
            self._pool.failed(placed)
            self._failed = placed

    def leave(self) -> None:
        """Stop waiting (``Placing``)."""
        self.close()

    def close(self) -> None:
        """End the wait of a call that is over."""
        failed, self._failed = self._failed, None
        if failed is not None:
            self._pool.release(failed, well=False)

    async def _had(self) -> Assignment:
        failed, self._failed = self._failed, None
        if failed is not None:
            return await self._again(failed)
        want = WorkerRequest(
            secrets.token_urlsafe(18), self._session_id, self._task, self._epoch, self._settings.kv_bytes
        )
        return await self._pool.acquire(want, on_place=self._on_queue)

    async def _again(self, placed: Assignment) -> Assignment:
        return await self._pool.regain(placed, on_place=self._on_queue)

    async def _leased(self, placed: Assignment) -> OmniEngine:
        thread = self._executors()
        try:
            if placed.server is not None:
                return await placed.server.opened(thread, sees=self._sees)
            opening = thread.submit(lambda: WorkerOmniEngine(_There(self._pool, placed), self._settings))
            try:
                return await asyncio.wrap_future(opening)
            except asyncio.CancelledError:
                # An engine that is opened too late is released there.
                thread.submit(lambda: opening.result().cleanup())
                raise
        finally:
            thread.shutdown(wait=False)


class _There:
    """Lease source for the assigned worker, as long as it is running.

    Each connection gets a new first message.
    """

    def __init__(self, pool: Pool, placed: Assignment) -> None:
        self._pool = pool
        self._placed = placed

    def lease(self) -> tuple[str, EngineMessage]:
        if self._placed.lost.is_set():
            raise EngineError(f"{ENGINE}: the worker is lost", engine=ENGINE)
        return self._placed.url, self._pool.first(self._placed.lease)
