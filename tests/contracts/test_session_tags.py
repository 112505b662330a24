"""Contract of the tags of sessions, on a SQLite file and on a real PostgreSQL server."""

import asyncio
import json

import pytest
import sqlalchemy as sa

from parley.core.errors import UnknownSessionError
from parley.session_store.events import Draft, Kind
from parley.session_store.schema import session_tag_table
from parley.session_store.searching import SessionSearch
from parley.session_store.size import stored_bytes
from parley.session_store.store import SessionStore
from parley.session_store.tags import MOST_TAG_CHARS, MOST_TAGS, SessionTags, TagError, normalised
from tests.contracts.test_session_store import (  # noqa: F401
    NO_SESSION,
    Opener,
    opening,
    store,
    url,
)
from tests.peers.postgres import postgres, postgres_url  # noqa: F401


@pytest.mark.parametrize(
    ("text", "tag"),
    [("Urgent", "urgent"), ("  call\t BACK ", "call back"), ("STRASSE", "strasse"), ("\uff21\uff11", "a1")],
)
def test_a_tag_has_one_form(text: str, tag: str):
    assert normalised(text) == tag == normalised(tag)


@pytest.mark.parametrize("text", ["", "  ", "a,b", "a\x00b", "x" * (MOST_TAG_CHARS + 1), "a\u200bb"])
def test_what_is_no_tag_is_refused(text: str):
    with pytest.raises(TagError):
        normalised(text)


async def test_each_change_is_an_event_that_names_all_tags(store: SessionStore):  # noqa: F811
    tags, session = SessionTags(store), (await store.create()).id
    assert await tags.add(session, "urgent") == ("urgent",)
    assert await tags.add(session, "bill") == ("bill", "urgent")
    assert await tags.add(session, "bill") == ("bill", "urgent")
    assert await tags.remove(session, "urgent") == ("bill",)
    assert await tags.remove(session, "urgent") == await tags.of_session(session) == ("bill",)
    events = await store.events(session, limit=10)
    assert [(each.kind, each.seq, each.payload["tags"]) for each in events] == [
        (Kind.TAGS, 1, ["urgent"]),
        (Kind.TAGS, 2, ["bill", "urgent"]),
        (Kind.TAGS, 3, ["bill"]),
    ]


async def test_a_call_of_another_process_goes_on_while_its_session_is_tagged(opening: Opener, url: str):  # noqa: F811
    holder, other = await opening(url), await opening(url)
    writer = await holder.claim((await holder.create()).id)
    session = writer.session_id
    await writer.append(Draft(Kind.USER_TURN, {"text": "first"}, 1, 1, "user"))
    await SessionTags(other).add(session, "urgent")
    await writer.append(Draft(Kind.USER_TURN, {"text": "second"}, 2, 2, "user"))
    kinds = [each.kind for each in await other.events(session, limit=10)]
    assert kinds == [Kind.USER_TURN, Kind.TAGS, Kind.USER_TURN]
    assert (await other.info(session)).last_seq == 3


async def test_changes_at_one_time_are_all_kept(store: SessionStore):  # noqa: F811
    tags, session = SessionTags(store), (await store.create()).id
    names = [f"tag {number}" for number in range(MOST_TAGS)]
    await asyncio.gather(*(tags.add(session, name) for name in names))
    assert await tags.of_session(session) == tuple(sorted(names))
    with pytest.raises(TagError, match=f"{MOST_TAGS} tags"):
        await tags.add(session, "one more")


async def test_a_follower_sees_a_tag_at_once(store: SessionStore):  # noqa: F811
    session = (await store.create()).id
    following = store.follow(session)
    event = asyncio.ensure_future(anext(following))
    await SessionTags(store).add(session, "urgent")
    async with asyncio.timeout(5):
        assert (await event).payload["tags"] == ["urgent"]
    await following.aclose()


async def test_tags_are_exported_imported_and_deleted_with_their_session(store: SessionStore):  # noqa: F811
    tags, session = SessionTags(store), (await store.create()).id
    for tag in ("urgent", "bill"):
        await tags.add(session, tag)
    lines = [line async for line in store.export(session)]
    assert [json.loads(line)["payload"]["tags"] for line in lines[1:-1]] == [["urgent"], ["bill", "urgent"]]

    await store.delete(session)
    rows = await store.look(lambda connection: connection.execute(sa.select(session_tag_table)).all())
    assert rows == []
    with pytest.raises(UnknownSessionError):
        await tags.of_session(session)

    await store.import_(lines)
    assert await tags.of_session(session) == ("bill", "urgent")
    assert [each.info.id for each in await store.search(SessionSearch(tag="bill"), limit=5)] == [session]


async def test_an_import_has_the_tags_that_can_be_stored(store: SessionStore):  # noqa: F811
    session = (await store.create()).id
    now_us = store.wall_us()
    stated = ["urgent", "\ud800", "a\0b", "", "x" * (MOST_TAG_CHARS + 1), 7, "urgent"]
    writer = await store.claim(session)
    await writer.append(Draft(Kind.TAGS, {"tags": stated}, now_us, now_us, "system"))
    lines = [line async for line in store.export(session)]
    await store.delete(session)
    await store.import_(lines)
    assert await SessionTags(store).of_session(session) == ("urgent",)


async def test_a_session_that_is_not_there_has_no_tags(store: SessionStore):  # noqa: F811
    with pytest.raises(UnknownSessionError):
        await SessionTags(store).add(NO_SESSION, "urgent")


async def test_the_size_of_the_database_is_known(store: SessionStore):  # noqa: F811
    before = await stored_bytes(store)
    session = (await store.create()).id
    writer = await store.claim(session)
    await writer.append(Draft(Kind.USER_TURN, {"text": "x" * 200_000}, 1, 1, "user"))
    assert 0 < before < await stored_bytes(store) < 1_000_000_000
