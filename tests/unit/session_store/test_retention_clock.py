"""The clock of retention over attempts whose commit is uncertain, on a SQLite file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from loguru import logger

from parley.evals.abuse.attacks.storage import JUMP
from parley.session_store import migrations
from parley.session_store.retention import HOLD_US, US_PER_DAY, US_PER_HOUR, RetentionClock
from parley.session_store.schema import retention_table

NOW_US = 1_700_000_000_000_000


class Times:
    """Steady clock, with a wall clock that is 40 days ahead."""

    elapsed_us = 0

    def now_us(self) -> int:
        return self.elapsed_us

    def wall_us(self) -> int:
        return NOW_US + 40 * US_PER_DAY + self.elapsed_us


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        migrations.upgrade(connection)
        connection.execute(sa.insert(retention_table).values(id=1, time_us=NOW_US, jump_us=0, held_us=0))
    yield engine
    engine.dispose()


def held_us(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(sa.select(retention_table.c.held_us)) or 0)


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def clock(engine: sa.Engine, times: Times) -> RetentionClock:
    """Return a clock that has seen the jump and has run for 13 hours since."""
    clock = RetentionClock(times, times.wall_us)
    with engine.begin() as connection:
        clock.work()(connection)
    clock.committed()
    times.elapsed_us += 13 * US_PER_HOUR
    return clock


def test_a_commit_whose_answer_was_lost_is_not_counted_again(engine: sa.Engine, clock: RetentionClock):
    work = clock.work()
    for attempt in (work, work, clock.work()):
        with engine.begin() as connection:
            assert attempt(connection) < NOW_US + HOLD_US
    clock.committed()
    assert held_us(engine) == 13 * US_PER_HOUR


def test_an_attempt_that_was_rolled_back_is_counted_by_the_next(
    engine: sa.Engine, clock: RetentionClock, times: Times
):
    with engine.connect() as connection, connection.begin() as transaction:
        clock.work()(connection)
        transaction.rollback()
    times.elapsed_us += US_PER_HOUR
    with engine.begin() as connection:
        clock.work()(connection)
    clock.committed()
    assert held_us(engine) == 14 * US_PER_HOUR


def test_a_jump_is_logged_in_the_words_that_the_abuse_evaluation_looks_for(engine: sa.Engine, times: Times):
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message}", level="WARNING")
    try:
        clock = RetentionClock(times, times.wall_us)
        for _ in range(2):
            with engine.begin() as connection:
                clock.work()(connection)
            clock.committed()
    finally:
        logger.remove(sink)
    assert len(lines) == 1 and JUMP in lines[0]
