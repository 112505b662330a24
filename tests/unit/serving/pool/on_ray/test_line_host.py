"""Host of a line: time goes on while workers do not answer."""

import asyncio
from collections.abc import Sequence

from parley.serving.pool.on_ray.line_host import LineHost
from parley.serving.pool.on_ray.messages import (
    ANSWER,
    ATTENTION,
    EXCHANGE,
    NOTICE,
    Attention,
    Exchange,
    HostReport,
    LineAnswer,
)
from parley.serving.pool.shared.scheduler import LineChanges
from parley.serving.pool.shared.tables import RequestRow
from parley.serving.scheduler.types import Task, WorkerCapacity, WorkerRequest

PATIENCE_S = 20.0


async def exchanged(host: LineHost, sent: Exchange) -> LineAnswer:
    return ANSWER.validate_json(await host.exchange(EXCHANGE.dump_json(sent).decode()))


async def test_a_restarted_line_opens_in_time_although_workers_do_not_answer() -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def ask_workers() -> Sequence[HostReport]:
        asked.set()
        await never.wait()
        return ()

    host = LineHost(0.2, kind="omni", is_restored=True, ask_workers=ask_workers)
    running = asyncio.create_task(host.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
            life = (await exchanged(host, Exchange("here", 1))).life
            want = WorkerRequest("a", "session", Task.OMNI_DUPLEX)
            changes = LineChanges(requests=(RequestRow(want, 1, True),), reached=(WorkerCapacity("w", "1"),))
            assert (await exchanged(host, Exchange("here", 2, life, changes=changes))).granted == ()
            attention = Attention("here", life, 0, None, PATIENCE_S)
            notice = NOTICE.validate_json(await host.attend(ATTENTION.dump_json(attention).decode()))
        assert notice.has_news
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_workers_are_asked_again_until_each_session_is_claimed_or_over() -> None:
    counted = asyncio.Semaphore(0)

    async def ask_workers() -> Sequence[HostReport]:
        counted.release()
        return ()

    host = LineHost(60.0, kind="omni", is_restored=True, ask_workers=ask_workers)
    running = asyncio.create_task(host.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(3):
                await counted.acquire()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
