"""Contract of what a deletion counts, and of finding a person's sessions, on SQLite and a real PostgreSQL."""

import asyncio
from dataclasses import asdict

import pytest
import sqlalchemy as sa

from parley.core.errors import UnknownSessionError
from parley.session_store.call_links import CallLink
from parley.session_store.comments import SessionComments
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.events import Draft, Kind
from parley.session_store.followers import SessionDeleted
from parley.session_store.people import SessionsOfPeople, SoughtPerson
from parley.session_store.removal import RemovedRows
from parley.session_store.schema import metadata
from parley.session_store.share_links import ShareLinks
from parley.session_store.store import SessionStore
from parley.session_store.tags import SessionTags
from tests.contracts.test_session_store import (  # noqa: F401
    NO_SESSION,
    NOW_US,
    Opener,
    opening,
    said,
    store,
    url,
    with_database,
)
from tests.peers.postgres import postgres, postgres_url  # noqa: F401

BROWSER = f"browser.{'a' * 32}"
APPLICATION = "b" * 32
ANN, BOB = f"{APPLICATION}:{'1' * 32}", f"{APPLICATION}:{'2' * 32}"
VOICES = {"call_id": "c", "voices": [{"speaker": "A"}, {"speaker": "B"}]}


async def filled(store: SessionStore, *, owner: str | None = None) -> str:  # noqa: F811
    """Return a session that has something of every kind but an entry of the vault."""
    session = (await store.create(owner=owner)).id
    writer = await store.claim(session)
    await writer.append(
        said("My name is Ada."),
        Draft(Kind.VOICES, {**VOICES, "voices": VOICES["voices"][:1]}, NOW_US, NOW_US, "diar"),
        Draft(Kind.VOICES, VOICES, NOW_US, NOW_US, "diar"),
        Draft(Kind.EVIDENCE, {"of": 1}, NOW_US, NOW_US, "system"),
    )
    await SessionComments(store).add(session, at_us=1, author="", name="", text="She sounds sad.")
    await ShareLinks(store).make(session, for_s=60)
    await SessionTags(store).add(session, "call back")
    await store.link_caller(session, f"line {session}", forget_days=1)
    await store.put_code(session, session[:8], for_s=60, most=10)
    await store.link_call(f"call {session}", CallLink(session, "stream"), forget_days=1)
    await SessionsOfPeople(store).note_caller(session, f"person {session}")
    return session


async def rows_of(url: str, session: str) -> dict[str, int]:  # noqa: F811
    """Return the tables that have something of a session, in any column, with the number of rows."""
    found: dict[str, int] = {}

    def look(connection: sa.Connection) -> None:
        for table in metadata.tables.values():
            texts = [sa.cast(column, sa.Text).contains(session) for column in table.columns]
            count = connection.scalar(sa.select(sa.func.count()).select_from(table).where(sa.or_(*texts)))
            if count:
                found[table.name] = count

    await with_database(url, look)
    return found


async def test_a_deletion_counts_what_it_deletes_and_leaves_no_row(
    store: SessionStore,  # noqa: F811
    url: str,  # noqa: F811
):
    session, other = await filled(store), await filled(store)
    expected = RemovedRows(
        sessions=1,
        # One of them is that of the tags.
        events=5,
        voiceprints=2,
        evidence=1,
        comments=1,
        links=1,
        tags=1,
        numbers=2,
        codes=1,
        call_links=1,
    )
    assert await SessionsOfPeople(store).count([session, NO_SESSION]) == expected
    before = await rows_of(url, session)
    assert set(before) == {
        *("session", "event", "session_comment", "share_link", "session_tag", "caller", "caller_session"),
        *("call_code", "call_link"),
    }
    assert await store.delete(session) == expected
    assert await rows_of(url, session) == {}
    assert (await rows_of(url, other)).keys() == before.keys()
    with pytest.raises(UnknownSessionError):
        await store.delete(session)
    assert await SessionsOfPeople(store).count([session]) == RemovedRows()


