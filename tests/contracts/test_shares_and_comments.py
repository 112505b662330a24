"""Contract of links and comments, on a SQLite file and on a real PostgreSQL server."""

import pytest
import sqlalchemy as sa

from parley.core.errors import UnknownSessionError
from parley.session_store.comments import MOST_COMMENTS, SessionComments, TooManyCommentsError
from parley.session_store.schema import session_comment_table, share_link_table
from parley.session_store.share_links import KEPT_DAYS, MOST_LINKS, ShareLinks, TooManyLinksError
from parley.session_store.store import SessionStore
from tests.contracts.test_session_store import (  # noqa: F401
    DAY_US,
    NO_SESSION,
    NOW_US,
    Opener,
    Times,
    new_writer,
    opening,
    said,
    store,
    url,
)
from tests.peers.postgres import postgres, postgres_url  # noqa: F401


async def test_a_link_opens_with_its_own_secret_alone(store: SessionStore):  # noqa: F811
    links = ShareLinks(store)
    first, second = await store.create(), await store.create()
    one, secret = await links.make(first.id, for_s=60)
    other, other_secret = await links.make(second.id, for_s=60)
    assert await links.check(one.id, secret) == one
    assert one.state(store.wall_us()) == "open"
    for link_id, given in (
        (one.id, other_secret),
        (other.id, secret),
        (one.id, secret[:-1]),
        (one.id, ""),
        ("0" * 16, secret),
    ):
        assert await links.check(link_id, given) is None
    # The secret itself is in no row.
    rows = await store.look(lambda connection: connection.execute(sa.select(share_link_table)).all())
    assert secret not in repr(rows)


async def test_a_link_of_one_process_opens_in_another(opening: Opener, url: str):  # noqa: F811
    maker, reader = await opening(url), await opening(url)
    session = await maker.create()
    link, secret = await ShareLinks(maker).make(session.id, for_s=60)
    assert await ShareLinks(reader).check(link.id, secret) == link
    assert await ShareLinks(reader).revoke(session.id, link.id)
    found = await ShareLinks(maker).check(link.id, secret)
    assert found is not None and found.state(maker.wall_us()) == "revoked"


async def test_a_link_ends_and_is_forgotten_long_after(opening: Opener, url: str):  # noqa: F811
    time = Times(NOW_US)
    store = await opening(url, now_us=time.wall_us, clock=time)  # noqa: F811
    links, session = ShareLinks(store), await store.create()
    link, _ = await links.make(session.id, for_s=60)
    time.passes(59_999_999)
    assert link.state(store.wall_us()) == "open"
    time.passes(1)
    assert link.state(store.wall_us()) == "expired"
    time.passes(KEPT_DAYS * DAY_US)
    assert await links.find(link.id) == link
    time.passes(1)
    newer, _ = await links.make(session.id, for_s=60)
    assert await links.of_session(session.id) == [newer]


async def test_open_links_are_bounded_and_a_revoked_one_makes_room(store: SessionStore):  # noqa: F811
    links, session = ShareLinks(store), await store.create()
    made = [(await links.make(session.id, for_s=60))[0] for _ in range(MOST_LINKS)]
    with pytest.raises(TooManyLinksError):
        await links.make(session.id, for_s=60)
    other = await store.create()
    assert not await links.revoke(other.id, made[0].id)
    assert await links.revoke(session.id, made[0].id)
    await links.make(session.id, for_s=60)


async def test_a_link_shows_what_was_there_when_it_was_made(store: SessionStore):  # noqa: F811
    writer = await new_writer(store)
    await writer.append(said("before"))
    link, _ = await ShareLinks(store).make(writer.session_id, for_s=60)
    await writer.append(said("after"))
    assert link.until_seq == 1


async def test_comments_are_in_order_of_their_time(store: SessionStore):  # noqa: F811
    comments, session = SessionComments(store), await store.create()
    for at_us, text in ((9, "third"), (5, "first"), (7, "second\n<b>Ω</b>")):
        await comments.add(session.id, at_us=at_us, author="k:ann", name="ann", text=text)
    found = await comments.of_session(session.id)
    assert [each.text for each in found] == ["first", "second\n<b>Ω</b>", "third"]
    other = await store.create()
    assert await comments.find(other.id, found[0].id) is None
    await comments.delete(other.id, found[0].id)
    assert await comments.find(session.id, found[0].id) == found[0]
    await comments.delete(session.id, found[0].id)
    assert await comments.of_session(session.id) == found[1:]


async def test_comments_are_bounded(store: SessionStore):  # noqa: F811
    comments, session = SessionComments(store), await store.create()
    rows = [
        {"id": f"{n:032}", "session_id": session.id, "at_us": n, "created_us": 1, "author": "", "name": "a"}
        for n in range(MOST_COMMENTS)
    ]
    insert = sa.insert(session_comment_table).values(text="x")
    await store.transact(lambda connection: connection.execute(insert, rows).rowcount)
    with pytest.raises(TooManyCommentsError):
        await comments.add(session.id, at_us=1, author="", name="ann", text="one more")
    # One that takes the place of another is no more.
    replaces = [rows[0]["id"]]
    await comments.add(session.id, at_us=0, author="", name="ann", text="new", replaces=replaces)
    found = await comments.of_session(session.id)
    assert (len(found), found[0].text) == (MOST_COMMENTS, "new")


async def test_links_and_comments_go_with_their_session(store: SessionStore):  # noqa: F811
    session = await store.create()
    link, secret = await ShareLinks(store).make(session.id, for_s=60)
    await SessionComments(store).add(session.id, at_us=1, author="", name="ann", text="hello")
    await store.delete(session.id)
    assert await ShareLinks(store).check(link.id, secret) is None
    for table in (share_link_table, session_comment_table):
        count = sa.select(sa.func.count()).select_from(table)
        assert await store.look(lambda connection, count=count: connection.scalar(count)) == 0


async def test_a_session_that_is_not_there_gets_neither(store: SessionStore):  # noqa: F811
    with pytest.raises(UnknownSessionError):
        await ShareLinks(store).make(NO_SESSION, for_s=60)
    with pytest.raises(UnknownSessionError):
        await SessionComments(store).add(NO_SESSION, at_us=1, author="", name="ann", text="hello")
