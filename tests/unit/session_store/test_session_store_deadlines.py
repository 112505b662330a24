"""Work on a SQLite file that takes too long, with statements that are really slow."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from parley.core.errors import StoreUnavailableError
from parley.runtime.loop_clock import LoopClock
from parley.session_store.database import READERS, Database, database
from parley.session_store.store import SessionStore, StoreTuning
from parley.session_store.writer import GroupCommit

TIMEOUT_S = 20
# Half a minute or more; not endless, so that a failing test does not keep its process alive.
LONG = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000000) SELECT count(*) FROM n
"""


@asynccontextmanager
async def opened(path: Path, **settings: float) -> AsyncIterator[Database]:
    file = database(StoreTuning(url=f"sqlite:///{path}", **settings))  # type: ignore[arg-type]
    await file.open()
    try:
        yield file
    finally:
        await file.close()


class HandClock(LoopClock):
    """Clock that the test moves."""

    at_us = 0

    def now_us(self) -> int:
        return self.at_us


def long(connection: sa.Connection) -> object:
    return connection.exec_driver_sql(LONG).scalar()


def short(connection: sa.Connection) -> object:
    return connection.exec_driver_sql("SELECT 7").scalar()


async def test_a_read_ends_at_its_time_and_so_does_its_statement(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), opened(tmp_path / "a.db", attempt_s=0.5) as file:
        # Twice as many as there are threads: some of them only wait for one.
        reads = [asyncio.create_task(file.read(long)) for _ in range(2 * READERS)]
        results = await asyncio.gather(*reads, return_exceptions=True)
        assert all(isinstance(result, StoreUnavailableError) for result in results), results
        # The threads and their connections are free again.
        assert await asyncio.gather(*(file.read(short) for _ in range(2 * READERS))) == [7] * 2 * READERS


async def test_a_read_that_no_one_waits_for_any_more_frees_its_thread(tmp_path: Path) -> None:
    begun = threading.Semaphore(0)

    def begin(connection: sa.Connection) -> object:
        begun.release()
        return long(connection)

    async with opened(tmp_path / "a.db", attempt_s=5) as file:
        reads = [asyncio.create_task(file.read(begin)) for _ in range(READERS)]
        for _ in reads:
            assert await asyncio.to_thread(begun.acquire, timeout=TIMEOUT_S)
        for reading in reads:
            reading.cancel()
        await asyncio.wait(reads)
        assert all(reading.cancelled() for reading in reads)
        assert await file.read(short) == 7


async def test_the_loop_goes_on_while_a_read_takes_long(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), opened(tmp_path / "a.db", attempt_s=0.5) as file:
        reading = asyncio.create_task(file.read(long))
        rounds = 0
        while not reading.done():
            await asyncio.sleep(0.01)
            rounds += 1
        assert isinstance(reading.exception(), StoreUnavailableError)
        assert rounds > 5


async def test_a_read_waits_for_a_locked_file_no_longer_than_it_may_take(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", attempt_s=0.5, busy_timeout_ms=60_000) as file:
        asked = sa.text("PRAGMA busy_timeout")
        assert await file.read(lambda connection: connection.scalar(asked)) == 500


async def test_a_read_of_the_store_ends_at_the_deadline_of_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{path}", attempt_s=600, read_deadline_s=0.5))
    session = await store.create()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        # From now on, finding a session takes very long.
        other.execute("ALTER TABLE session RENAME TO hidden")
        other.execute(f"CREATE VIEW session AS SELECT * FROM hidden WHERE ({LONG}) > 0")
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(StoreUnavailableError, match=r"0\.5 s"):
                await store.info(session.id)
        other.execute("DROP VIEW session")
        other.execute("ALTER TABLE hidden RENAME TO session")
    assert await store.info(session.id) == session
    await store.close()


async def test_closing_does_not_wait_for_a_write_that_hangs(tmp_path: Path) -> None:
    file = database(StoreTuning(url=f"sqlite:///{tmp_path}/a.db", close_s=0.2))
    await file.open()
    begun, disk = threading.Event(), threading.Event()

    def hang(connection: sa.Connection) -> object:
        begun.set()
        return disk.wait(TIMEOUT_S)

    writing = asyncio.create_task(file.write(hang))
    try:
        assert await asyncio.to_thread(begun.wait, TIMEOUT_S)
        writing.cancel()
        async with asyncio.timeout(TIMEOUT_S / 2):
            await file.close()
    finally:
        disk.set()
    await asyncio.wait({writing})


async def test_the_store_is_unavailable_while_a_write_hangs(tmp_path: Path) -> None:
    begun, ends = threading.Event(), threading.Event()

    def hang(_connection: sa.Connection) -> None:
        begun.set()
        assert ends.wait(TIMEOUT_S)

    async with asyncio.timeout(TIMEOUT_S), opened(tmp_path / "a.db") as file:
        settings = StoreTuning(url=f"sqlite:///{tmp_path}/a.db", attempt_s=5)
        clock = HandClock()
        writer = GroupCommit(file, settings, clock, lambda _sessions: None)
        writer.start()
        try:
            writing = asyncio.create_task(writer.run(hang))
            assert await asyncio.to_thread(begun.wait, TIMEOUT_S)
            # A disk that is only slow is no reason to refuse callers.
            clock.at_us += 5_000_000
            assert writer.available
            clock.at_us += 1
            assert not writer.available and not writing.done()
            ends.set()
            await writing
            assert writer.available
        finally:
            ends.set()
            await writer.close()
