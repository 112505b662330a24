"""Single task that writes: everything queued is committed in one transaction.

Decides what is committed together, what is tried again and which caller gets which result. Each caller waits
for its own append with its own deadline. The task takes the queued appends up to a size, session by session
in their order, and commits them. More arrives meanwhile: the slower the database, the larger the next
transaction.

* While the database is unavailable, everything stays in the queue. The task tries again after increasing
  pauses, and probes when the queue is empty, so that ``available`` becomes true again.
* Rows that the database refuses are found by committing each append alone; the others are stored.
* A caller that is cancelled, or whose deadline passes, removes its append from the queue. If that is in a
  transaction already, it may be committed all the same.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from loguru import logger

from parley.core.clock import Clock
from parley.core.durations import DurationCounts
from parley.core.errors import StoreClosedError, StoreError, StoreUnavailableError
from parley.session_store.committing import Append, Outcome, commit_appends, touch
from parley.session_store.database import Database, LockedError, Work
from parley.session_store.events import Event
from parley.session_store.settings import StoreTuning

T = TypeVar("T")

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
# For a row that another process holds for a claim, which takes a few milliseconds.
LOCKED_PAUSE_S = 0.01


@dataclass(slots=True, eq=False)
class _Waiting(Generic[T]):
    """Append, or transaction of its own, with its waiter."""

    what: T
    since_us: int
    deadline_s: float
    done: asyncio.Future[Any]

    def settle(self, outcome: object) -> None:
        if self.done.done():
            return
        if isinstance(outcome, BaseException):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)


class GroupCommit:
    """Commits appends together. One instance per store, which starts and ends it.

    Args:
        database: open.
        settings: sizes and deadlines.
        clock: measures waits.
        committed: called with the sessions that have new events.

    Attributes:
        times: times from an append to its commit.
    """

    def __init__(
        self,
        database: Database,
        settings: StoreTuning,
        clock: Clock,
        committed: Callable[[Iterable[str]], None],
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._committed = committed
        self.times = DurationCounts()
        self._lanes: dict[str, deque[_Waiting[Append]]] = {}
        self._jobs: deque[_Waiting[Work[Any]]] = deque()
        self._batch: list[_Waiting[Append]] = []
        self._slots = asyncio.Semaphore(settings.max_queue)
        # Admitted callers by deadline: all have the same time limit, so that is the order of arrival. One
        # timer for all is several times cheaper than one each, for which every append would pay.
        self._inside: dict[_Waiting[Any], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._away = False
        self._writing_since_us: int | None = None
        self._pause_s = FIRST_PAUSE_S
        self._task: asyncio.Task[None] | None = None

    @property
    def available(self) -> bool:
        """True when the last transaction reached the database, and none has been on its way for too long."""
        return not self._away and not self._is_stuck

    @property
    def _is_stuck(self) -> bool:
        """True while a transaction has taken longer than it may.

        A disk that does not answer holds the thread of SQLite, which nothing can interrupt.
        """
        since_us = self._writing_since_us
        return since_us is not None and self._clock.now_us() - since_us > self._settings.attempt_s * 1_000_000

    @property
    def oldest_wait_s(self) -> float:
        """Wait of the oldest queued write so far; 0 when there is none."""
        oldest = min((item.since_us for item in self._items() if not item.done.done()), default=None)
        return 0.0 if oldest is None else (self._clock.now_us() - oldest) / 1_000_000

    def start(self) -> None:
        """Start the task that writes."""
        self._task = asyncio.create_task(self._run(), name="parley.session_store.writer")

    async def append(self, append: Append) -> list[Event]:
        """Commit rows of one claim; durable when it returns.

        Raises:
            FencedError, UnknownSessionError, StoreUnavailableError, StoreError: nothing was acknowledged.
        """
        since_us = self._clock.now_us()
        events = cast(list[Event], await self._wait_for(append, self._put_append))
        self.times.add((self._clock.now_us() - since_us) / 1_000_000)
        return events

    async def run(self, work: Work[T]) -> T:
        """Run a transaction of its own between the others.

        Raises:
            StoreError: as the work raises, or as ``append`` does.
        """
        return cast(T, await self._wait_for(work, self._jobs.append))

    async def close(self) -> None:
        """Commit queued writes within the deadline, and refuse the rest."""
        self._closed = True
        if self._task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.close_s):
                await self._idle.wait()
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _wait_for(self, what: T, put: Callable[[_Waiting[T]], object]) -> object:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.append_deadline_s
        since_us = self._clock.now_us()
        self._check_open()
        if self._slots.locked():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._slots.acquire()
            except TimeoutError as error:
                raise self._too_late() from error
        else:
            await self._slots.acquire()
        item = _Waiting(what, since_us, deadline, loop.create_future())
        self._inside[item] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire, deadline)
        try:
            self._check_open()
            put(item)
            self._idle.clear()
            self._work.set()
            return await item.done
        finally:
            del self._inside[item]
            if not self._inside and self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._slots.release()

    def _put_append(self, item: _Waiting[Append]) -> None:
        self._lanes.setdefault(item.what.session_id, deque()).append(item)

    def _expire(self, now_s: float) -> None:
        """Refuse the writes whose deadline has passed at ``now_s``, and set the timer for the next one."""
        self._timer = None
        for item in self._inside:
            if item.deadline_s > now_s:
                # Most writes that were queued when the timer was set have left since.
                loop = asyncio.get_running_loop()
                self._timer = loop.call_at(item.deadline_s, self._expire, item.deadline_s)
                return
            item.settle(self._too_late())

    def _check_open(self) -> None:
        if self._closed or self._task is None or self._task.done():
            raise StoreClosedError("the session store is closed")

    def _too_late(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the database took nothing for {self._settings.append_deadline_s:g} s")

    def _items(self) -> Iterable[_Waiting[Any]]:
        yield from self._batch
        yield from self._jobs
        for lane in self._lanes.values():
            yield from lane

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                try:
                    # The round met only locked rows: their holder will be done in a moment.
                    if not await self._round():
                        await asyncio.sleep(LOCKED_PAUSE_S)
                except StoreUnavailableError as error:
                    self._is_away(error)
                    await asyncio.sleep(self._pause_s)
                    self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
                except StoreError as error:
                    # Error of the probe: appends get their errors themselves. The task must survive it.
                    logger.error(f"session store: {error}")
                    await asyncio.sleep(LONGEST_PAUSE_S)
                except Exception as error:
                    # Unexpected error. Its text is not logged, because it may quote the conversation.
                    logger.error(f"session store: the writer failed ({type(error).__name__}) and continues")
                    await asyncio.sleep(LONGEST_PAUSE_S)
        finally:
            for item in list(self._items()):
                item.settle(StoreClosedError("the session store was closed before this was stored"))

    async def _wait_for_work(self) -> None:
        if not any(not item.done.done() for item in self._items()):
            self._lanes.clear()
            self._jobs.clear()
            self._work.clear()
            self._idle.set()
            if not self._away:
                await self._work.wait()

    async def _round(self) -> bool:
        """Run each job in its own transaction, and the appends in one.

        Returns:
            False when other processes hold all their rows locked.
        """
        if not self._jobs and not self._lanes:
            await self._write(touch)
            self._is_here()
            return True
        progress = False
        for _ in range(len(self._jobs)):
            progress |= await self._do(self._jobs[0])
        self._batch = self._take()
        try:
            if self._batch:
                outcomes = await self._commit([item.what for item in self._batch])
                self._batch, decided = self._settle(self._batch, outcomes)
                progress |= decided
        finally:
            # Undecided appends go back to the front, in their order.
            for item in reversed(self._batch):
                self._lanes.setdefault(item.what.session_id, deque()).appendleft(item)
            self._batch = []
        return progress

    async def _write(self, work: Work[T]) -> T:
        """Run one transaction."""
        self._writing_since_us = self._clock.now_us()
        try:
            return await self._database.write(work)
        finally:
            self._writing_since_us = None

    async def _do(self, job: _Waiting[Work[Any]]) -> bool:
        """Run the first job. It stays in the queue while the database is unavailable."""
        if job.done.done():
            self._jobs.popleft()
            return True
        try:
            outcome: object = await self._write(job.what)
        except LockedError:
            self._jobs.rotate(-1)
            return False
        except StoreUnavailableError:
            raise
        except Exception as error:
            # The error goes to the caller of this work; the others proceed.
            outcome = error
        self._jobs.popleft()
        job.settle(outcome)
        self._is_here()
        return True

    def _take(self) -> list[_Waiting[Append]]:
        """Return the appends of the next transaction: the first ones of every session, in their order."""
        batch: list[_Waiting[Append]] = []
        size = 0
        for session_id, lane in list(self._lanes.items()):
            served = False
            while lane and (not batch or size + len(lane[0].what.rows) <= self._settings.batch_events):
                item = lane.popleft()
                if not item.done.done():
                    batch.append(item)
                    size += len(item.what.rows)
                    served = True
            if lane and not served:
                # The first append that does not fit is the first of the next transaction.
                break
            del self._lanes[session_id]
            if lane:
                # The session has more than fits: its turn comes again after the others.
                self._lanes[session_id] = lane
                break
        return batch

    async def _commit(self, appends: list[Append]) -> list[Outcome]:
        try:
            outcomes = await self._write(partial(commit_appends, appends=appends))
        except StoreUnavailableError:
            raise
        except Exception:
            # As a rule a key that is stored already. Below, any other error reaches its own caller.
            outcomes = await self._commit_with_care(appends)
        self._is_here()
        return outcomes

    async def _commit_with_care(self, appends: list[Append]) -> list[Outcome]:
        """Commit with keys looked up and, when that fails too, each append alone."""
        try:
            return await self._write(partial(commit_appends, appends=appends, look_up=True))
        except StoreUnavailableError:
            raise
        except Exception as error:
            if len(appends) == 1:
                return [error]
        outcomes: list[Outcome] = []
        locked: dict[str, Outcome] = {}
        for append in appends:
            # Later appends of a session must not overtake one that has to be tried again.
            outcome = locked.get(append.session_id) or (await self._commit_with_care([append]))[0]
            if isinstance(outcome, LockedError):
                locked[append.session_id] = outcome
            outcomes.append(outcome)
        return outcomes

    def _settle(
        self, batch: list[_Waiting[Append]], outcomes: list[Outcome]
    ) -> tuple[list[_Waiting[Append]], bool]:
        """Settle the callers; return the appends to be tried again, and whether anything was decided."""
        again: list[_Waiting[Append]] = []
        written: set[str] = set()
        for item, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, LockedError):
                again.append(item)
                continue
            item.settle(outcome)
            if not isinstance(outcome, Exception):
                written.add(item.what.session_id)
        self._committed(written)
        return again, len(again) < len(batch)

    def _is_away(self, error: StoreError) -> None:
        if not self._away:
            logger.error(f"session store: {error}; trying again")
        self._away = True

    def _is_here(self) -> None:
        if self._away:
            logger.info("session store: the database answers again")
        self._away = False
        self._pause_s = FIRST_PAUSE_S
