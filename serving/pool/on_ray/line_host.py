"""Run a line (``line``) on an event loop: its clock, its timer, and those that wait for its news.

Inputs: messages of gateways, as JSON; reports of the workers, which ``ask_workers`` gets. It is the content
of the actor, without Ray. Owns two tasks, from ``run``: the workers may answer late, and time goes on.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from loguru import logger

from parley.serving.pool.on_ray.line import RayLine
from parley.serving.pool.on_ray.messages import (
    ANSWER,
    ATTENTION,
    EXCHANGE,
    NOTICE,
    PART,
    SEEN_REQUESTS,
    WHOLE_LINE,
    HostReport,
    Notice,
    WholeLine,
)

# Interval at which workers are asked for the sessions that they hold, while some may not be known.
ASK_MS = 500


class LineHost:
    """Host of one line. For one event loop.

    Args:
        lease_s: time of silence after which a gateway has ended.
        kind: of the workers that the line grants.
        is_restored: the line was there before.
        ask_workers: returns the reports of the workers that can be reached; never raises, and has a deadline.
    """

    def __init__(
        self,
        lease_s: float,
        *,
        kind: str,
        is_restored: bool,
        ask_workers: Callable[[], Awaitable[Sequence[HostReport]]],
    ) -> None:
        self._line = RayLine(
            secrets.token_hex(8),
            round(lease_s * 1_000),
            kind=kind,
            is_restored=is_restored,
            now_ms=self._now_ms(),
        )
        self._ask_workers = ask_workers
        # Replaced when others wait or are served, so that all gateways that attend are notified.
        self._changed = asyncio.Event()
        # Set when something may be due at another time, and when workers may have to be asked.
        self._is_other_time, self._is_unclaimed = asyncio.Event(), asyncio.Event()
        self._called()

    async def run(self) -> None:
        """Perform what is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._keep_time), name="line.time")
            tasks.create_task(self._repeat(self._ask), name="line.workers")

    async def _repeat(self, turn: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await turn()
            except Exception as error:
                # The outermost level of the task: a restarted line would never open if it ended.
                logger.opt(exception=error).error("a line could not do what was due")
                await asyncio.sleep(ASK_MS / 1_000)

    async def _keep_time(self) -> None:
        """Wait until something is due, and do it."""
        due_ms = self._line.next_due_ms()
        left_s = None if due_ms is None else max(0, due_ms - self._now_ms()) / 1_000
        try:
            async with asyncio.timeout(left_s):
                await self._is_other_time.wait()
        except TimeoutError:
            version = self._line.version
            self._line.on_time(self._now_ms(), self._clock_us())
            self._notify_since(version)
        self._is_other_time.clear()

    async def _ask(self) -> None:
        """Ask the workers once, when they may hold sessions that no gateway claims."""
        await self._is_unclaimed.wait()
        for report in await self._ask_workers():
            version = self._line.version
            self._line.on_host_report(report, self._now_ms(), self._clock_us())
            self._notify_since(version)
        await asyncio.sleep(ASK_MS / 1_000)
        self._called()

    def _called(self) -> None:
        """Record a call or report, by which something may be due at another time."""
        self._is_other_time.set()
        if self._line.has_unclaimed:
            self._is_unclaimed.set()
        else:
            self._is_unclaimed.clear()

    def _notify_since(self, version: int) -> None:
        self._called()
        if self._line.version != version:
            self._notify()

    async def exchange(self, text: str) -> str:
        """Return the answer to an ``Exchange``."""
        version = self._line.version
        answer = self._line.exchange(EXCHANGE.validate_json(text), self._now_ms(), self._clock_us())
        self._notify_since(version)
        return ANSWER.dump_json(answer).decode()

    async def attend(self, text: str) -> str:
        """Return a ``Notice`` as soon as there is news, or after the wait."""
        asked = ATTENTION.validate_json(text)
        has_news = False
        try:
            async with asyncio.timeout(asked.wait_s):
                while not (has_news := self._line.has_news(asked)):
                    if asked.version is not None and asked.version != self._line.version:
                        break
                    await self._changed.wait()
        except TimeoutError:
            pass
        return NOTICE.dump_json(Notice(has_news, self._line.version)).decode()

    async def look(self, member: str) -> str:
        """Return the ``WholeLine`` of a gateway."""
        line, now_ms = self._line, self._now_ms()
        requests = line.seen_requests(member, now_ms)
        parts = (requests[place : place + PART] for place in range(0, len(requests), PART))
        seen = WholeLine(
            line.version,
            tuple(SEEN_REQUESTS.dump_json(part).decode() for part in parts),
            line.seen_leases(member, now_ms),
        )
        return WHOLE_LINE.dump_json(seen).decode()

    async def leave(self, member: str) -> str:
        """Remove a gateway."""
        version = self._line.version
        self._line.leave(member, self._now_ms(), self._clock_us())
        self._notify_since(version)
        logger.info(f"the gateway {member} has left the line")
        return ""

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @staticmethod
    def _now_ms() -> int:
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def _clock_us() -> int:
        # Comparable with that of another node, on which the line may be restarted.
        return time.time_ns() // 1_000
