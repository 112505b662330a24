"""Session store: durable sessions with their claims and timelines.

Decides who may write and what a caller receives. ``writer`` commits, ``committing`` and ``reading`` hold the
statements, and ``database`` runs them on SQLite or PostgreSQL. ``SessionReader`` is the part that changes
nothing.

    store = await SessionStore.open(StoreSettings(url="sqlite:///sessions.db"))
    session = await store.create()
    writer = await store.claim(session.id)
    [event] = await writer.append(Draft(Kind.USER_TURN, {"text": "hello"}, now_us, now_us, "user"))
"""

import asyncio
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from loguru import logger

from parley.core.clock import Clock
from parley.core.durations import DurationCounts
from parley.core.errors import SessionExistsError, StoreError, StoreUnavailableError, UnknownSessionError
from parley.core.tuning import tuned
from parley.runtime.loop_clock import LoopClock
from parley.session_store.call_links import (
    CallLink,
    LostStream,
    count_lost_stream,
    drop_call_link,
    put_call_link,
    read_call_link,
)
from parley.session_store.callers import (
    drop_callers,
    put_caller,
    put_code,
    read_caller,
    take_code,
)
from parley.session_store.claim import SessionClock, SessionWriter, wall_us
from parley.session_store.committing import (
    claim_session,
    delete_oldest,
    delete_session,
    insert_session,
    insert_whole,
)
from parley.session_store.database import Database, ReadDatabase, Work, database, read_only_database
from parley.session_store.events import Event, Kind
from parley.session_store.followers import SessionDeletions, SessionFollowers, listen
from parley.session_store.reading import (
    JsonPage,
    TimelinePage,
    read_events,
    read_json_events,
    read_json_timeline,
    read_keyed,
    read_newest,
    read_next_events,
    read_session,
    read_sessions,
    read_timeline,
)
from parley.session_store.removal import RemovedRows
from parley.session_store.retention import US_PER_DAY, RetentionClock
from parley.session_store.rows import MAX_INT, SESSION_ID, SessionInfo, is_tenant
from parley.session_store.searching import SessionSearch, SessionSummary, search_sessions
from parley.session_store.settings import StoreSettings, StoreTuning
from parley.session_store.transfer import export_lines, whole_session
from parley.session_store.writer import GroupCommit

__all__ = ["SessionClock", "SessionInfo", "SessionReader", "SessionStore", "SessionWriter", "StoreSettings"]

T = TypeVar("T")

PAGE_EVENTS = 500
# Events in one read, where all are read.
READ_EVENTS = 1_000
# Concurrent reads of pages of timelines and exports, out of the database's four readers.
BULK_READS = 2
READ_RETRY_S = 0.1
# Bounds of one retention transaction: other writes wait for a few tens of milliseconds.
EXPIRE_SESSIONS = 100
EXPIRE_EVENTS = 5_000
# Bound of one retention pass: a mistake deletes no more than this before the next pass.
RETAIN_SESSIONS = 10_000
# Interval in which the time of retention is advanced, however rarely it deletes: a process that runs for less
# than ``retention_every_s`` counts too.
RETENTION_LOOK_S = 300


