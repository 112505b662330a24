"""Contract of the session store for callers and codes, on a SQLite file and on a real PostgreSQL server."""

import asyncio

import pytest

from parley.core.errors import UnknownSessionError
from parley.session_store.call_links import CallLink
from parley.session_store.store import SessionStore
from tests.contracts.test_session_store import (  # noqa: F401
    DAY_US,
    NO_SESSION,
    NOW_US,
    Opener,
    Times,
    opening,
    store,
    url,
)
from tests.peers.postgres import postgres, postgres_url  # noqa: F401


async def test_the_session_of_a_number_is_the_last_one(store: SessionStore):  # noqa: F811
    first, second = await store.create(), await store.create()
    assert await store.session_of_caller("d1", within_days=1) is None
    for session in (first, second):
        await store.link_caller(session.id, "d1", forget_days=1)
    assert await store.session_of_caller("d1", within_days=1) == second.id
    assert await store.session_of_caller("d1", within_days=1, tenant="other") is None
    assert await store.unlink_callers(second.id) == 1
    assert await store.session_of_caller("d1", within_days=1) is None


async def test_only_the_stream_that_holds_a_call_removes_its_link(store: SessionStore):  # noqa: F811
    session = await store.create()
    for holder in ("old", "new"):
        await store.link_call("c", CallLink(session.id, holder), forget_days=1)
    assert not await store.unlink_call("c", "old")
    assert await store.call_link("c", within_days=1) == CallLink(session.id, "new")
    assert await store.unlink_call("c", "new")
    assert await store.call_link("c", within_days=1) is None


async def test_calls_and_numbers_forget_each_other_not(opening: Opener, url: str):  # noqa: F811
    time = Times(NOW_US)
    store = await opening(url, now_us=time.wall_us, clock=time)  # noqa: F811
    session = await store.create()
    await store.link_caller(session.id, "number", forget_days=30)
    time.passes(2 * DAY_US)
    await store.link_call("c", CallLink(session.id, "stream"), forget_days=1)
    time.passes(DAY_US // 2)
    # Numbers are remembered for an hour here, and the call has lasted longer.
    assert await store.session_of_caller("number", within_days=30) == session.id
    await store.link_caller(session.id, "other", forget_days=1 / 24)
    assert await store.call_link("c", within_days=1) == CallLink(session.id, "stream")
    # The person's wish to be forgotten ends no call.
    assert await store.unlink_callers(session.id) == 1
    assert await store.call_link("c", within_days=1) == CallLink(session.id, "stream")


async def test_lost_streams_of_a_call_are_counted_once_each(store: SessionStore):  # noqa: F811
    session, places = await store.create(), ["c.0", "c.1"]

    async def count(holder: str) -> bool:
        return await store.count_lost_stream(places, CallLink(session.id, holder), within_s=60, same_s=30)

    assert await asyncio.gather(*(count("a") for _ in range(4))) == [True] * 4
    assert [await count(holder) for holder in "bac"] == [True, True, False]
    await store.delete(session.id)
    with pytest.raises(UnknownSessionError):
        await count("d")


async def test_a_number_that_was_not_seen_for_long_is_forgotten(opening: Opener, url: str):  # noqa: F811
    time = Times(NOW_US)
    store = await opening(url, now_us=time.wall_us, clock=time)  # noqa: F811
    session = await store.create()
    await store.link_caller(session.id, "old", forget_days=30)
    time.passes(31 * DAY_US)
    assert await store.session_of_caller("old", within_days=30) is None
    await store.link_caller(session.id, "new", forget_days=30)
    # The row is deleted, not only hidden.
    assert await store.session_of_caller("old", within_days=1_000) is None


async def test_a_clock_that_is_ahead_forgets_no_number(opening: Opener, url: str):  # noqa: F811
    time = Times(NOW_US)
    store = await opening(url, now_us=time.wall_us, clock=time)  # noqa: F811
    session = await store.create()
    await store.link_caller(session.id, "old", forget_days=30)
    time.jumps(40 * DAY_US)
    await store.link_caller(session.id, "new", forget_days=30)
    time.jumps(-40 * DAY_US)
    assert await store.session_of_caller("old", within_days=30) == session.id


async def test_numbers_and_codes_go_with_their_session(store: SessionStore):  # noqa: F811
    session = await store.create()
    await store.link_caller(session.id, "d", forget_days=1)
    assert await store.put_code(session.id, "123456", for_s=60, most=10)
    await store.delete(session.id)
    assert await store.session_of_caller("d", within_days=1) is None
    assert await store.take_code("123456") is None
    for asked in (
        store.link_caller(NO_SESSION, "d", forget_days=1),
        store.put_code(NO_SESSION, "1234", for_s=60, most=10),
    ):
        with pytest.raises(UnknownSessionError):
            await asked


async def test_a_code_is_for_one_who_presses_it(store: SessionStore):  # noqa: F811
    session = await store.create()
    await store.put_code(session.id, "123456", for_s=60, most=10)
    found = await asyncio.gather(*(store.take_code("123456") for _ in range(5)))
    assert found.count(session.id) == 1 and found.count(None) == 4


async def test_a_session_has_one_code_which_ends_and_is_no_one_elses(opening: Opener, url: str):  # noqa: F811
    time = Times(NOW_US)
    store = await opening(url, now_us=time.wall_us)  # noqa: F811
    first, second = await store.create(), await store.create()
    assert await store.put_code(first.id, "111111", for_s=60, most=2)
    assert await store.put_code(first.id, "222222", for_s=60, most=2)
    assert await store.take_code("111111") is None
    assert not await store.put_code(second.id, "222222", for_s=60, most=2)
    assert await store.put_code(second.id, "333333", for_s=60, most=2)
    third = await store.create()
    assert not await store.put_code(third.id, "444444", for_s=60, most=2)
    time.passes(61_000_000)
    assert await store.take_code("222222") is None
    assert await store.put_code(third.id, "222222", for_s=60, most=2)
