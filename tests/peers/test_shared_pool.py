"""A line that several gateways share, in a real PostgreSQL."""

import asyncio
import secrets
import time

import asyncpg
import pytest

from parley.core.errors import ConfigError
from parley.evals.bench.shared_pool.__main__ import kept_order
from parley.evals.bench.shared_pool.processes import gateway
from parley.models.llm.kv.segments import CacheHandle
from parley.serving.pool.pool import Pool
from parley.serving.pool.settings import PoolTuning, SharedPoolSettings
from parley.serving.pool.shared import tables
from parley.serving.scheduler.types import RefusalReason, Task
from parley.session_store.settings import StoreSettings
from tests.peers.postgres import PostgresServer, own_postgres, postgres, postgres_url
from tests.peers.shared_pool import QUICK, gateways, now_ms, prepared, until

# Fixtures.
__all__ = ["own_postgres", "postgres", "postgres_url"]

# A gateway that is delayed for longer than its lease has lost its place.
pytestmark = pytest.mark.paired


async def test_a_slot_goes_to_the_first_request_whichever_gateway_it_is_on(postgres_url: str) -> None:
    async with gateways(postgres_url) as (here, there):
        here.reach("w")
        there.reach("w")
        here.ask("a")
        await until(lambda: here.granted == [("a", "w")])
        for number, each in enumerate((there, here, there)):
            each.ask(f"b{number}")
            await until(lambda length=number + 1: here.scheduler.waiting == there.scheduler.waiting == length)
        # A conversation by text waits for the calls, and the places are those of all gateways.
        here.ask("text", Task.CHAT)
        there.ask("b3")
        await until(lambda: here.line == there.line == ["b0", "b1", "b2", "b3", "text"])
        assert [place.position for place in here.scheduler.places(now_ms())] == [1, 2, 3, 4, 5]
        assert all(place.wait_ms is not None for place in there.scheduler.places(now_ms()))
        here.release("a")
        await until(lambda: there.granted == [("b0", "w")])
        there.release("b0")
        await until(lambda: here.granted[1:] == [("b1", "w")])
        # One that loses its worker comes before all others.
        here.take(here.scheduler.move("b1", now_ms()))
        assert here.lost == ["b1"]
        await until(lambda: there.granted[1:] == [("b2", "w")])
        await until(lambda: there.line == ["b1", "b3", "text"])


async def test_an_operator_removes_a_caller_of_another_gateway(postgres_url: str) -> None:
    async with gateways(postgres_url) as (here, there):
        there.ask("a")
        await until(lambda: here.line == ["a"])
        here.take(here.scheduler.evict("a", now_ms(), reason=RefusalReason.WITHDRAWN))
        await until(lambda: there.refused == [("a", RefusalReason.WITHDRAWN)])
        await until(lambda: here.line == there.line == [])
        assert here.scheduler.evict("a", now_ms()) == []


async def test_a_full_line_counts_the_callers_of_all_gateways(postgres_url: str) -> None:
    async with gateways(postgres_url, max_waiting=1) as (here, there):
        here.ask("a")
        await until(lambda: there.line == ["a"])
        there.ask("b")
        await until(lambda: there.refused == [("b", RefusalReason.QUEUE_FULL)])
        # A request that finds a free slot does not wait.
        there.reach("w")
        here.reach("w")
        await until(lambda: here.granted == [("a", "w")])


async def test_memory_and_handles_count_over_all_gateways(postgres_url: str) -> None:
    async with gateways(postgres_url) as (here, there):
        for each in (here, there):
            each.reach("v", slots=8, kv_bytes=100)
            each.reach("w", slots=8, kv_bytes=100)
        here.ask("a", kv_bytes=60, handle=CacheHandle("w", "1", "digest", 10))
        await until(lambda: here.granted == [("a", "w")])
        there.ask("b", kv_bytes=60, handle=CacheHandle("w", "1", "digest", 10))
        await until(lambda: there.granted == [("b", "v")])
        there.ask("c", kv_bytes=60)
        await until(lambda: here.line == ["c"])
        # A smaller one does not overtake it, and one that no worker could hold is refused.
        here.ask("d", kv_bytes=10)
        here.ask("e", kv_bytes=101)
        assert here.refused == [("e", RefusalReason.TOO_LARGE)]
        await until(lambda: there.line == ["c", "d"])
        here.release("a")
        await until(lambda: there.granted[1:] == [("c", "w")] and here.granted[1:] == [("d", "v")])