class SessionReader:
    """Read access to a store, which is not changed. Created by ``open``, ended by ``close``."""

    def __init__(self, opened: ReadDatabase, settings: StoreTuning) -> None:
        self._source = opened
        self._settings = settings
        self._closed = False
        self._bulk = asyncio.Semaphore(BULK_READS)

    @classmethod
    async def open(cls, settings: StoreSettings) -> "SessionReader":
        """Open an existing store: nothing is migrated and no file is created or changed.

        Raises:
            ConfigError: it does not exist, belongs to another release, or cannot be read; in one line.
            StoreUnavailableError: the database does not answer, or another program has locked it.
        """
        chosen = tuned(StoreTuning, settings)
        opened = read_only_database(chosen)
        try:
            await opened.open()
        except BaseException:
            await opened.close()
            raise
        return cls(opened, chosen)

    async def info(self, session_id: str) -> SessionInfo:
        """Return a session.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        return await self._read(partial(read_session, session_id=session_id))

    async def sessions(
        self, *, limit: int, before: str | None = None, tenant: str = "default"
    ) -> list[SessionInfo]:
        """Return sessions of a tenant, newest first.

        Args:
            limit: maximum number.
            before: id of the last one of the page before.
            tenant: to which they belong.

        Raises:
            UnknownSessionError: there is no session ``before``.
            StoreUnavailableError: the database does not answer.
        """
        if before is not None:
            _check_id(before)
        return await self._read(partial(read_sessions, tenant=tenant, before=before, limit=_size(limit)))

    async def search(
        self, search: SessionSearch, *, limit: int, before: str | None = None, tenant: str = "default"
    ) -> list[SessionSummary]:
        """Return sessions that fit, newest first; the other arguments are as for ``sessions``.

        Raises:
            UnknownSessionError: there is no session ``before``.
            StoreUnavailableError: the database does not answer in time.
        """
        if before is not None:
            _check_id(before)
        return await self._read_in_bulk(
            partial(search_sessions, tenant=tenant, search=search, before=before, limit=_size(limit))
        )

    async def events(
        self, session_id: str, *, after_seq: int = 0, limit: int, kinds: Collection[Kind] | None = None
    ) -> list[Event]:
        """Return events in order of commit.

        Args:
            session_id: of the session.
            after_seq: of the last one of the page before.
            limit: maximum number.
            kinds: only these; None for all.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        after_seq = min(max(after_seq, 0), MAX_INT)
        return await self._read(
            partial(read_events, session_id=session_id, after_seq=after_seq, limit=_size(limit), kinds=kinds)
        )

    async def all_events(
        self, session_id: str, *, after_seq: int = 0, kinds: Collection[Kind] | None = None
    ) -> list[Event]:
        """Return all events in order of commit, read by pages, so that none holds the database for long.

        Args:
            session_id: of the session.
            after_seq: of the last one that is not wanted.
            kinds: only these; None for all.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        events: list[Event] = []
        while True:
            page = await self.events(session_id, after_seq=after_seq, limit=READ_EVENTS, kinds=kinds)
            events.extend(page)
            if len(page) < READ_EVENTS:
                return events
            after_seq = page[-1].seq

    async def newest_event(self, session_id: str, kind: Kind) -> Event | None:
        """Return the event of a kind that was committed last; None when there is none.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        return await self._read(partial(read_newest, session_id=session_id, kind=kind))

    async def event_of_key(self, session_id: str, key: str) -> Event | None:
        """Return the event that was stored under an idempotency key; None when there is none.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        return await self._read(partial(read_keyed, session_id=session_id, key=key))

    async def timeline(
        self,
        session_id: str,
        *,
        after: tuple[int, int] | None = None,
        limit: int,
        kinds: Collection[Kind] | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        """Return events in order of time.

        Args:
            session_id: of the session.
            after: ``(event_us, seq)`` of the last one of the page before, in the same direction.
            limit: maximum number.
            kinds: only these; None for all.
            newest_first: from the end of the session to its beginning.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        page = _timeline_page(after, limit, kinds, newest_first=newest_first)
        return await self._read(partial(read_timeline, session_id=session_id, page=page))

    async def json_timeline(
        self,
        session_id: str,
        *,
        after: tuple[int, int] | None = None,
        limit: int,
        kinds: Collection[Kind] | None = None,
        newest_first: bool = False,
    ) -> JsonPage:
        """Return a page as ``timeline`` does, as JSON; also bounded in bytes.

        Raises:
            StoreError: as ``timeline`` does.
        """
        _check_id(session_id)
        page = _timeline_page(after, limit, kinds, newest_first=newest_first)
        return await self._read_in_bulk(partial(read_json_timeline, session_id=session_id, page=page))

    async def export(self, session_id: str, *, until_seq: int | None = None) -> AsyncIterator[str]:
        """Yield a session as lines of JSON (see ``transfer``), as it was after event ``until_seq`` or is now.

        Raises:
            UnknownSessionError: there is no session with that id, or it was deleted meanwhile.
            StoreUnavailableError: the database does not answer.
        """
        info = await self.info(session_id)
        if until_seq is not None:
            info = replace(info, last_seq=min(until_seq, info.last_seq))

        async def read(*, after_seq: int) -> JsonPage:
            return await self._read_in_bulk(
                partial(read_json_events, session_id=session_id, after_seq=after_seq, limit=PAGE_EVENTS)
            )

        async for line in export_lines(info, read):
            yield line

    async def query(self, work: Work[T], *, is_long: bool = False) -> T:
        """Run a read of another table, such as ``tenant_use``.

        Args:
            work: the read.
            is_long: it may take long; few such reads run at a time.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        return await (self._read_in_bulk(work) if is_long else self._read(work))

    async def close(self) -> None:
        """Close the connections to the database."""
        self._closed = True
        await self._source.close()

    async def _read_in_bulk(self, work: Work[T]) -> T:
        """Run a possibly long read.

        Few of them run at a time, so that a thread stays free for reads that a call waits for.
        """
        async with self._bulk:
            return await self._read(work)

    async def look(self, work: Work[T]) -> T:
        """Run a short read of another module's tables (``share_links``, ``comments``).

        Raises:
            StoreError: as the work raises; StoreUnavailableError: the database does not answer.
        """
        return await self._read(work)

    async def _read(self, work: Work[T]) -> T:
        """Run a read, repeated while the database is unavailable, within the deadline."""
        deadline = asyncio.get_running_loop().time() + self._settings.read_deadline_s
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    if self._closed:
                        raise StoreUnavailableError("the session store is closed")
                    try:
                        return await self._source.read(work)
                    except StoreUnavailableError:
                        if asyncio.get_running_loop().time() + READ_RETRY_S > deadline:
                            raise
                    await asyncio.sleep(READ_RETRY_S)
        except TimeoutError as error:
            raise StoreUnavailableError(
                f"the database did not answer for {self._settings.read_deadline_s:g} s"
            ) from error


class SessionStore(SessionReader):
    """Full access to a store. Created by ``open``, ended by ``close``.

    Attributes:
        deletions: of sessions on request, in this process and others.
    """

    def __init__(
        self, opened: Database, settings: StoreTuning, clock: Clock, now_us: Callable[[], int]
    ) -> None:
        super().__init__(opened, settings)
        self._database = opened
        self._clock = clock
        self._wall_us = now_us
        self._followers = SessionFollowers()
        self.deletions = SessionDeletions()
        self._commits = GroupCommit(opened, settings, clock, self._followers.wake)
        self._tasks: set[asyncio.Task[None]] = set()
        self._retention = RetentionClock(clock, now_us)
        self._retention_turn = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        settings: StoreSettings,
        *,
        clock: Clock | None = None,
        now_us: Callable[[], int] = wall_us,
    ) -> "SessionStore":
        """Migrate the schema and start the tasks that write.

        Args:
            settings: address and timeouts.
            clock: steady; that of the running loop by default.
            now_us: the wall clock.

        Raises:
            ConfigError: the address, the folder, the file, its schema or its owner is wrong; in one line.
            StoreUnavailableError: the database does not answer, or another program has locked it.
        """
        chosen = tuned(StoreTuning, settings)
        opened = database(chosen)
        try:
            await opened.open()
        except BaseException:
            await opened.close()
            raise
        store = cls(opened, chosen, clock or LoopClock(), now_us)
        store._start()
        return store

    @property
    def available(self) -> bool:
        """True when the last transaction reached the database, and none hangs (``attempt_s``)."""
        return self._commits.available

    @property
    def commit_times(self) -> DurationCounts:
        """Times from an append to its commit."""
        return self._commits.times

    @property
    def turn_deadline_s(self) -> float:
        """Longest wait of a person for a write (``StoreTuning``)."""
        return self._settings.turn_deadline_s

    @property
    def oldest_wait_s(self) -> float:
        """Wait of the oldest queued write so far; 0 when there is none."""
        return self._commits.oldest_wait_s

    async def create(self, *, tenant: str = "default", owner: str | None = None) -> SessionInfo:
        """Create a session.

        Args:
            tenant: to which it belongs.
            owner: digest of the client that creates it; None: the operator.

        Raises:
            StoreUnavailableError: the database does not answer.
            StoreError: the tenant's name cannot be stored.
        """
        if not is_tenant(tenant):
            raise StoreError("the name of a tenant is empty, too long or not printable")
        now_us = self._wall_us()
        info = SessionInfo(str(uuid.uuid4()), tenant, 0, 0, now_us, now_us, owner)
        # No other process creates a session with this id.
        await self._run_once(
            partial(insert_session, info=info), SessionExistsError, within_s=self.turn_deadline_s
        )
        return info

    async def claim(self, session_id: str) -> SessionWriter:
        """Claim the right to write; the former holder is fenced, in this process or another.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        claimed = await self._run_for_person(partial(claim_session, session_id=session_id))
        clock = SessionClock(self._clock, max(self._wall_us(), claimed.last_us + 1))
        return SessionWriter(
            claimed, clock, self._commits, max_payload_bytes=self._settings.max_payload_bytes
        )

    async def follow(self, session_id: str, *, after_seq: int = 0) -> AsyncGenerator[Event, None]:
        """Yield events in order of commit, including future ones.

        Ends when the session is deleted or the store closed. Waits while the database is unavailable.

        Raises:
            UnknownSessionError: there is no session with that id.
        """
        await self.info(session_id)
        with self._followers.of(session_id) as news:
            while not self._closed:
                news.clear()
                try:
                    page, is_last = await self._read(
                        partial(
                            read_next_events, session_id=session_id, after_seq=after_seq, limit=PAGE_EVENTS
                        )
                    )
                except UnknownSessionError:
                    return
                except StoreUnavailableError:
                    page, is_last = [], True
                for event in page:
                    yield event
                    after_seq = event.seq
                if is_last:
                    await _within(news.wait(), self._settings.poll_s)

    async def delete(self, session_id: str) -> RemovedRows:
        """Delete a session with all its events; return what was deleted.

        Its followers end, and its writer gets UnknownSessionError.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        with self.deletions.deleting(session_id):
            removed = await self._run_once(
                partial(delete_session, session_id=session_id),
                UnknownSessionError,
                within_s=self.turn_deadline_s,
            )
        self._followers.wake([session_id])
        return removed

    async def scrub(self) -> bool:
        """Overwrite what deleted rows have left in the files of a SQLite store; return False to try again.

        The file itself has zeros in their places (``secure_delete``); its log has them until it is emptied.
        PostgreSQL keeps dead rows until its own vacuum.
        """
        return await self._database.scrub()

    async def retain(self, days: float) -> int:
        """Delete sessions whose last event is older, at most ``RETAIN_SESSIONS``; return how many.

        Their age is counted from the time of ``retention``, which a jump of the wall clock does not move.

        Raises:
            StoreUnavailableError: the database does not answer; completed deletions remain.
        """
        before_us = await self._run_at_retention_time(lambda _, time_us: time_us) - round(days * US_PER_DAY)
        batch = partial(delete_oldest, before_us=before_us, sessions=EXPIRE_SESSIONS, events=EXPIRE_EVENTS)
        count = 0
        while count < RETAIN_SESSIONS and (deleted := await self._commits.run(batch)):
            self._followers.wake(deleted)
            count += len(deleted)
        return count

    async def _run_at_retention_time(self, work: Callable[[sa.Connection, int], T]) -> T:
        """Run a transaction that receives the time of retention, advanced to the present; one at a time.

        Raises:
            StoreError: as the work raises, or as any transaction does.
        """
        async with self._retention_turn:
            advance = self._retention.work()
            result = await self._commits.run(lambda connection: work(connection, advance(connection)))
            self._retention.committed()
        return result

    async def import_(self, lines: AsyncIterable[str] | Iterable[str]) -> SessionInfo:
        """Store the output of ``export`` under its own id; all of it or nothing.

        Raises:
            SessionExistsError: the session exists already.
            StoreError: it is incomplete or was changed.
            StoreUnavailableError: the database does not answer.
        """
        info, rows = await whole_session(lines, max_payload_bytes=self._settings.max_payload_bytes)
        await self._run_once(partial(insert_whole, info=info, rows=rows), SessionExistsError)
        return info

    async def link_caller(
        self, session_id: str, digest: str, *, forget_days: float, tenant: str = "default"
    ) -> None:
        """Link the next call of a number to a session (see ``callers``).

        Args:
            session_id: of the session.
            digest: of the number.
            forget_days: numbers that were not seen for this time are deleted.
            tenant: to which the session belongs.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        now_us = self._wall_us()

        def link(connection: sa.Connection, time_us: int) -> None:
            put_caller(
                connection,
                tenant=tenant,
                digest=digest,
                session_id=session_id,
                now_us=now_us,
                forget_us=time_us - round(forget_days * US_PER_DAY),
            )

        await self._committed_within(self.turn_deadline_s, self._run_at_retention_time(link))

    async def session_of_caller(
        self, digest: str, *, within_days: float, tenant: str = "default"
    ) -> str | None:
        """Return the session that the next call of a number continues.

        Returns:
            Its id; None where the number was not seen within ``within_days``.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        since_us = self._wall_us() - round(within_days * US_PER_DAY)
        return await self._read(partial(read_caller, tenant=tenant, digest=digest, since_us=since_us))

    async def link_call(self, digest: str, link: CallLink, *, forget_days: float) -> None:
        """Link a phone call to the session that it is in from now on (see ``call_links``).

        Args:
            digest: of the call.
            link: its session, and the stream that holds it.
            forget_days: links that were not written for this time are deleted.

        Raises:
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        now_us = self._wall_us()

        def put(connection: sa.Connection, time_us: int) -> None:
            forget_us = time_us - round(forget_days * US_PER_DAY)
            put_call_link(connection, digest=digest, link=link, now_us=now_us, forget_us=forget_us)

        await self._committed_within(self.turn_deadline_s, self._run_at_retention_time(put))

    async def call_link(self, digest: str, *, within_days: float) -> CallLink | None:
        """Return the link of a call; None where none was written within ``within_days``.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        since_us = self._wall_us() - round(within_days * US_PER_DAY)
        return await self._read(partial(read_call_link, digest=digest, since_us=since_us))

    async def unlink_call(self, digest: str, holder: str) -> bool:
        """Delete the link of a call if this stream holds it; return whether it did.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        dropped = 0

        def drop(connection: sa.Connection) -> None:
            nonlocal dropped
            # The answer to a commit may be lost, and a second attempt finds nothing.
            dropped = drop_call_link(connection, digest=digest, holder=holder) or dropped

        await self._run_for_person(drop)
        return bool(dropped)

    async def count_lost_stream(
        self, places: Sequence[str], link: CallLink, *, within_s: float, same_s: float
    ) -> bool:
        """Count a lost stream of a call; return False when it has lost as many as it may.

        Args:
            places: digests under which they are counted, one for each that is allowed.
            link: of the call.
            within_s: time in which they count.
            same_s: time in which another request for the same stream is its repetition.

        Raises:
            UnknownSessionError: the session was deleted.
            StoreUnavailableError: the database does not answer.
        """
        now_us = self._wall_us()
        lost = LostStream(places, link, now_us - round(within_s * 1e6), now_us - round(same_s * 1e6))
        return await self._run_for_person(partial(count_lost_stream, lost=lost, now_us=now_us))

    async def unlink_callers(self, session_id: str) -> int:
        """Delete the numbers of a session; return how many there were.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        await self.info(session_id)
        return await self._run_for_person(partial(drop_callers, session_id=session_id))

    async def put_code(
        self, session_id: str, code: str, *, for_s: float, most: int, tenant: str = "default"
    ) -> bool:
        """Link a code to a session, for one use, in place of its former code.

        Returns:
            False when another session has the same code, or there are ``most`` codes already.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        _check_id(session_id)
        now_us = self._wall_us()
        until_us = now_us + round(for_s * 1_000_000)
        return await self._run_for_person(
            partial(
                put_code,
                tenant=tenant,
                code=code,
                session_id=session_id,
                now_us=now_us,
                until_us=until_us,
                most=most,
            )
        )

    async def take_code(self, code: str, *, tenant: str = "default") -> str | None:
        """Use up a code and return its session; None when there is no such code.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        found: str | None = None

        def attempt(connection: sa.Connection) -> str | None:
            nonlocal found
            # The answer to a commit may be lost. A second attempt would then find the code used up by the
            # first one.
            found = take_code(connection, tenant=tenant, code=code, now_us=self._wall_us()) or found
            return found

        return await self._run_for_person(attempt)

    def wall_us(self) -> int:
        """Return the wall clock, by which links end and comments are dated, in microseconds."""
        return self._wall_us()

    async def transact(self, work: Work[T]) -> T:
        """Run a transaction on another module's tables within ``turn_deadline_s``.

        It may run twice if an answer is lost.

        Raises:
            StoreError: as the work raises; StoreUnavailableError: the database does not answer.
        """
        return await self._run_for_person(work)

    def announce(self, session_id: str) -> None:
        """Wake the followers of a session here, after a transaction that has added an event to it."""
        self._followers.wake([session_id])

    async def close(self) -> None:
        """Commit queued writes within the deadline, end the followers, and close the database."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._followers.wake_all()
        try:
            await self._commits.close()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await self._database.close()

    async def _run_for_person(self, work: Work[T]) -> T:
        """Run a transaction within ``turn_deadline_s``.

        Raises:
            StoreError: as the work raises; StoreUnavailableError at the deadline.
        """
        return await self._committed_within(self.turn_deadline_s, self._commits.run(work))

    async def _committed_within(self, seconds: float, running: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await running
        except TimeoutError as error:
            # The cancelled work leaves the queue: it is not committed after its caller was refused.
            raise StoreUnavailableError(f"the database accepted nothing for {seconds:g} s") from error

    async def _run_once(self, work: Work[T], done: type[StoreError], *, within_s: float | None = None) -> T:
        """Run a transaction that takes effect once, and raises ``done`` when it has taken effect already.

        The answer to a commit may be lost with its connection; a second attempt then finds it done.

        Args:
            work: the transaction.
            done: error of work that has taken effect before.
            within_s: the deadline; None for that of appends.
        """
        results: list[T] = []

        def attempt(connection: sa.Connection) -> None:
            results.append(work(connection))

        running = self._commits.run(attempt)
        try:
            await (running if within_s is None else self._committed_within(within_s, running))
        except done:
            if not results:
                raise
        return results[-1]

    def _start(self) -> None:
        self._commits.start()
        self._tasks.add(
            asyncio.create_task(
                listen(self._database, self._followers, self.deletions), name="session_store.listener"
            )
        )
        if self._settings.retention_days is not None:
            self._tasks.add(
                asyncio.create_task(
                    self._retain(self._settings.retention_days), name="parley.session_store.retention"
                )
            )

    async def _retain(self, days: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            try:
                if loop.time() < due_s:
                    await self._run_at_retention_time(lambda _, time_us: time_us)
                else:
                    due_s = loop.time() + self._settings.retention_every_s
                    if count := await self.retain(days):
                        logger.info(f"session store: deleted {count} sessions older than {days:g} days")
            except StoreError as error:
                # The database is unavailable or refuses: the next pass tries again.
                logger.warning(f"session store: postponing retention: {error}")
            await asyncio.sleep(min(RETENTION_LOOK_S, self._settings.retention_every_s))


def _check_id(session_id: str) -> None:
    if not SESSION_ID.fullmatch(session_id):
        raise UnknownSessionError("there is no session with this id")


def _size(limit: int) -> int:
    if limit < 1:
        raise StoreError(f"a page cannot have {limit} sessions")
    return min(limit, MAX_INT)


def _timeline_page(
    after: tuple[int, int] | None, limit: int, kinds: Collection[Kind] | None, *, newest_first: bool
) -> TimelinePage:
    place = None if after is None else (_within_range(after[0]), _within_range(after[1]))
    return TimelinePage(place, _size(limit), kinds, newest_first=newest_first)


def _within_range(number: int) -> int:
    return min(max(number, -1), MAX_INT)


async def _within(waiting: Coroutine[object, object, object], seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting
