"""Task of one gateway and a line that an actor of Ray holds (``line``).

A step is one exchange: the changes go to the line, the grants come back. A second call waits at the line for
news, and the line answers it at once; where that is lost, the next sign of life brings the news. A line that
was restarted has another life: the gateway joins it and brings everything that it has, requests with the
numbers that they had.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress

from parley.core.errors import PeerError
from parley.serving.pool.on_ray.link import RayLink
from parley.serving.pool.on_ray.messages import (
    ANSWER,
    ATTENTION,
    EXCHANGE,
    NOTICE,
    SEEN_REQUESTS,
    WHOLE_LINE,
    Attention,
    Exchange,
    LineAnswer,
)
from parley.serving.pool.settings import SharedPoolSettings
from parley.serving.pool.shared.scheduler import LineChanges, SharedScheduler
from parley.serving.pool.shared.tables import SeenRequest
from parley.serving.pool.shared.turns import LineTask
from parley.serving.scheduler.clock_offset import ClockOffset
from parley.serving.scheduler.types import Effect

# Part of the time of an answer that its way may take.
WAY_S = 1.0
# Shortest wait for news.
SHORTEST_S = 0.02


class RayLineSync(LineTask):
    """Task of one gateway and line on Ray.

    Args:
        link: to the cluster.
        settings: of the shared pool.
        line: name of the line in it.
        scheduler: of the gateway.
        on_effects: as for ``LineTask``.
    """

    holder = "the line on Ray"
    errors = (PeerError, TimeoutError)

    def __init__(
        self,
        link: RayLink,
        settings: SharedPoolSettings,
        line: str,
        scheduler: SharedScheduler,
        on_effects: Callable[[list[Effect]], None],
    ) -> None:
        super().__init__(settings, line, scheduler, on_effects)
        self._link = link
        self._place = {"pool": settings.name, "line": line, "lease_s": settings.lease_s}
        # Id in the line, and of the line that it has joined.
        self._member, self._life = secrets.token_hex(8), ""
        # Number of the last exchange, and of the last grant or refusal that was read.
        self._number = self._read = 0
        self._version: int | None = None
        self._offset = ClockOffset()
        self._attending: asyncio.Task[None] | None = None
        self._may_attend = asyncio.Event()

    async def _connect(self) -> None:
        if self._attending is None:
            self._attending = asyncio.create_task(self._attend(), name=f"pool.{self._line}.news")

    def _abandon(self) -> None:
        self._is_joined = False
        self._may_attend.clear()

    def _check_connection(self) -> None:
        # The calls of a step notice it.
        return

    def _is_starting(self) -> bool:
        # The link reports why there is no connection.
        return not self._link.was_connected

    async def close(self) -> None:
        """End the tasks, and leave the line."""
        attending, self._attending = self._attending, None
        if attending is not None:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
        await super().close()

    async def _leave(self) -> None:
        if self._life:
            await self._link.call("leave", {**self._place, "member": self._member})

    async def _attend(self) -> None:
        """Wait for news at the line, until cancelled."""
        while True:
            await self._may_attend.wait()
            wait_s, version = self._settings.poll_s, self._version
            if self._is_stale:
                # Newer places are of no use before the present ones were read.
                left_s = self._look_due_s() - self._now_s()
                wait_s, version = min(wait_s, max(left_s, SHORTEST_S)), None
            asked = Attention(self._member, self._life, self._read, version, wait_s)
            facts = {**self._place, "sent": ATTENTION.dump_json(asked).decode()}
            has_news, seen = True, self._version
            # Where the line does not answer, the next step notices it too, and reports it.
            with suppress(*self.errors):
                answer = await self._link.call("attend", facts, within_s=wait_s + WAY_S)
                notice = NOTICE.validate_json(answer)
                has_news, seen = notice.has_news, notice.version
            if has_news:
                self._has_news = True
                # Until a step has brought it.
                self._may_attend.clear()
            self._is_stale |= seen != self._version
            self._wake.set()

    async def _step(self, *, is_due: bool) -> None:
        scheduler = self._scheduler
        if not self._is_joined:
            self._is_joined = (await self._exchange(LineChanges())).is_joined
            if not self._is_joined:
                # It has joined, and brings all it has with the next exchange.
                scheduler.mark_all()
        changes = scheduler.take_changes(self._offset.us)
        try:
            answer = await self._exchange(changes)
        except BaseException:
            scheduler.put_back(changes)
            raise
        if not answer.is_joined:
            scheduler.put_back(changes)
            scheduler.mark_all()
            self._is_joined = False
            return
        self._is_joined = True
        self._may_attend.set()
        if is_due:
            self._polled_s = self._now_s()
        scheduler.on_reached(True)
        scheduler.on_numbers(answer.numbers)
        effects = scheduler.on_granted(answer.granted, self._now_ms())
        effects += scheduler.on_refused({row.ticket: row.reason for row in answer.refused})
        self._deliver(effects)

    async def _look(self) -> int:
        text = await self._link.call("look", {**self._place, "member": self._member})
        seen = WHOLE_LINE.validate_json(text)
        requests: list[SeenRequest] = []
        for part in seen.requests:
            requests += SEEN_REQUESTS.validate_json(part)
            # The calls of this gateway go on in between.
            await asyncio.sleep(0)
        self._scheduler.on_seen(requests, seen.leases)
        self._version = seen.version
        return len(requests)

    async def _exchange(self, changes: LineChanges) -> LineAnswer:
        self._number += 1
        sent = Exchange(
            self._member,
            self._number,
            self._life,
            bool(self._life),
            self._read,
            self._scheduler.settings.max_waiting,
            changes,
        )
        asked_us = self._now_ms() * 1_000
        text = await self._link.call("exchange", {**self._place, "sent": EXCHANGE.dump_json(sent).decode()})
        answer = ANSWER.validate_json(text)
        # Rounded up: the bounds have to be true.
        self._offset.add(
            asked_us=asked_us, theirs_us=answer.clock_us, answered_us=self._now_ms() * 1_000 + 1_000
        )
        if not answer.is_joined:
            self._life, self._read = answer.life, 0
        else:
            numbers = [row.granted for row in answer.granted] + [row.number for row in answer.refused]
            self._read = max(numbers, default=self._read)
        return answer
