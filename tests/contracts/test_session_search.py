"""The search of an operator's list, in both databases."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.core.errors import UnknownSessionError
from parley.session_store.events import Draft, Kind
from parley.session_store.searching import SessionSearch
from parley.session_store.store import SessionStore, StoreTuning
from parley.session_store.tags import SessionTags
from tests.peers.postgres import postgres, postgres_url  # noqa: F401


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    url = f"sqlite:///{tmp_path}/a.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    opened = await SessionStore.open(StoreTuning(url=url))
    yield opened
    await opened.close()


async def said(store: SessionStore, *turns: str, transport: str = "text", answer: str = "") -> str:
    """Make a session with these turns; return its id."""
    writer = await store.claim((await store.create()).id)
    joined = [Draft(Kind.JOINED, {"transport": transport, "call_id": "a"}, 1, 1, "system")]
    drafts = [Draft(Kind.USER_TURN, {"text": turn, "transport": transport}, 2, 2, "user") for turn in turns]
    answers = [Draft(Kind.BOT_TURN, {"text": answer}, 3, 3, "bot")] if answer else []
    await writer.append(*(joined if transport != "text" else []), *drafts, *answers)
    return writer.session_id


async def found(store: SessionStore, **search: object) -> list[str]:
    return [each.info.id for each in await store.search(SessionSearch(**search), limit=10)]  # type: ignore[arg-type]


async def test_words_of_either_side_find_a_session(store: SessionStore):
    card = await said(store, "I lost my Card", answer="Call the hotline.")
    other = await said(store, "What is 100% of 5_000?")
    assert await found(store) == [other, card]
    assert await found(store, text="lost my card") == [card]
    assert await found(store, text="HOTLINE") == [card]
    assert await found(store, text="hotline of") == []
    # Signs of the pattern language and of JSON are plain text.
    assert await found(store, text="100% of 5_000") == [other]
    assert await found(store, text="1%5") == await found(store, text="5-000") == []
    assert await found(store, text='"text"') == []


async def test_words_outside_of_ascii_are_found_as_they_were_said(store: SessionStore):
    session = await said(store, "Grüße an das Café „Öl“ \\ 5")
    for text in ("grüße an", "Café „Öl“", "\\ 5"):
        assert await found(store, text=text) == [session]


async def test_transport_and_time_narrow_a_search(store: SessionStore):
    typed = await said(store, "by hand")
    called = await said(store, "by voice", transport="webrtc")
    assert await found(store, transport="webrtc") == [called]
    assert await found(store, transport="text") == [typed]
    assert await found(store, transport="web") == []
    info = await store.info(called)
    assert await found(store, since_us=info.last_us) == [called]
    assert await found(store, until_us=info.created_us) == [typed]
    assert await found(store, text="by", transport="webrtc", until_us=info.created_us) == []


async def test_a_tag_narrows_a_search_together_with_the_rest(store: SessionStore):
    tags = SessionTags(store)
    lost, found_again, other = [
        await said(store, words, transport="webrtc") for words in ("lost card", "found card", "lost key")
    ]
    for session in (lost, other):
        await tags.add(session, "call back")
    await tags.add(lost, "urgent")
    assert await found(store, tag="call back") == [other, lost]
    assert await found(store, tag="call back", text="card") == [lost]
    assert await found(store, tag="urgent", transport="webrtc") == [lost]
    assert await found(store, tag="urgent", transport="text") == await found(store, tag="call") == []
    [seen] = await store.search(SessionSearch(tag="urgent"), limit=10)
    assert seen.tags == ("call back", "urgent")
    await tags.remove(lost, "urgent")
    assert await found(store, tag="urgent") == []
    assert await found(store, text="card") == [found_again, lost]


async def test_a_session_is_summarised_by_its_turns_and_first_words(store: SessionStore):
    await said(store, "x" * 500, "and again", transport="webrtc")
    silent = await said(store)
    [nothing, talk] = await store.search(SessionSearch(), limit=10)
    assert (talk.turns, talk.transports, talk.first_words) == (2, ("webrtc",), "x" * 160)
    assert (nothing.info.id, nothing.turns, nothing.transports, nothing.first_words) == (silent, 0, (), "")


async def test_pages_follow_each_other(store: SessionStore):
    made = [await said(store, f"page {number}") for number in range(5)][::-1]
    first = [each.info.id for each in await store.search(SessionSearch(text="page"), limit=3)]
    rest = [
        each.info.id for each in await store.search(SessionSearch(text="page"), limit=3, before=first[-1])
    ]
    assert (first, rest) == (made[:3], made[3:])
    with pytest.raises(UnknownSessionError):
        await store.search(SessionSearch(), limit=3, before="0" * 8 + "-0000-0000-0000-" + "0" * 12)
