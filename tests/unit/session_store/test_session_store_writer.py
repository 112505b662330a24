"""The writer and an unavailable database, in virtual time: another connection holds the file's lock."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from parley.core.errors import FencedError, StoreUnavailableError
from parley.runtime.loop_clock import LoopClock
from parley.session_store.committing import Append, insert_session
from parley.session_store.database import SqliteDatabase, Work
from parley.session_store.events import Draft, Kind
from parley.session_store.rows import SessionInfo, draft_row
from parley.session_store.store import SessionStore, SessionWriter, StoreTuning
from parley.session_store.writer import GroupCommit
from tests import virtual_time

T = TypeVar("T")
Scenario = Callable[[SessionStore, SessionWriter, sqlite3.Connection], Awaitable[None]]


def said(text: str, key: str | None = None) -> Draft:
    return Draft(Kind.USER_TURN, {"text": text}, 1, 1, "user", key=key or text)


async def texts(store: SessionStore, writer: SessionWriter) -> list[str]:
    return [event.payload["text"] for event in await store.events(writer.session_id, limit=10_000)]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    """Return a function that runs a scenario with a store, a writer and another program's connection."""

    def run(scenario: Scenario, **settings: float) -> None:
        path = tmp_path / "a.db"

        async def whole() -> None:
            # No wait inside SQLite: it would take real time.
            chosen = StoreTuning(url=f"sqlite:///{path}", busy_timeout_ms=0, **settings)  # type: ignore[arg-type]
            store = await SessionStore.open(chosen)
            writer = await store.claim((await store.create()).id)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                await scenario(store, writer, other)
            await store.close()

        virtual_time.run(whole())

    return run


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_an_append_waits_for_a_database_that_comes_back(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(30, other.execute, "COMMIT")
        started_s = now_s()
        assert [event.seq for event in await writer.append(said("a"))] == [1]
        # Within the longest pause between two attempts.
        assert 30 <= now_s() - started_s <= 31

    play(scenario)


def test_the_store_says_that_it_is_away_and_for_how_long(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(writer.append(said("a")))
        await asyncio.sleep(10)
        later = asyncio.create_task(writer.append(said("b")))
        await asyncio.sleep(1)
        assert not store.available
        assert store.oldest_wait_s == pytest.approx(11)
        other.execute("COMMIT")
        await asyncio.gather(waiting, later)
        assert store.available and store.oldest_wait_s == 0

    play(scenario)


def test_an_append_is_given_up_at_its_deadline_and_not_written_after_it(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        started_s = now_s()
        with pytest.raises(StoreUnavailableError, match="20 s"):
            await writer.append(said("a"))
        assert now_s() - started_s == pytest.approx(20)
        other.execute("COMMIT")
        await writer.append(said("b"))
        assert await texts(store, writer) == ["b"]

    play(scenario, append_deadline_s=20)


def test_each_append_is_given_up_at_its_own_deadline(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        started_s = now_s()
        given_up_s: dict[str, float] = {}

        async def append(text: str) -> None:
            with pytest.raises(StoreUnavailableError):
                await writer.append(said(text))
            given_up_s[text] = now_s() - started_s

        waiting = []
        for number in range(5):
            waiting.append(asyncio.create_task(append(str(number))))
            await asyncio.sleep(3)
        # The first to be due leaves before its time, and one from the middle.
        waiting[0].cancel()
        waiting[2].cancel()
        await asyncio.wait(waiting)
        assert given_up_s == {"1": pytest.approx(23), "3": pytest.approx(29), "4": pytest.approx(32)}
        # No append is left, and the next has its whole time.
        await append("last")
        assert given_up_s["last"] == pytest.approx(52)
        other.execute("COMMIT")

    play(scenario, append_deadline_s=20)


def test_the_store_finds_by_itself_that_the_database_is_back(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError):
            await writer.append(said("a"))
        await asyncio.sleep(100)
        assert not store.available
        other.execute("COMMIT")
        await asyncio.sleep(2)
        assert store.available

    play(scenario, append_deadline_s=5)


def test_the_order_of_a_session_survives_an_outage(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        second = await store.claim((await store.create()).id)
        waiting = []
        for number in range(60):
            if number == 10:
                other.execute("BEGIN IMMEDIATE")
            if number == 40:
                other.execute("COMMIT")
            waiting += [asyncio.create_task(each.append(said(str(number)))) for each in (writer, second)]
            await asyncio.sleep(0.3)
        for task in waiting:
            await task
        for each in (writer, second):
            assert await texts(store, each) == [str(number) for number in range(60)]

    play(scenario, batch_events=7)


def test_a_full_queue_makes_callers_wait_with_their_deadline(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        early = [asyncio.create_task(writer.append(said(str(number)))) for number in range(3)]
        await asyncio.sleep(20)
        late = [asyncio.create_task(writer.append(said(str(number)))) for number in range(3, 8)]
        await asyncio.sleep(15)
        # The early ones have given up and made room; the late ones still have time.
        assert all(isinstance(task.exception(), StoreUnavailableError) for task in early)
        other.execute("COMMIT")
        for task in late:
            await task
        assert await texts(store, writer) == ["3", "4", "5", "6", "7"]

    play(scenario, max_queue=3, append_deadline_s=30)


def test_what_waits_is_refused_when_the_store_is_closed_without_its_database(
    play: Callable[..., None],
) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.create_task(writer.append(said(str(number)))) for number in range(3)]
        await asyncio.sleep(1)
        started_s = now_s()
        await store.close()
        assert now_s() - started_s == pytest.approx(4, abs=1)
        for task in waiting:
            with pytest.raises(StoreUnavailableError):
                await task

    play(scenario, close_s=4)


def test_sessions_are_made_and_claimed_when_the_database_is_back(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        made = asyncio.create_task(store.create())
        claimed = asyncio.create_task(store.claim(writer.session_id))
        stale = asyncio.create_task(writer.append(said("stale")))
        await asyncio.sleep(3)
        other.execute("COMMIT")
        assert (await store.info((await made).id)).epoch == 0
        assert (await claimed).epoch == 2
        with pytest.raises(FencedError):
            await stale

    play(scenario)


def test_a_person_waits_less_for_an_absent_database_than_an_append(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        known = (await store.info(writer.session_id)).epoch
        other.execute("BEGIN IMMEDIATE")
        appending = asyncio.create_task(writer.append(said("a")))
        started_s = now_s()
        waiting = [store.create(), store.claim(writer.session_id), store.delete(writer.session_id)]
        refused = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(error, StoreUnavailableError) for error in refused), refused
        assert now_s() - started_s == pytest.approx(5)
        assert not appending.done()
        other.execute("COMMIT")
        # A refused append is not done later: the claim is the same, and the session is there.
        assert [event.seq for event in await appending] == [1]
        assert (await store.info(writer.session_id)).epoch == known
        assert len(await store.sessions(limit=9)) == 1

    play(scenario)


def test_cancelled_appends_leave_the_queue(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.create_task(writer.append(said(str(number)))) for number in range(4)]
        await asyncio.sleep(1)
        waiting[1].cancel()
        waiting[2].cancel()
        await asyncio.sleep(1)
        other.execute("COMMIT")
        await asyncio.gather(waiting[0], waiting[3])
        assert await texts(store, writer) == ["0", "3"]

    play(scenario)


def test_a_follower_lives_through_an_outage(play: Callable[..., None]) -> None:
    async def scenario(store: SessionStore, writer: SessionWriter, other: sqlite3.Connection) -> None:
        follow = store.follow(writer.session_id)
        waiting = asyncio.create_task(anext(follow))
        other.execute("BEGIN EXCLUSIVE")
        appending = asyncio.create_task(writer.append(said("a")))
        await asyncio.sleep(30)
        other.execute("COMMIT")
        [event] = await appending
        assert await waiting == event
        await follow.aclose()

    play(scenario)


def test_the_writer_outlives_a_driver_that_breaks_in_an_unknown_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = StoreTuning(url=f"sqlite:///{tmp_path}/a.db", busy_timeout_ms=0)
        file = Breaking(settings)
        await file.open()
        session = SessionInfo("a" * 36, "default", 1, 0, 1, 1)
        await file.write(partial(insert_session, info=session))
        commits = GroupCommit(file, settings, LoopClock(), lambda _: None)
        commits.start()
        row = draft_row(said("a"), max_payload_bytes=1_000)
        # The database is unavailable for the append, and raises when its return is checked.
        file.errors = [StoreUnavailableError("away"), RuntimeError("the handler is closed")]
        waiting = asyncio.create_task(commits.append(Append(session.id, 1, [row])))
        # Before the end of the first pause.
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.sleep(10)
        assert not file.errors and commits.available
        [event] = await commits.append(Append(session.id, 1, [row]))
        assert event.seq == 1
        await commits.close()
        await file.close()

    virtual_time.run(scenario())


class Breaking(SqliteDatabase):
    """A file whose driver raises at chosen moments, before anything is done."""

    def __init__(self, settings: StoreTuning) -> None:
        super().__init__(settings)
        self.errors: list[Exception] = []

    async def write(self, work: Work[T]) -> T:
        if self.errors:
            raise self.errors.pop(0)
        return await super().write(work)
