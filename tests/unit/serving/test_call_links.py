"""Sessions of calls that lose their stream: across processes, and a bounded number of times."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.core.errors import StoreUnavailableError
from parley.serving.gateway.phone.call_links import CallLinks
from parley.serving.gateway.phone.caller_settings import CallerSettings, ReconnectSettings
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore

CALL = PhoneCall("CA1", "+15550100", "+15550199", network="twilio")
OTHER = PhoneCall("CA2", "+15550100", "+15550199", network="twilio")


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    yield opened
    await opened.close()


async def test_a_call_is_found_by_another_process_until_it_is_over(store: SessionStore):
    session = (await store.create()).id
    first, second = (CallLinks(store, ReconnectSettings()) for _ in range(2))
    assert await second.session_of(CALL) is None
    await first.began(CALL, session)
    assert await second.session_of(CALL) == session
    assert await second.session_of(OTHER) is None
    await first.over(CALL)
    assert await second.session_of(CALL) is None


async def test_a_call_is_in_the_session_that_it_has_moved_to(store: SessionStore):
    links = CallLinks(store, ReconnectSettings())
    first, second = (await store.create()).id, (await store.create()).id
    await links.began(CALL, first)
    await links.began(CALL, second)
    assert await links.session_of(CALL) == second


async def test_a_call_without_an_id_is_no_call(store: SessionStore):
    links = CallLinks(store, ReconnectSettings())
    nameless = PhoneCall("", "+15550100", "+15550199", network="twilio")
    await links.began(nameless, (await store.create()).id)
    assert await links.session_of(nameless) is None


async def test_a_call_is_connected_again_so_many_times_and_not_more(store: SessionStore):
    session = (await store.create()).id
    settings = ReconnectSettings(most=2)
    # Each of them in a process that dies after it.
    taken = [await CallLinks(store, settings).take(CALL, session) for _ in range(4)]
    assert taken == [True, True, False, False]
    assert await CallLinks(store, settings).take(OTHER, session)


async def test_reconnections_of_long_ago_do_not_count(store: SessionStore):
    session = (await store.create()).id
    assert await CallLinks(store, ReconnectSettings(most=1)).take(CALL, session)
    brief = ReconnectSettings(most=1, within_s=1e-6)
    assert await CallLinks(store, brief).take(CALL, session)


async def test_links_forget_no_number_that_is_still_remembered(store: SessionStore):
    session = (await store.create()).id
    await store.link_caller(session, "d" * 64, forget_days=30)
    links = CallLinks(store, ReconnectSettings(), CallerSettings(trust="any", days=30))
    await links.began(CALL, session)
    await links.over(CALL)
    assert await store.session_of_caller("d" * 64, within_days=30) == session


async def test_the_end_of_a_call_counts_here_while_the_store_is_away(store: SessionStore):
    session = (await store.create()).id
    links = CallLinks(store, ReconnectSettings())
    await links.began(CALL, session)
    await store.close()
    await links.over(CALL)
    assert await links.session_of(CALL) is None
    with pytest.raises(StoreUnavailableError):
        await links.session_of(OTHER)
