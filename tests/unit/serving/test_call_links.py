"""Sessions of calls that lose their stream: across processes, and a bounded number of times."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.core.errors import StoreUnavailableError
from parley.serving.gateway.phone.call_links import REPEATED_S, CallLinks, new_holder
from parley.serving.gateway.phone.caller_settings import ReconnectTuning
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.session_store.call_links import CallLink
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore

CALL = PhoneCall("CA1", "+15550100", "+15550199", network="twilio")
OTHER = PhoneCall("CA2", "+15550100", "+15550199", network="twilio")


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    yield opened
    await opened.close()


async def session_of(links: CallLinks, call: PhoneCall) -> str | None:
    link = await links.link_of(call)
    return None if link is None else link.session_id


async def test_a_call_is_found_by_another_process_until_it_is_over(store: SessionStore):
    session = (await store.create()).id
    first, second = (CallLinks(store, ReconnectTuning()) for _ in range(2))
    assert await session_of(second, CALL) is None
    await first.began(CALL, session, "a")
    assert await session_of(second, CALL) == session
    assert await session_of(second, OTHER) is None
    await first.over(CALL, "a")
    assert await session_of(second, CALL) is None


async def test_a_process_that_has_lost_a_call_to_another_one_does_not_end_it(store: SessionStore):
    session = (await store.create()).id
    stale, present = (CallLinks(store, ReconnectTuning()) for _ in range(2))
    await stale.began(CALL, session, "old")
    await present.began(CALL, session, "new")
    await stale.over(CALL, "old")
    # Neither in the store, nor for the process that has lost it: Twilio may ask that one next.
    assert await session_of(present, CALL) == session
    assert await session_of(stale, CALL) == session
    await present.over(CALL, "new")
    assert await session_of(stale, CALL) is None


async def test_a_call_is_in_the_session_that_it_has_moved_to(store: SessionStore):
    links = CallLinks(store, ReconnectTuning())
    first, second = (await store.create()).id, (await store.create()).id
    await links.began(CALL, first, "a")
    await links.began(CALL, second, "a")
    assert await session_of(links, CALL) == second


async def test_a_call_without_an_id_is_no_call(store: SessionStore):
    links = CallLinks(store, ReconnectTuning())
    nameless = PhoneCall("", "+15550100", "+15550199", network="twilio")
    await links.began(nameless, (await store.create()).id, "a")
    assert await links.link_of(nameless) is None


async def test_a_call_is_connected_again_so_many_times_and_not_more(store: SessionStore):
    session = (await store.create()).id
    settings = ReconnectTuning(most=2)
    # Each of them in a process that dies after it has taken the stream.
    taken = [await CallLinks(store, settings).take(CALL, CallLink(session, new_holder())) for _ in range(4)]
    assert taken == [True, True, False, False]
    assert await CallLinks(store, settings).take(OTHER, CallLink(session, new_holder()))


async def test_a_request_that_repeats_for_one_lost_stream_counts_once(store: SessionStore):
    session = (await store.create()).id
    settings, lost = ReconnectTuning(most=2), CallLink(session, "a")
    # The network sends it again to this process or, where that one is slow, to another.
    assert all([await CallLinks(store, settings).take(CALL, lost) for _ in range(5)])
    taken = [await CallLinks(store, settings).take(CALL, CallLink(session, name)) for name in "bc"]
    assert taken == [True, False]


async def test_a_stream_that_never_comes_counts_again_after_a_while(tmp_path: Path):
    time_us = [1_000_000_000_000_000]
    url = f"sqlite:///{tmp_path}/sessions.db"
    opened = await SessionStore.open(StoreTuning(url=url), now_us=lambda: time_us[0])
    links, lost = CallLinks(opened, ReconnectTuning(most=2)), CallLink((await opened.create()).id, "a")
    taken = []
    for _ in range(3):
        taken.append(await links.take(CALL, lost))
        time_us[0] += round((REPEATED_S + 1) * 1e6)
    await opened.close()
    assert taken == [True, True, False]


async def test_reconnections_of_long_ago_do_not_count(store: SessionStore):
    session = (await store.create()).id
    assert await CallLinks(store, ReconnectTuning(most=1)).take(CALL, CallLink(session, "a"))
    brief = ReconnectTuning(most=1, within_s=1e-6)
    assert await CallLinks(store, brief).take(CALL, CallLink(session, "b"))


async def test_the_end_of_a_call_counts_here_while_the_store_is_away(store: SessionStore):
    session = (await store.create()).id
    links = CallLinks(store, ReconnectTuning())
    await links.began(CALL, session, "a")
    await store.close()
    await links.over(CALL, "a")
    assert await links.link_of(CALL) is None
    with pytest.raises(StoreUnavailableError):
        await links.link_of(OTHER)
