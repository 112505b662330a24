"""Contract of the session store for the use of tenants, on a SQLite file and on a real PostgreSQL server."""

import asyncio
from collections.abc import Mapping
from functools import partial
from itertools import count

from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore
from parley.session_store.tenant_use import (
    TenantUse,
    UseAmounts,
    UseReport,
    begin_call,
    end_calls,
    period_us,
    read_stored,
    read_use,
    report_use,
)
from tests.contracts.test_session_store import (  # noqa: F401
    DAY_US,
    HOUR_US,
    NOW_US,
    Opener,
    opening,
    store,
    url,
)
from tests.peers.postgres import postgres, postgres_url  # noqa: F401

LEASE_US = 30_000_000
# On a loaded machine the transactions wait for each other.
WITHIN_S = 60.0
NUMBERS = count(1)


async def begin(store: SessionStore, call_id: str, *, most: int = 100, now_us: int = NOW_US) -> bool:  # noqa: F811
    """Begin a call of tenant ``a`` where fewer than ``most`` run; return whether it has begun."""
    work = partial(
        begin_call,
        tenant="a",
        call_id=call_id,
        now_us=now_us,
        until_us=now_us + LEASE_US,
        may_begin=lambda use: use.running < most,
    )
    return await store.transact(work) is None


async def use_of(store: SessionStore, name: str = "a", *, now_us: int = NOW_US) -> TenantUse:  # noqa: F811
    return (await store.query(partial(read_use, tenants=[name], now_us=now_us)))[name]


async def report(
    store: SessionStore,  # noqa: F811
    now_us: int = NOW_US,
    *,
    used: Mapping[str, UseAmounts] | None = None,
    number: int | None = None,
    reporter: str = "first",
    **more: object,
) -> None:
    """Report as a process does, with the next number unless one is given."""
    reported = UseReport(reporter, next(NUMBERS) if number is None else number, used or {})
    given = {
        "running": {},
        "report": reported,
        "now_us": now_us,
        "until_us": now_us + LEASE_US,
        **more,
    }
    await store.transact(partial(report_use, **given))


async def test_two_processes_never_have_more_calls_than_the_limit(opening: Opener, url: str):  # noqa: F811
    stores = [await opening(url, turn_deadline_s=WITHIN_S, attempt_s=WITHIN_S) for _ in range(2)]
    begun = await asyncio.gather(
        *(begin(stores[number % 2], f"call {number}", most=3) for number in range(10))
    )
    assert sum(begun) == 3
    use = await use_of(stores[0])
    assert use.running == 3 and use.of("hour").calls == use.of("month").calls == 3


async def test_a_call_that_is_repeated_after_a_lost_answer_is_one_call(store: SessionStore):  # noqa: F811
    assert await begin(store, "one", most=1)
    assert await begin(store, "one", most=1)
    assert (await use_of(store)).of("day").calls == 1


async def test_calls_of_a_process_that_died_expire_and_reported_ones_do_not(store: SessionStore):  # noqa: F811
    for call_id in ("dead", "alive", "ended"):
        await begin(store, call_id)
    later_us = NOW_US + LEASE_US - 1
    await store.transact(partial(end_calls, ended=["ended"]))
    await report(store, later_us, running={"alive": "a"})
    assert (await use_of(store, now_us=later_us)).running == 2
    assert (await use_of(store, now_us=later_us + 1)).running == 1
    # The row of one that was away for longer is back with its next report.
    await report(store, later_us + 1, running={"dead": "a"})
    assert (await use_of(store, now_us=later_us + 1)).running == 2


async def test_use_adds_up_by_tenant_and_period(store: SessionStore):  # noqa: F811
    amounts = UseAmounts(call_ms=60_000, tokens=7, cost_nano=12_345_678_901)
    for _ in range(2):
        await report(store, used={"a": amounts, "b": UseAmounts(tokens=1)})
    next_hour_us = NOW_US + HOUR_US
    await report(store, next_hour_us, used={"a": amounts})
    use = await use_of(store, now_us=next_hour_us)
    assert use.of("hour") == amounts and use.of("day") == amounts + amounts + amounts
    assert (await use_of(store, "b")).of("month") == UseAmounts(tokens=2)
    assert (await use_of(store, now_us=NOW_US + 40 * DAY_US)).periods == {}


async def test_a_report_that_comes_twice_is_counted_once(store: SessionStore):  # noqa: F811
    used = {"a": UseAmounts(tokens=7), "b": UseAmounts(tokens=1)}
    for reporter in ("second", "third"):
        for number in (1, 1, 2, 2, 1):
            await report(store, used=used, reporter=reporter, number=number)
    assert (await use_of(store)).of("day").tokens == 4 * 7
    # The numbers of a process that has ended are forgotten, and those of the others are not.
    later_us = NOW_US + 3 * DAY_US
    await report(store, later_us - 1, used=used, reporter="third", number=3)
    for reporter in ("third", "second"):
        await report(store, later_us, used=used, reporter=reporter, number=2)
    assert (await use_of(store, now_us=later_us)).of("day").tokens == 2 * 7


def test_a_period_ends_where_the_next_one_begins() -> None:
    # 2026-12-31T23:59:59Z
    now_us = 1_798_761_599_000_000
    ends = {period_us(period, now_us)[1] for period in ("hour", "day", "month")}
    assert ends == {1_798_761_600_000_000}
    assert period_us("month", 1_798_761_600_000_000)[0] == 1_798_761_600_000_000


async def test_the_size_of_sessions_is_that_of_their_events(store: SessionStore):  # noqa: F811
    application = "0123456789abcdef" * 2
    owned = [await store.create(owner=owner) for owner in (application, f"{application}:ann")]
    await store.create(owner="f" * 32)
    await store.create()
    for session in owned:
        writer = await store.claim(session.id)
        for text in ("hello", "again"):
            await writer.append(Draft(Kind.USER_TURN, {"text": text}, NOW_US, NOW_US, "user"))
    read = partial(read_stored, applications=[application, "none"])
    size = 2 * len('{"v":1,"text":"hello"}')
    assert await store.query(read, is_long=True) == {application: (2, 2 * size)}
    # An import counts as well, and a deleted session not any more.
    exported = [line async for line in store.export(owned[0].id)]
    await store.delete(owned[0].id)
    assert await store.query(read) == {application: (1, size)}
    await store.import_(exported)
