"""Pages that a commit writes to a SQLite file and reads of it: counted, not timed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import sqlalchemy as sa

from parley.session_store import migrations
from parley.session_store.committing import Append, commit_appends, insert_session
from parley.session_store.events import Draft, Kind, new_key
from parley.session_store.rows import SessionInfo, draft_row
from parley.session_store.store import SessionStore, StoreTuning

PAGE_BYTES = 4_096
# Header of SQLite's write-ahead log, before each page and before the whole.
FRAME_BYTES = 24
HEADER_BYTES = 32
SESSION = "00000000-0000-4000-8000-000000000000"


async def test_a_commit_of_many_sessions_writes_no_page_of_keys_for_each_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sessions, rounds, counted = 20, 60, 20
    log = Path(f"{path}-wal")
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{path}"))
    try:
        writers = [await store.claim((await store.create()).id) for _ in range(sessions)]
        written: list[float] = []
        for number in range(rounds):
            before = log.stat().st_size
            draft = partial(Draft, Kind.USER_TURN, {"text": "yes " * 20}, number, number, "user")
            await asyncio.gather(*(writer.append(draft()) for writer in writers))
            written.append((log.stat().st_size - before - HEADER_BYTES * (before == 0)) / sessions)
    finally:
        await store.close()
    # When every session has filled pages of its own: one with its newest events, one with their order in time
    # and most of another, because pages split. With a page of keys for each it is 3.7.
    assert median(written[-counted:]) / (PAGE_BYTES + FRAME_BYTES) < 3.25


def test_a_key_is_looked_up_without_reading_its_session(tmp_path: Path) -> None:
    def steps(events: int) -> int:
        with database(tmp_path / f"{events}.db") as connection:
            insert_session(connection, SessionInfo(SESSION, "default", 1, 0, 1, 1))
            rows = [
                draft_row(Draft(Kind.STATE, {}, at, at, "user", key=f"key.{at}"), max_payload_bytes=1_000)
                for at in range(events)
            ]
            [stored] = commit_appends(connection, [Append(SESSION, 1, rows)])
            assert not isinstance(stored, Exception)
            again = Append(SESSION, 1, rows[-3:])
            counted = counting(connection)
            assert commit_appends(connection, [again], look_up=True) == [stored[-3:]]
            return counted()

    assert steps(3_000) < 2 * steps(30)


def test_keys_are_in_the_order_of_time_and_never_the_same() -> None:
    keys = [new_key() for _ in range(1_000)]
    assert len(set(keys)) == len(keys)
    # The clock may return the same number twice.
    assert [key[:16] for key in keys] == sorted(key[:16] for key in keys)


@contextmanager
def database(path: Path) -> Iterator[sa.Connection]:
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrations.upgrade(connection)
        yield connection
    engine.dispose()


def counting(connection: sa.Connection) -> Callable[[], int]:
    """Count the steps that SQLite makes from now on."""
    driver = connection.connection.driver_connection
    assert driver is not None
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    driver.set_progress_handler(step, 1)
    return lambda: steps