async def test_every_count_is_part_of_a_sum():
    one = RemovedRows(*range(1, len(asdict(RemovedRows())) + 1))
    assert asdict(one + one) == {name: 2 * count for name, count in asdict(one).items()}


async def test_the_sessions_of_a_person_are_found(store: SessionStore):  # noqa: F811
    people = SessionsOfPeople(store)
    calls = [(await store.create()).id for _ in range(3)]
    for call in calls[:2]:
        await people.note_caller(call, "ada")
        await people.note_caller(call, "ada")
    # Of a release that noted no people.
    await store.link_caller(calls[2], "ada at a line", forget_days=1)
    page, typed = [(await store.create(owner=BROWSER)).id for _ in range(2)]
    await people.note_caller(page, "ada")
    ann, bob = (await store.create(owner=ANN)).id, (await store.create(owner=BOB)).id
    whole = (await store.create(owner=APPLICATION)).id
    with pytest.raises(UnknownSessionError):
        await people.note_caller(NO_SESSION, "ada")

    async def found(**sought: object) -> set[str]:
        return set((await people.find(SoughtPerson(**sought))).ids)

    assert await found(digests=["ada", "ada at a line"]) == {*calls, page}
    assert await found(digests=["ada"], linked=True) == {*calls[:2], page, typed}
    assert await found(owners=[BROWSER]) == {page, typed}
    assert await found(session_id=typed) == {page, typed}
    assert await found(session_id=typed, linked=True) == {*calls[:2], page, typed}
    assert await found(session_id=calls[0]) == {*calls[:2], page}
    assert await found(session_id=ann) == await found(owners=[ANN]) == {ann}
    # The owner of this one is an application, with all of its users.
    assert await found(session_id=whole, linked=True) == {whole}
    assert await found(session_id=NO_SESSION) == await found(digests=["eve"]) == await found() == set()
    assert await found(session_id=bob, linked=True) == {bob}
    # The numbers of a session are removed: it has no caller any more.
    await store.unlink_callers(page)
    assert await found(digests=["ada"]) == set(calls[:2])


async def test_a_deletion_is_announced_here_and_in_other_processes(opening: Opener, url: str):  # noqa: F811
    here, there = await opening(url), await opening(url, retention_days=None)
    seen_here: list[SessionDeleted] = []
    seen_there: list[SessionDeleted] = []
    here.deletions.subscribe(seen_here.append)
    there.deletions.subscribe(seen_there.append)
    session = (await here.create()).id
    conversations = Conversations(there, compactor=Compactor())
    conversations.board.whispers[session] = "She is his sister."
    async with conversations.open(session, for_call=True) as conversation:
        await here.delete(session)
        assert seen_here == [SessionDeleted(session, is_elsewhere=False)]
        if url.startswith("postgresql"):
            # Nothing is written in the call meanwhile.
            async with asyncio.timeout(30):
                await conversation.lost.wait()
            assert isinstance(conversation.loss, UnknownSessionError)
            assert seen_there == [SessionDeleted(session, is_elsewhere=True)]
            assert session not in conversations.board.whispers
        else:
            # A file announces nothing: the call learns it with its next commit.
            with pytest.raises(UnknownSessionError):
                await conversation.append(conversation.draft(Kind.USER_TURN, "user", {"text": "Hello?"}))
    # The database's own announcement of it is no other deletion.
    assert seen_here == [SessionDeleted(session, is_elsewhere=False)]
    await conversations.close()


async def test_the_log_of_a_file_has_nothing_of_a_deleted_session(
    store: SessionStore,  # noqa: F811
    url: str,  # noqa: F811
):
    session = await filled(store)
    await store.delete(session)
    assert await store.scrub()
    if url.startswith("sqlite"):
        path = sa.make_url(url).database
        for ending in ("", "-wal"):
            content = open(f"{path}{ending}", "rb").read()  # noqa: ASYNC230, SIM115 (a file of a few pages)
            assert session.encode() not in content and b"Ada" not in content, ending
