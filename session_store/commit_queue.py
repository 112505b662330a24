"""Queue of the drafts of one open session: committed in order, several at once when the database is slow.

Inputs: drafts, with a waiter (``append``) or without (``record``). Outputs: the committed events to the
waiters and through ``on_committed``, before any waiter goes on. One task, ``run``, commits.

Slow: records without a waiter linger briefly, to share a commit. Unavailable: drafts are kept in order and
tried again with the same keys, up to ``max_pending``; beyond that ``append`` raises CapacityError and
``record`` logs the loss. Records of perception (``DROPPABLE``) have a budget of their own,
``max_pending_records``; when it is full, the oldest of them are dropped. Refused: drafts that can never be
stored are committed alone, so that they do not affect others. Cancelled: the drafts of a cancelled waiter
stay. Lost (another process claimed the session, it was deleted or closed): every waiter gets the error,
``on_lost`` is called, and nothing is written any more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loguru import logger

from parley.core.errors import (
    CapacityError,
    FencedError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
    UnknownSessionError,
)
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.rows import shown_id
from parley.session_store.store import SessionWriter

# After a whole deadline of the writer, which has backed off already.
RETRY_PAUSE_S = 0.2
# Reports of specialists, and the data for their replay. A later report supersedes an earlier one, and the
# relevant part of them is stored in the person's turn: the conversation is complete without them.
DROPPABLE = frozenset({Kind.ANNOTATION, Kind.JOURNAL})


class CommitLimits(NamedTuple):
    """Bounds of a queue; ``ConversationTuning`` has their meaning and defaults."""

    max_pending: int
    max_pending_records: int
    linger_ms: int


@dataclass(slots=True, eq=False)
class _Waiting:
    """Drafts that are being committed, with the waiter and whether they may be dropped.

    Attributes:
        done: result for the waiter; None without one.
        since_s: time of arrival, by the running loop.
    """

    drafts: Sequence[Draft]
    done: asyncio.Future[list[Event]] | None = None
    droppable: bool = False
    since_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def accept(self, events: list[Event]) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(events)

    def refuse(self, error: StoreError) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


class CommitQueue:
    """Queue of one claimed session.

    Args:
        writer: of the session.
        limits: bounds.
        on_committed: called with the events of each commit, some of which may have been stored before.
        on_lost: called when nothing is written any more.

    Attributes:
        dropped_records: number of perception records that were dropped so far.
        loss: error with which the session was lost; None while it is ours.
    """

    def __init__(
        self,
        writer: SessionWriter,
        limits: CommitLimits,
        *,
        on_committed: Callable[[list[Event]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.dropped_records = 0
        self.loss: StoreError | None = None
        self._writer, self._limits = writer, limits
        self._on_committed, self._on_lost = on_committed, on_lost
        self._shown_id = shown_id(writer.session_id)
        self._queue: deque[_Waiting] = deque()
        self._pending = 0
        # Part of the queue that may still be dropped: not what is on its way to the database.
        self._droppable: deque[_Waiting] = deque()
        self._pending_records = 0
        self._unlogged_drops = 0
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._hurry = False

    @property
    def is_idle(self) -> bool:
        """True while nothing waits to be committed."""
        return self._idle.is_set()

    @property
    def is_written(self) -> bool:
        """True when everything is committed except records of perception."""
        return self._pending == 0

    @property
    def oldest_s(self) -> float | None:
        """Time of arrival of the oldest pending draft, by the running loop; None without one."""
        return self._queue[0].since_s if self._queue else None

    def drafts(self) -> Iterator[Draft]:
        """Iterate over the pending drafts, in order."""
        return (draft for item in self._queue for draft in item.drafts)

    async def append(self, drafts: Sequence[Draft]) -> list[Event]:
        """Commit drafts after everything before them; they are durable when it returns.

        Raises:
            FencedError: another process claimed the session.
            UnknownSessionError: the session was deleted.
            CapacityError: too much waits for an unavailable database.
        """
        done: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        self._check_room(len(drafts))
        self._put(_Waiting(drafts, done))
        return await done

    def record(self, drafts: Sequence[Draft]) -> None:
        """Queue drafts to be committed soon, in order. Logs drafts that do not fit; never raises."""
        kept = sum(draft.kind not in DROPPABLE for draft in drafts)
        try:
            self._check_room(kept)
        except StoreClosedError as error:
            # No other process has the session: these are gone.
            logger.error(f"session {self._shown_id}: {len(drafts)} records are lost: {error}")
            return
        except StoreError:
            # The session is not ours any more, which was logged once; the facts belong to another process.
            logger.debug(
                f"session {self._shown_id}: dropped {len(drafts)} records of a session that was lost"
            )
            return
        except CapacityError as error:
            logger.error(f"session {self._shown_id}: {kept} records are lost: {error}")
            drafts = tuple(draft for draft in drafts if draft.kind in DROPPABLE)
        for draft in drafts:
            droppable = draft.kind in DROPPABLE
            if not droppable or self._make_room():
                self._put(_Waiting((draft,), droppable=droppable))

    async def flushed(self) -> None:
        """Wait until nothing is pending; nothing lingers meanwhile."""
        self._hurry = True
        self._more.set()
        try:
            await self._idle.wait()
        finally:
            self._hurry = False

    async def run(self) -> None:
        """Commit pending drafts until cancelled or lost."""
        try:
            while self.loss is None:
                await self._more.wait()
                self._more.clear()
                await self._linger()
                while self._queue and self.loss is None:
                    await self._commit_waiting(self._take())
                self._idle.set()
        except Exception:
            # Outermost level of this task. Waiters must be notified that no commit will follow.
            logger.exception(f"session {self._shown_id}: committing failed")
            self.lose(StoreError("the session can be written to no longer"))
        finally:
            if self.loss is None:
                self.lose(StoreClosedError("the session was closed in this process"))
            # Nothing is committed or lost after this. They are methods of the conversation that has this
            # queue: the cycle would keep both until the next full collection.
            del self._on_committed, self._on_lost

    def lose(self, error: StoreError) -> None:
        """End the queue: every waiter gets the error, and nothing is written any more."""
        if self.loss is not None:
            return
        self.loss = error
        self._log_drops()
        if self._queue and isinstance(error, StoreClosedError):
            # No other process has the session: the pending drafts are gone.
            count = sum(len(item.drafts) for item in self._queue)
            logger.error(f"session {self._shown_id}: {count} events are lost: {error}")
        self._droppable.clear()
        for item in list(self._queue):
            self._done_with(item).refuse(error)
        self._idle.set()
        self._on_lost()

    def _check_room(self, kept: int) -> None:
        if self.loss is not None:
            raise self.loss
        if kept and self._pending + kept > self._limits.max_pending:
            raise CapacityError(
                "the session store is unavailable and too many events are waiting for it",
                limit=self._limits.max_pending,
            )

    def _make_room(self) -> bool:
        """Make room for a droppable record by dropping the oldest; return False when none can be dropped."""
        if self._pending_records < self._limits.max_pending_records:
            return True
        self.dropped_records += 1
        self._unlogged_drops += 1
        if not self._droppable:
            return False
        self._done_with(self._droppable.popleft())
        return True

    def _put(self, waiting: _Waiting) -> None:
        if waiting.droppable:
            self._pending_records += len(waiting.drafts)
            self._droppable.append(waiting)
        else:
            self._pending += len(waiting.drafts)
        self._queue.append(waiting)
        self._idle.clear()
        self._more.set()

    def _take(self) -> list[_Waiting]:
        """Return all pending drafts, which are on their way to the database from here on."""
        self._droppable.clear()
        return list(self._queue)

    async def _linger(self) -> None:
        """Wait briefly for more drafts that can share the commit, as long as there is no waiter."""
        deadline_s = asyncio.get_running_loop().time() + self._limits.linger_ms / 1000
        try:
            async with asyncio.timeout_at(deadline_s):
                while not self._hurry and all(item.done is None for item in self._queue):
                    await self._more.wait()
                    self._more.clear()
        except TimeoutError:
            pass

    async def _commit_waiting(self, batch: list[_Waiting]) -> None:
        try:
            events = await self._commit([draft for item in batch for draft in item.drafts])
        except (FencedError, UnknownSessionError, StoreClosedError) as error:
            self.lose(error)
        except StoreError as error:
            # One of them can never be stored. Committed alone, it does not affect the others.
            if len(batch) > 1:
                for item in batch:
                    if self.loss is None:
                        await self._commit_waiting([item])
                return
            logger.error(f"session {self._shown_id}: {len(batch[0].drafts)} events were refused: {error}")
            if self.loss is None:
                self._done_with(batch[0]).refuse(error)
        else:
            self._settle(batch, events)

    async def _commit(self, drafts: list[Draft]) -> list[Event]:
        while True:
            try:
                return await self._writer.append(*drafts)
            except StoreClosedError:
                raise
            except StoreUnavailableError:
                # The writer has waited and backed off for its whole deadline; the drafts keep their keys.
                logger.error(
                    f"session {self._shown_id}: the store is unavailable, {len(drafts)} events are waiting"
                )
                await asyncio.sleep(RETRY_PAUSE_S)

    def _settle(self, batch: list[_Waiting], events: list[Event]) -> None:
        # The session may have been lost meanwhile, which has notified the waiters.
        if self.loss is None:
            # Their places are free for what follows from them, such as evidence, also after an outage that
            # has filled the queue.
            for item in batch:
                self._done_with(item)
        self._on_committed(events)
        taken = iter(events)
        for item in batch:
            item.accept([next(taken) for _ in item.drafts])
        self._log_drops()

    def _done_with(self, item: _Waiting) -> _Waiting:
        self._queue.remove(item)
        if item.droppable:
            self._pending_records -= len(item.drafts)
        else:
            self._pending -= len(item.drafts)
        return item

    def _log_drops(self) -> None:
        """Log the dropped records once per outage, at its end."""
        if self._unlogged_drops:
            logger.error(
                f"session {self._shown_id}: dropped {self._unlogged_drops} annotations while the store was "
                "unavailable"
            )
            self._unlogged_drops = 0
