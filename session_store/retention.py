"""Time by which retention deletes: the wall clock's, as long as it advances like a steady clock.

A wall clock that is wrong for a moment must not delete today's conversations. Retention therefore has a time
of its own, which is kept in the database, also between two starts:

* It advances with the steady clock of the running process, and takes the wall clock's time where that is
  within ``TOLERANCE_US``.
* A jump of the wall clock, also a start after a pause of days, is accepted once it has lasted for ``HOLD_US``
  of running time, counted over all starts.
* In a store without one it begins with the newest event, which does not depend on the present clock.

A deleted session is older than the limit by both this time and the wall clock, so a clock that is slow
deletes nothing either. Several processes on one database each count their running time: a jump that all of
them see is accepted sooner.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from loguru import logger
from sqlalchemy.dialects import postgresql, sqlite

from parley.core.clock import Clock
from parley.session_store.schema import retention_table, session_table

US_PER_HOUR = 3_600_000_000
US_PER_DAY = 24 * US_PER_HOUR
# More than the duration of a restart and the drift of a clock between two updates; also the most by which a
# wrong clock can delete too early.
TOLERANCE_US = US_PER_HOUR
# Long enough for an operator to notice a wrong clock. It delays retention by as much after a downtime.
HOLD_US = 24 * US_PER_HOUR
# Id of the only row.
ROW = 1

_read = sa.select(retention_table.c.time_us, retention_table.c.jump_us, retention_table.c.held_us).where(
    retention_table.c.id == ROW
)
_newest = sa.select(sa.func.max(session_table.c.last_us))


@dataclass(frozen=True, slots=True)
class RetentionTime:
    """Time of retention, in microseconds since the Unix epoch.

    Attributes:
        time_us: the time.
        jump_us: lead of the wall clock over it, when it exceeds the tolerance; otherwise 0.
        held_us: running time for which the wall clock has had that lead.
    """

    time_us: int
    jump_us: int = 0
    held_us: int = 0

    def advanced(self, *, wall_us: int, elapsed_us: int) -> "RetentionTime":
        """Return the time after ``elapsed_us`` of running, given the time of the wall clock."""
        expected_us = self.time_us + elapsed_us
        jump_us = wall_us - expected_us
        if abs(jump_us) <= TOLERANCE_US:
            return RetentionTime(wall_us)
        is_same_jump = self.jump_us != 0 and abs(jump_us - self.jump_us) <= TOLERANCE_US
        held_us = self.held_us + elapsed_us if is_same_jump else 0
        if held_us >= HOLD_US:
            return RetentionTime(wall_us)
        return RetentionTime(expected_us, jump_us, held_us)


class RetentionClock:
    """Time of retention in one process, which counts each span of its running time once.

    The answer to a commit may be lost with its connection or its caller. The last written value is therefore
    kept until its commit is confirmed; an attempt that finds the value in the database counts from there.

    Args:
        clock: steady.
        now_us: the wall clock.
    """

    def __init__(self, clock: Clock, now_us: Callable[[], int]) -> None:
        self._clock = clock
        self._wall_us = now_us
        # Running time is counted up to here, by the steady clock; None before the first commit.
        self._counted_us: int | None = None
        self._attempt: tuple[int, RetentionTime] | None = None
        self._has_jumped = False

    def work(self) -> Callable[[sa.Connection], int]:
        """Return work for a transaction, which may be attempted several times.

        The work advances the time in the database to the present and returns it, or the wall clock's time if
        that is earlier. The present is read here, because the clock of an event loop cannot be read in the
        thread of a transaction. One transaction at a time: the next work is created after the commit.
        """
        return partial(self._advance, now_us=self._clock.now_us(), wall_us=self._wall_us())

    def committed(self) -> None:
        """Confirm the last attempt; log a jump of the wall clock once."""
        if self._attempt is None:
            return
        (self._counted_us, time), self._attempt = self._attempt, None
        if time.jump_us and not self._has_jumped:
            logger.warning(
                f"session store: the clock is {time.jump_us / US_PER_DAY:+.1f} days from its expected time; "
                f"retention follows it once it has been stable for {HOLD_US / US_PER_HOUR:g} hours"
            )
        self._has_jumped = time.jump_us != 0

    def _advance(self, connection: sa.Connection, *, now_us: int, wall_us: int) -> int:
        row = connection.execute(_read).first()
        if row is None:
            time = self._first(connection, wall_us)
        else:
            stored = RetentionTime(*row)
            if self._attempt is not None and self._attempt[1] == stored:
                self._counted_us = self._attempt[0]
            elapsed_us = 0 if self._counted_us is None else now_us - self._counted_us
            time = stored.advanced(wall_us=wall_us, elapsed_us=elapsed_us)
            connection.execute(
                sa.update(retention_table).where(retention_table.c.id == ROW).values(**_columns(time))
            )
        self._attempt = now_us, time
        return min(time.time_us, wall_us)

    @staticmethod
    def _first(connection: sa.Connection, wall_us: int) -> RetentionTime:
        newest_us = connection.scalar(_newest)
        begin_us = wall_us if newest_us is None else min(wall_us, int(newest_us))
        time = RetentionTime(begin_us).advanced(wall_us=wall_us, elapsed_us=0)
        # When two processes begin at once, the row of the first one stays.
        made = postgresql if connection.dialect.name == "postgresql" else sqlite
        first = made.insert(retention_table).values(id=ROW, **_columns(time))
        connection.execute(first.on_conflict_do_nothing(index_elements=["id"]))
        return time


def _columns(time: RetentionTime) -> dict[str, int]:
    return {"time_us": time.time_us, "jump_us": time.jump_us, "held_us": time.held_us}
