"""Connection of one gateway to the tables of a shared pool, and the task that keeps both the same.

Inputs: changes of the gateway (``SharedScheduler``), notifications of the others, and the clock. Outputs:
``on_effects`` with grants and refusals. A step is one transaction: a sign of life, the changes, grants to
whichever gateway the first requests belong to, and the news of this one. A gateway that gets a grant is
notified; where the notification is lost, it looks after ``poll_s``.

Life is counted and not dated, so no clock of another machine decides about it, not even the database's. A
gateway whose count has not changed for ``lease_s`` of this gateway's time has ended: its places and its
leases go. Only time in which this gateway reached the tables counts, because no gateway can give a sign of
life to a database that does not answer.

Slow or away: the changes wait, in their order, and one step brings them all. Requests are refused after
``no_worker_ms`` without the database. Frozen: the database ends a transaction that this process left open
after ``STEP_S``, so that no other gateway waits for it. Back after the others have removed it, or after the
tables were lost: everything that it has is put there again, requests with the numbers that they had. Lost
tables are granted again after ``lease_s``, when the other gateways have put their leases back or have ended.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import asyncpg
import sqlalchemy as sa
from loguru import logger

from parley.serving.pool.settings import SharedPoolSettings
from parley.serving.pool.shared import tables
from parley.serving.pool.shared.scheduler import LineChanges, SharedScheduler
from parley.serving.pool.shared.turns import LineTask
from parley.serving.scheduler.clock_offset import ClockOffset
from parley.serving.scheduler.types import Effect, RefusalReason

# Time limit of one step, and of a connection.
STEP_S = 2.0


class LineSync(LineTask):
    """Task of one gateway and line in PostgreSQL.

    Args:
        url: of the PostgreSQL database.
        settings: of the shared pool.
        line: name of the line in it.
        scheduler: of the gateway.
        on_effects: as for ``LineTask``.
    """

    holder = "the database"
    errors = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

    def __init__(
        self,
        url: sa.URL,
        settings: SharedPoolSettings,
        line: str,
        scheduler: SharedScheduler,
        on_effects: Callable[[list[Effect]], None],
    ) -> None:
        super().__init__(settings, line, scheduler, on_effects)
        self._url = url
        self._connection: Any = None
        self._has_joined = False
        # End of the time in which this gateway holds a line whose rows were lost; None: it does not.
        self._held_until_s: float | None = None
        # Id in the tables, and number of the last grant that was read.
        self._member = secrets.token_hex(8)
        self._granted = 0
        self._offset = ClockOffset()
        # Last count of each other gateway, and the time in which it has stayed the same.
        self._beats: dict[str, tuple[int, float]] = {}
        # Time of the last step.
        self._beat_s = 0.0

    async def _leave(self) -> None:
        connection = self._connection
        if connection is None:
            return
        async with connection.transaction():
            await tables.lock(connection, self._line)
            await tables.leave(connection, self._member)
            granted = await tables.grant(connection, self._line)
            await tables.notify(connection, {*granted, self._line})
        await connection.close()
        self._connection = None

    async def _connect(self) -> None:
        if self._connection is not None:
            return
        _, options = self._url.get_dialect()().create_connect_args(self._url)
        milliseconds = str(round(STEP_S * 1_000))
        self._connection = await asyncpg.connect(
            **options,
            timeout=STEP_S,
            command_timeout=STEP_S,
            server_settings={
                "application_name": "parley pool",
                "jit": "off",
                # The rows are what living gateways say: a server that crashed has none of them.
                "synchronous_commit": "off",
                "idle_in_transaction_session_timeout": milliseconds,
                "statement_timeout": milliseconds,
            },
        )
        self._connection.add_termination_listener(lambda _connection: self._wake.set())
        await self._connection.add_listener(tables.CHANNEL, self._on_notification)
        self._is_joined = False

    def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        # Others could give no sign of life either.
        self._beats.clear()

    def _check_connection(self) -> None:
        if self._connection.is_closed():
            raise ConnectionResetError("the database closed the connection")

    def _on_notification(self, _connection: object, _pid: int, _channel: str, words: str) -> None:
        if words == self._member:
            self._has_news = True
        elif words == self._line:
            self._is_stale = True
        else:
            return
        self._wake.set()

    async def _step(self, *, is_due: bool) -> None:
        """Bring everything to the tables and back.

        Args:
            is_due: look for news without a notification, and for gateways that have ended.
        """
        connection, scheduler = self._connection, self._scheduler
        changes, news, refused = LineChanges(), list[tables.GrantedRow](), dict[str, RefusalReason]()
        try:
            async with asyncio.timeout(STEP_S), connection.transaction():
                await tables.lock(connection, self._line)
                was_joined = await self._beat()
                if not (was_joined and self._is_joined):
                    scheduler.mark_all()
                    self._granted, is_due = 0, True
                changes = scheduler.take_changes(self._offset.us)
                numbers = await self._put(changes)
                # When the other gateways had the time to be back in it.
                opens = self._held_until_s is not None and self._now_s() >= self._held_until_s
                if opens:
                    await tables.open_line(connection, self._member)
                expired = is_due and await self._expire_others()
                granted = await tables.grant(connection, self._line)
                full = await self._refuse_overflow(numbers)
                if is_due or self._member in granted:
                    news = await tables.granted_rows(connection, self._member, self._granted)
                if is_due:
                    refused = await tables.take_refusals(connection, self._member)
                if changes or granted or expired or refused or not was_joined:
                    await tables.notify(connection, {*granted, self._line})
        except BaseException:
            scheduler.put_back(changes)
            raise
        self._is_joined = self._has_joined = True
        if opens:
            self._held_until_s = None
        self._beat_s = self._now_s()
        if is_due:
            self._polled_s = self._beat_s
        scheduler.on_reached(True)
        scheduler.on_numbers(numbers)
        if news:
            self._granted = news[-1].granted
        effects = scheduler.on_granted(news, self._now_ms())
        effects += scheduler.on_refused({**refused, **dict.fromkeys(full, RefusalReason.QUEUE_FULL)})
        self._deliver(effects)

    async def _beat(self) -> bool:
        """Give a sign of life, and join where needed; return whether this gateway was in the line."""
        asked_us = self._now_ms() * 1_000
        theirs_us = await tables.beat(self._connection, self._member)
        was_joined = theirs_us is not None
        if theirs_us is None:
            theirs_us, is_held = await tables.join(
                self._connection, self._line, self._member, restores=self._has_joined
            )
            self._held_until_s = self._now_s() + self._settings.lease_s if is_held else None
        # Rounded up: the bounds have to be true.
        self._offset.add(asked_us=asked_us, theirs_us=theirs_us, answered_us=self._now_ms() * 1_000 + 1_000)
        return was_joined

    async def _put(self, changes: LineChanges) -> dict[str, int]:
        """Bring changes to the tables; return the numbers of the requests."""
        connection, line, member = self._connection, self._line, self._member
        if changes.over:
            await tables.drop(connection, member, changes.over)
        if changes.unreached:
            await tables.drop_reports(connection, member, changes.unreached)
        if changes.reached:
            await tables.put_reports(connection, line, member, changes.reached)
        if changes.evicted:
            await tables.put_refusals(connection, line, changes.evicted)
        if changes.leases:
            await tables.put_leases(connection, line, member, changes.leases)
        if changes.requests:
            return await tables.put_requests(connection, line, member, changes.requests)
        return {}

    async def _refuse_overflow(self, numbers: dict[str, int]) -> list[str]:
        if not numbers:
            return []
        most = self._scheduler.settings.max_waiting
        return await tables.overflow(self._connection, self._line, numbers, most)

    async def _expire_others(self) -> bool:
        """Remove gateways that have ended; return whether there were any."""
        now_s = self._now_s()
        if now_s - self._beat_s > self._settings.lease_s / 2:
            # This gateway did not look for so long that it cannot say what the others did meanwhile.
            self._beats.clear()
        counts = await tables.other_members(self._connection, self._line, self._member)
        self._beats = {
            member: known
            if (known := self._beats.get(member)) is not None and known[0] == count
            else (count, now_s)
            for member, count in counts.items()
        }
        ended = {
            member: count
            for member, (count, since_s) in self._beats.items()
            if now_s - since_s >= self._settings.lease_s
        }
        if ended:
            logger.warning(f"{self._line}: {len(ended)} gateways have ended; their places and leases go")
            await tables.expire(self._connection, ended)
        return bool(ended)

    async def _look(self) -> int:
        async with asyncio.timeout(STEP_S), self._connection.transaction(readonly=True):
            leases = await tables.seen_leases(self._connection, self._line, self._member)
            requests = await tables.seen_requests(self._connection, self._line, self._member)
        self._scheduler.on_seen(requests, leases)
        return len(requests)