async def test_a_restarted_worker_loses_its_conversations_and_takes_them_again(postgres_url: str) -> None:
    async with gateways(postgres_url) as (here, there):
        here.reach("w")
        here.ask("a")
        await until(lambda: here.granted == [("a", "w")])
        there.ask("b")
        await until(lambda: here.line == ["b"])
        here.reach("w", life="2")
        assert here.lost == ["a"]
        await until(lambda: len(here.granted) == 2)
        # Not before: the gateway that reports the new process first serves the requests that it has.
        there.reach("w", life="2")
        assert there.granted == [] and here.granted[1] == ("a", "w")


async def test_a_lost_notification_delays_a_grant_and_does_not_lose_it(postgres_url: str) -> None:
    async with gateways(postgres_url) as (here, there):
        here.reach("w")
        here.ask("a")
        await until(lambda: here.granted == [("a", "w")])
        here.ask("b")
        await until(lambda: there.line == ["b"])
        connection = await asyncpg.connect(postgres_url)
        try:
            # As ``LineSync`` does, without the notification.
            async with connection.transaction():
                await tables.lock(connection, "default.omni")
                await connection.execute("DELETE FROM pool_lease")
                assert await tables.grant(connection, "default.omni")
        finally:
            await connection.close()
        await until(lambda: here.granted[1:] == [("b", "w")])


async def test_a_killed_gateway_frees_its_places_and_slots_after_its_lease(postgres_url: str) -> None:
    async with gateways(postgres_url) as (here, _), gateway(postgres_url, QUICK) as other:
        other.command(do="reach", worker="w", slots=1)
        other.command(do="ask", tickets=["x", "y"], at_s=[0.0, 0.0])
        await other.said("granted", 1, 60)
        here.reach("w")
        here.ask("a")
        await until(lambda: here.line == ["y", "a"])
        began_s = time.monotonic()
        other.process.kill()
        await until(lambda: here.granted == [("a", "w")])
        assert time.monotonic() - began_s >= QUICK.lease_s - QUICK.poll_s
        await until(lambda: here.line == [])


async def test_a_crashed_database_gets_line_and_leases_back_in_order(own_postgres: PostgresServer) -> None:
    url = own_postgres.new_database()
    async with gateways(url) as (here, there):
        for each in (here, there):
            each.reach("w")
        here.ask("a")
        await until(lambda: here.granted == [("a", "w")])
        for number in range(6):
            (here, there)[number % 2].ask(f"b{number}")
            await until(lambda length=number + 1: here.scheduler.waiting == there.scheduler.waiting == length)
        before = here.line
        await asyncio.to_thread(own_postgres.stop)
        there.ask("late")
        await asyncio.to_thread(own_postgres.start)
        await until(lambda: here.line == there.line == [*before, "late"])
        assert len(here.scheduler.running(now_ms())) == len(there.scheduler.running(now_ms())) == 1
        here.release("a")
        await until(lambda: here.granted[1:] == [("b0", "w")])


@pytest.mark.slow
async def test_1000_callers_of_two_gateways_are_served_in_order_of_arrival(
    postgres_url: str,
) -> None:
    order = await kept_order(postgres_url, callers=1_000, every_ms=2)
    assert order["served"] == order["callers"] == 1_000
    assert order["out_of_order"] == 0


async def test_30_callers_of_two_gateways_are_served_in_order_of_arrival(postgres_url: str) -> None:
    order = await kept_order(postgres_url, callers=30, every_ms=5)
    assert order["served"] == order["callers"] == 30
    assert order["out_of_order"] == 0


async def test_a_shared_pool_needs_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_WORKER_SECRET", secrets.token_hex(16))
    settings = PoolTuning(shared=SharedPoolSettings())
    with pytest.raises(ConfigError, match="needs a PostgreSQL database"):
        Pool(settings, store=StoreSettings(url="sqlite:///sessions.db"))
    with pytest.raises(ConfigError, match="needs a PostgreSQL database"):
        Pool(settings)


async def test_pools_of_other_names_share_nothing(postgres_url: str) -> None:
    await prepared(postgres_url)
    other = QUICK.model_copy(update={"name": "other"})
    async with gateways(postgres_url) as (here, _), gateways(postgres_url, other) as (there, _):
        here.ask("a")
        there.ask("b")
        await until(lambda: here.line == ["a"] and there.line == ["b"])
