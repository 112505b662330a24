"""Contract of the session store, on a SQLite file and on a real PostgreSQL server."""

import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from parley.core.clock import Clock
from parley.core.errors import (
    ConfigError,
    FencedError,
    SessionExistsError,
    StoreError,
    StoreUnavailableError,
    UnknownSessionError,
)
from parley.session_store import migrations
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.database import read_only_database
from parley.session_store.events import PAYLOAD_VERSION, Draft, Event, Kind
from parley.session_store.prompt import prompt_view
from parley.session_store.reading import read_next_events
from parley.session_store.store import SessionReader, SessionStore, SessionWriter, StoreTuning
from tests.peers.postgres import postgres, postgres_url  # noqa: F401

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
NOW_US = 1_767_600_000_000_000
NO_SESSION = str(uuid.UUID(int=0, version=4))
TIMEOUT_S = 20

Opener = Callable[..., Awaitable[SessionStore]]


def new_url(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "postgres":
        return request.getfixturevalue("postgres").new_database()
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder}/{uuid.uuid4().hex}.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return new_url(request.param, request)


@pytest.fixture
async def opening() -> AsyncIterator[Opener]:
    """Open stores, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_store(
            url: str,
            *,
            now_us: Callable[[], int] = lambda: NOW_US,
            clock: Clock | None = None,
            **settings: Any,
        ):
            store = await SessionStore.open(StoreTuning(url=url, **settings), now_us=now_us, clock=clock)
            stack.push_async_callback(store.close)
            return store

        yield open_store


@pytest.fixture
async def store(opening: Opener, url: str) -> SessionStore:
    return await opening(url)


async def with_database(url: str, work: Callable[[sa.Connection], object]) -> None:
    """Change the database as another client, in ways that the store does not offer."""
    if url.startswith("sqlite"):
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            work(connection)
        engine.dispose()
        return
    asynchronous = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    async with asynchronous.begin() as connection:
        await connection.run_sync(work)
    await asynchronous.dispose()


async def execute(url: str, statement: str) -> None:
    await with_database(url, lambda connection: connection.exec_driver_sql(statement))


class Times:
    """Wall clock that can be set, with a steady clock: a ``core.clock.Clock``."""

    def __init__(self, wall_us: int) -> None:
        self._wall_us = wall_us
        self._steady_us = 0

    def passes(self, us: int) -> None:
        """Advance both clocks."""
        self._wall_us += us
        self._steady_us += us

    def jumps(self, us: int) -> None:
        """Set the wall clock forward or back; the steady clock does not move."""
        self._wall_us += us

    def wall_us(self) -> int:
        return self._wall_us

    def now_us(self) -> int:
        return self._steady_us

    def now_ms(self) -> int:
        return self._steady_us // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        raise AssertionError("the store waits for nothing by this clock")


def said(text: str, *, event_us: int = NOW_US, **fields: Any) -> Draft:
    return Draft(Kind.USER_TURN, {"text": text}, event_us, NOW_US, "user", **fields)


async def new_writer(store: SessionStore) -> SessionWriter:
    return await store.claim((await store.create()).id)


async def everything(store: SessionStore, session_id: str) -> list[Event]:
    return await store.events(session_id, limit=100_000)


def texts(events: list[Event]) -> list[str]:
    return [event.payload["text"] for event in events]


# Sessions


async def test_a_new_session_is_empty_and_its_id_cannot_be_guessed(store: SessionStore) -> None:
    first, second = await store.create(), await store.create(tenant="bank")
    assert uuid.UUID(first.id).version == 4 and first.id != second.id
    assert (first.tenant, second.tenant) == ("default", "bank")
    assert (first.epoch, first.last_seq, first.created_us, first.last_us) == (0, 0, NOW_US, NOW_US)
    assert await store.info(first.id) == first
    assert await everything(store, first.id) == []


@pytest.mark.parametrize("session_id", [NO_SESSION, "", "../etc/passwd", "a\0b", "x" * 100_000, "Ω"])
async def test_a_session_that_is_not_there_is_unknown(store: SessionStore, session_id: str) -> None:
    for call in (
        store.info(session_id),
        store.claim(session_id),
        store.events(session_id, limit=1),
        store.timeline(session_id, limit=1),
        store.newest_event(session_id, Kind.SUMMARY),
        store.delete(session_id),
        anext(store.follow(session_id)),
        anext(store.export(session_id)),
    ):
        with pytest.raises(UnknownSessionError):
            await call


async def test_sessions_of_a_tenant_are_paged_newest_first(opening: Opener, url: str) -> None:
    now = iter(range(NOW_US, NOW_US + 100))
    store = await opening(url, now_us=lambda: next(now))
    made = [await store.create() for _ in range(5)]
    await store.create(tenant="bank")
    newest = list(reversed(made))
    first = await store.sessions(limit=3)
    assert first == newest[:3]
    assert await store.sessions(limit=3, before=first[-1].id) == newest[3:]
    assert [info.tenant for info in await store.sessions(limit=9, tenant="bank")] == ["bank"]
    with pytest.raises(UnknownSessionError):
        await store.sessions(limit=3, before=NO_SESSION)


async def test_sessions_of_one_microsecond_are_each_on_one_page(store: SessionStore) -> None:
    made = {(await store.create()).id for _ in range(5)}
    seen: list[str] = []
    while page := await store.sessions(limit=2, before=seen[-1] if seen else None):
        seen += [info.id for info in page]
    assert len(seen) == 5 and set(seen) == made


@pytest.mark.parametrize("tenant", ["", "a\0b", "x" * 1_000, "two\nlines"])
async def test_a_tenant_with_an_unusable_name_is_refused(store: SessionStore, tenant: str) -> None:
    with pytest.raises(StoreError):
        await store.create(tenant=tenant)


# Appends


async def test_what_was_appended_is_read_back_as_it_was_returned(
    store: SessionStore, opening: Opener, url: str
) -> None:
    writer = await new_writer(store)
    draft = Draft(
        Kind.TOOL_CALL,
        {"call_id": "1", "name": "lookup", "arguments": {"a": [1, 2.5, None, True]}, "idempotent": False},
        event_us=NOW_US - 5,
        arrival_us=NOW_US,
        source="bot",
        speaker="Łucja",
        final=False,
        confidence=0.25,
        key="call 1",
    )
    [event] = await writer.append(draft)
    assert event == Event(
        session_id=writer.session_id,
        seq=1,
        epoch=1,
        kind=Kind.TOOL_CALL,
        payload={"v": PAYLOAD_VERSION, **draft.payload},
        event_us=NOW_US - 5,
        arrival_us=NOW_US,
        source="bot",
        speaker="Łucja",
        final=False,
        confidence=0.25,
        key="call 1",
    )
    await store.close()
    again = await opening(url)
    [found] = await everything(again, writer.session_id)
    assert found == event
    # False must stay False and not become 0, whatever the database keeps.
    assert found.final is False and isinstance(found.confidence, float)


@pytest.mark.parametrize(
    "text", ["", "a\0b", "\u2028", "𝕏 🗲", "\ud83d alone", "'; DROP TABLE event; --", "x" * 200_000]
)
async def test_any_text_survives(store: SessionStore, text: str) -> None:
    writer = await new_writer(store)
    await writer.append(said(text))
    assert texts(await everything(store, writer.session_id)) == [text]


async def test_appending_nothing_stores_nothing(store: SessionStore) -> None:
    writer = await new_writer(store)
    assert await writer.append() == []
    assert (await store.info(writer.session_id)).last_seq == 0


async def test_one_append_of_very_many_drafts_is_stored_whole(store: SessionStore) -> None:
    writer = await new_writer(store)
    events = await writer.append(*[said(str(number)) for number in range(3_000)])
    assert [event.seq for event in events] == list(range(1, 3_001))
    assert await everything(store, writer.session_id) == events


async def test_twenty_writers_get_sequences_without_a_gap(store: SessionStore) -> None:
    writers = [await new_writer(store) for _ in range(20)]

    async def write(writer: SessionWriter) -> list[Event]:
        return [(await writer.append(said(str(number))))[0] for number in range(25)]

    written = await asyncio.gather(*map(write, writers))
    for writer, events in zip(writers, written, strict=True):
        assert [event.seq for event in events] == list(range(1, 26))
        assert await everything(store, writer.session_id) == events
        assert (await store.info(writer.session_id)).last_seq == 25


async def test_twenty_tasks_on_one_session_are_stored_in_the_order_of_their_calls(
    store: SessionStore,
) -> None:
    writer = await new_writer(store)
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(writer.append(said(f"{number}.1"), said(f"{number}.2")))
    events = await everything(store, writer.session_id)
    assert texts(events) == [f"{number}.{part}" for number in range(20) for part in (1, 2)]
    assert [event.seq for event in events] == list(range(1, 41))


async def test_a_session_that_floods_does_not_keep_the_others_waiting(opening: Opener, url: str) -> None:
    store = await opening(url, batch_events=10)
    flooding, quiet = await new_writer(store), await new_writer(store)
    flood = [asyncio.create_task(flooding.append(said(str(number)))) for number in range(300)]
    await asyncio.sleep(0)
    await quiet.append(said("hello"))
    assert sum(task.done() for task in flood) < 100
    await asyncio.gather(*flood)
    assert texts(await everything(store, flooding.session_id)) == [str(number) for number in range(300)]


# Keys


async def test_a_key_that_is_stored_is_not_stored_again(
    store: SessionStore, opening: Opener, url: str
) -> None:
    writer = await new_writer(store)
    first = await writer.append(said("one", key="1"), said("two", key="2"))
    assert await writer.append(said("one", key="1")) == first[:1]
    mixed = await writer.append(said("two", key="2"), said("three", key="3"), said("one", key="1"))
    assert mixed[0] == first[1] and mixed[2] == first[0] and mixed[1].seq == 3
    await store.close()
    again = await opening(url)
    claimed = await again.claim(writer.session_id)
    late = await claimed.append(said("four", key="4"), said("one", key="1"))
    assert [event.seq for event in late] == [4, 1] and late[1] == first[0]
    assert texts(await everything(again, writer.session_id)) == ["one", "two", "three", "four"]


async def test_a_key_that_comes_twice_at_once_is_stored_once(store: SessionStore) -> None:
    writer = await new_writer(store)
    [one, same], [third] = await asyncio.gather(
        writer.append(said("a", key="k"), said("a", key="k")), writer.append(said("a", key="k"))
    )
    assert one == same == third
    assert len(await everything(store, writer.session_id)) == 1


async def test_keys_belong_to_their_session(store: SessionStore) -> None:
    writers = [await new_writer(store), await new_writer(store)]
    for writer in writers:
        await writer.append(said(writer.session_id, key="1"))
    for writer in writers:
        assert texts(await everything(store, writer.session_id)) == [writer.session_id]


async def test_a_cancelled_append_that_is_sent_again_is_stored_once(store: SessionStore) -> None:
    writer = await new_writer(store)
    for number in range(30):
        draft = said(str(number))
        waiting = asyncio.create_task(writer.append(draft))
        # The call is cancelled at another point each time.
        for _ in range(number):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await writer.append(draft)
    assert texts(await everything(store, writer.session_id)) == [str(number) for number in range(30)]


# Claims


async def test_a_superseded_writer_writes_no_row(store: SessionStore) -> None:
    old = await new_writer(store)
    await old.append(said("mine"))
    new = await store.claim(old.session_id)
    assert (old.epoch, new.epoch) == (1, 2)
    with pytest.raises(FencedError):
        await old.append(said("too late"), said("mine", key="another"))
    [event] = await new.append(said("theirs"))
    assert (event.seq, event.epoch) == (2, 2)
    assert texts(await everything(store, old.session_id)) == ["mine", "theirs"]


async def test_the_key_of_a_stored_event_is_no_way_around_the_fence(store: SessionStore) -> None:
    old = await new_writer(store)
    draft = said("mine")
    await old.append(draft)
    await store.claim(old.session_id)
    with pytest.raises(FencedError):
        await old.append(draft)


async def test_a_claim_through_another_store_fences_as_well(
    store: SessionStore, opening: Opener, url: str
) -> None:
    other = await opening(url)
    old = await new_writer(store)
    new = await other.claim(old.session_id)
    with pytest.raises(FencedError):
        await old.append(said("too late"))
    await new.append(said("theirs"))
    assert texts(await everything(store, old.session_id)) == ["theirs"]


async def test_of_many_simultaneous_claims_only_the_last_can_write(
    store: SessionStore, opening: Opener, url: str
) -> None:
    other = await opening(url)
    session = await store.create()
    writers = await asyncio.gather(*[each.claim(session.id) for each in (store, other) for _ in range(5)])
    assert sorted(writer.epoch for writer in writers) == list(range(1, 11))
    results = await asyncio.gather(
        *(writer.append(said(str(writer.epoch))) for writer in writers), return_exceptions=True
    )
    assert sum(isinstance(result, FencedError) for result in results) == 9
    assert texts(await everything(store, session.id)) == ["10"]


async def test_no_error_names_a_whole_id(store: SessionStore) -> None:
    first = await new_writer(store)
    lines = await exported(store, first.session_id)
    await store.claim(first.session_id)
    errors: list[StoreError] = []
    for refused in (
        lambda: first.append(said("a")),
        lambda: store.import_(lines),
        lambda: store.info(NO_SESSION),
        lambda: store.claim(NO_SESSION),
    ):
        with pytest.raises(StoreError) as refusal:
            await refused()
        errors.append(refusal.value)
    kinds = [FencedError, SessionExistsError, UnknownSessionError, UnknownSessionError]
    assert [type(error) for error in errors] == kinds
    # Texts of errors are logged, and without client keys an id is enough to use its session.
    received = " ".join(map(str, errors))
    assert first.session_id not in received and NO_SESSION not in received
    assert first.session_id[:8] in str(errors[0])


async def test_fenced_deleted_and_refused_appends_do_not_hurt_those_alongside_them(
    store: SessionStore, url: str
) -> None:
    fenced, deleted, refused, good, late = [await new_writer(store) for _ in range(5)]
    await store.claim(fenced.session_id)
    await store.delete(deleted.session_id)
    # A row that passes every check of the store and that the database refuses.
    await forbid(url, refused.session_id)
    results = await asyncio.gather(
        fenced.append(said("x")),
        good.append(said("one")),
        deleted.append(said("x")),
        refused.append(said("x")),
        good.append(said("two")),
        late.append(said("three")),
        return_exceptions=True,
    )
    assert isinstance(results[0], FencedError)
    assert isinstance(results[2], UnknownSessionError)
    assert isinstance(results[3], StoreError) and not isinstance(results[3], StoreUnavailableError)
    assert texts(await everything(store, good.session_id)) == ["one", "two"]
    assert texts(await everything(store, late.session_id)) == ["three"]
    assert await everything(store, refused.session_id) == []
    assert await everything(store, fenced.session_id) == []
    assert store.available


async def forbid(url: str, session_id: str) -> None:
    if url.startswith("sqlite"):
        await execute(
            url,
            f"CREATE TRIGGER no BEFORE INSERT ON event WHEN new.session_id = '{session_id}'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
    else:
        await execute(url, f"ALTER TABLE event ADD CONSTRAINT no CHECK (session_id <> '{session_id}')")


@pytest.mark.parametrize(
    "draft",
    [
        Draft(Kind.STATE, {"x": object()}, 1, 1, "s"),
        Draft(Kind.STATE, {"x": math.nan}, 1, 1, "s"),
        Draft(Kind.STATE, {"x": b"bytes"}, 1, 1, "s"),
        Draft(Kind.STATE, {"x": "y" * 2_000_000}, 1, 1, "s"),
        Draft(Kind.STATE, {}, 2**63, 1, "s"),
        Draft(Kind.STATE, {}, -1, 1, "s"),
        Draft(Kind.STATE, {}, 1, 1.5, "s"),  # type: ignore[arg-type]
        Draft(Kind.STATE, {}, 1, 1, "nul \0"),
        Draft(Kind.STATE, {}, 1, 1, "s", speaker="\ud83d"),
        Draft(Kind.STATE, {}, 1, 1, "s", key="k" * 10_000),
        Draft(Kind.STATE, {}, 1, 1, "s", confidence=math.inf),
        Draft("gossip", {}, 1, 1, "s"),  # type: ignore[arg-type]
    ],
    ids=lambda draft: f"{draft.source} {draft.event_us}"[:20],
)
async def test_a_draft_that_no_database_takes_is_refused_with_its_whole_append(
    store: SessionStore, draft: Draft
) -> None:
    writer = await new_writer(store)
    with pytest.raises(StoreError) as refusal:
        await writer.append(said("before"), draft, said("behind"))
    assert not isinstance(refusal.value, StoreUnavailableError)
    assert len(str(refusal.value)) < 200
    [event] = await writer.append(said("good"))
    assert event.seq == 1
    assert texts(await everything(store, writer.session_id)) == ["good"]


# The clock


class Hands:
    """Wall clock and steady clock that the test moves."""

    def __init__(self) -> None:
        self.wall_us = NOW_US
        self.steady_us = 50

    def now_us(self) -> int:
        return self.steady_us

    def now_ms(self) -> int:
        return self.steady_us // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        self.steady_us = max(self.steady_us, deadline_ms * 1_000)


@pytest.mark.parametrize("step_us", [3_600_000_000, -3_600_000_000])
async def test_a_wall_clock_that_is_set_during_a_call_moves_nothing(url: str, step_us: int) -> None:
    hands = Hands()
    store = await SessionStore.open(StoreTuning(url=url), clock=hands, now_us=lambda: hands.wall_us)
    session = await store.create()
    hands.wall_us += 10
    writer = await store.claim(session.id)
    assert writer.clock.now_us() == NOW_US + 10
    hands.wall_us += step_us
    hands.steady_us += 1_500
    assert writer.clock.now_us() == NOW_US + 1_510
    assert writer.clock.now_ms() == (NOW_US + 1_510) // 1_000
    deadline_ms = writer.clock.now_ms() + 7
    await writer.clock.sleep_until_ms(deadline_ms)
    assert writer.clock.now_ms() == deadline_ms
    await store.close()


async def test_a_session_clock_starts_after_the_last_event(url: str) -> None:
    hands = Hands()
    store = await SessionStore.open(StoreTuning(url=url), clock=hands, now_us=lambda: hands.wall_us)
    writer = await new_writer(store)
    hands.steady_us += 20
    now_us = writer.clock.now_us()
    await writer.append(said("early", event_us=now_us - 10_000), said("now", event_us=now_us))
    hands.wall_us -= 3_600_000_000
    again = await store.claim(writer.session_id)
    assert again.clock.now_us() == now_us + 1
    hands.wall_us += 2 * 3_600_000_000
    assert (await store.claim(writer.session_id)).clock.now_us() == hands.wall_us
    await store.close()


# Reading


async def test_the_timeline_is_in_order_of_time_and_pages_do_not_overlap(store: SessionStore) -> None:
    writer = await new_writer(store)
    times = [50, 10, 30, 30, 20, 30, 40, 10]
    await writer.append(*[said(f"{number}", event_us=time) for number, time in enumerate(times)])
    await writer.append(said("late", event_us=5))
    expected = sorted([*[(time, number + 1) for number, time in enumerate(times)], (5, 9)])
    seen: list[tuple[int, int]] = []
    while page := await store.timeline(writer.session_id, after=seen[-1] if seen else None, limit=2):
        seen += [(event.event_us, event.seq) for event in page]
    assert seen == expected


async def test_an_event_is_found_by_its_key_and_only_in_its_session(store: SessionStore) -> None:
    writer, other = await new_writer(store), await new_writer(store)
    [event] = await writer.append(Draft(Kind.USER_TURN, {"text": "hello"}, 1, 1, "user", key="k-1"))
    assert await store.event_of_key(writer.session_id, "k-1") == event
    assert await store.event_of_key(writer.session_id, "k-2") is None
    assert await store.event_of_key(other.session_id, "k-1") is None
    with pytest.raises(UnknownSessionError):
        await store.event_of_key(str(uuid.uuid4()), "k-1")


async def test_events_are_paged_by_seq(store: SessionStore) -> None:
    writer = await new_writer(store)
    await writer.append(*[said(str(number)) for number in range(7)])
    assert texts(await store.events(writer.session_id, limit=3)) == ["0", "1", "2"]
    assert texts(await store.events(writer.session_id, after_seq=5, limit=3)) == ["5", "6"]
    assert await store.events(writer.session_id, after_seq=7, limit=3) == []
    assert await store.events(writer.session_id, after_seq=10**30, limit=3) == []
    with pytest.raises(StoreError):
        await store.events(writer.session_id, limit=0)


@pytest.mark.parametrize("newest_first", [False, True])
async def test_the_timeline_is_paged_in_both_directions(store: SessionStore, newest_first: bool) -> None:
    writer = await new_writer(store)
    times = [50, 10, 30, 30, 20, 30, 40, 10, 2**63 - 1, 0]
    await writer.append(*[said(f"{number}", event_us=time) for number, time in enumerate(times)])
    expected = sorted(((time, number + 1) for number, time in enumerate(times)), reverse=newest_first)
    seen: list[tuple[int, int]] = []
    while page := await store.timeline(
        writer.session_id, after=seen[-1] if seen else None, limit=3, newest_first=newest_first
    ):
        seen += [(event.event_us, event.seq) for event in page]
    assert seen == expected
    beyond = (10**30, 10**30) if not newest_first else (-(10**30), 0)
    assert await store.timeline(writer.session_id, after=beyond, limit=3, newest_first=newest_first) == []


async def of_many_kinds(store: SessionStore) -> SessionWriter:
    """Commit twelve events of four kinds in turn; the last in time is the first that was committed."""
    writer = await new_writer(store)
    kinds = (Kind.USER_TURN, Kind.ANNOTATION, Kind.HEARD, Kind.SUMMARY)
    await writer.append(
        *[Draft(kinds[n % 4], {"text": str(n)}, NOW_US - n, NOW_US, "test") for n in range(12)]
    )
    return writer


async def test_events_of_some_kinds_are_paged_as_if_there_were_no_others(store: SessionStore) -> None:
    session_id = (await of_many_kinds(store)).session_id
    kinds = {Kind.USER_TURN, Kind.HEARD}
    assert texts(await store.events(session_id, limit=4, kinds=kinds)) == ["0", "2", "4", "6"]
    assert texts(await store.events(session_id, after_seq=7, limit=4, kinds=kinds)) == ["8", "10"]
    assert texts(await store.events(session_id, limit=99, kinds=frozenset(Kind))) == list(map(str, range(12)))
    assert await store.events(session_id, limit=99, kinds=[]) == []
    assert await store.events(session_id, limit=99, kinds=[Kind.TOOL_CALL]) == []


@pytest.mark.parametrize("newest_first", [False, True])
async def test_the_timeline_of_some_kinds_is_paged_in_both_directions(
    store: SessionStore, newest_first: bool
) -> None:
    session_id = (await of_many_kinds(store)).session_id
    seen: list[Event] = []
    while page := await store.timeline(
        session_id,
        after=(seen[-1].event_us, seen[-1].seq) if seen else None,
        limit=2,
        kinds=[Kind.ANNOTATION, Kind.SUMMARY],
        newest_first=newest_first,
    ):
        assert len(page) == 2
        seen += page
    oldest_first = ["11", "9", "7", "5", "3", "1"]
    assert texts(seen) == (oldest_first[::-1] if newest_first else oldest_first)


async def test_the_newest_event_of_a_kind_is_the_one_that_was_committed_last(store: SessionStore) -> None:
    session_id = (await of_many_kinds(store)).session_id
    summary = await store.newest_event(session_id, Kind.SUMMARY)
    assert summary == (await store.events(session_id, limit=12))[-1]
    assert await store.newest_event(session_id, Kind.TOOL_CALL) is None


@pytest.mark.parametrize("reading", ["events", "timeline"])
async def test_an_event_of_a_newer_release_is_not_passed_over(
    store: SessionStore, url: str, reading: str
) -> None:
    session_id = (await of_many_kinds(store)).session_id
    await execute(url, "UPDATE event SET kind = 'gossip' WHERE seq = 2")
    with pytest.raises(StoreError, match="newer release"):
        await getattr(store, reading)(session_id, limit=99, kinds=[Kind.USER_TURN])


async def test_a_conversation_is_read_from_its_newest_summary_on(store: SessionStore) -> None:
    writer = await new_writer(store)
    turns = [said(f"My account number is {number}.", event_us=NOW_US + number) for number in range(40)]
    known = {"speaker": None, "intent": None, "slots": {"name": {"value": "Ada", "seq": 1}}}
    for until_seq in (10, 20):
        text = {"text": f"Until {until_seq}.", "until_seq": until_seq, "state": known}
        turns.insert(until_seq + 5, Draft(Kind.SUMMARY, text, NOW_US, NOW_US, "system"))
    await writer.append(*turns)
    whole = await everything(store, writer.session_id)
    opened = Conversations(store, compactor=Compactor())
    async with opened.open(writer.session_id) as conversation:
        assert list(conversation.events) == whole[20:]
        view = conversation.view()
    assert "Until 20." in view.messages[0]["content"] and "Ada" in view.messages[0]["content"]
    assert await opened.view(writer.session_id) == view == prompt_view(whole, budget_tokens=6_000)
    await opened.close()


# Looking


async def test_who_only_looks_sees_the_same(store: SessionStore, url: str) -> None:
    writer = await conversation(store)
    reader = await SessionReader.open(StoreTuning(url=url))
    for asked in (
        lambda each: each.info(writer.session_id),
        lambda each: each.sessions(limit=9, tenant="bank"),
        lambda each: each.events(writer.session_id, limit=1_000),
        lambda each: each.timeline(writer.session_id, limit=1_000, newest_first=True),
        lambda each: each.newest_event(writer.session_id, Kind.USER_TURN),
        lambda each: exported(each, writer.session_id),
    ):
        assert await asked(reader) == await asked(store)
    with pytest.raises(UnknownSessionError):
        await reader.info(NO_SESSION)
    await reader.close()
    with pytest.raises(StoreUnavailableError):
        await reader.info(writer.session_id)


async def test_who_only_looks_changes_nothing(store: SessionStore, url: str) -> None:
    session = await store.create()
    looking = read_only_database(StoreTuning(url=url))
    await looking.open()
    with pytest.raises(StoreError):
        await looking.read(lambda connection: connection.exec_driver_sql("UPDATE session SET epoch = 9"))
    await looking.close()
    assert await store.info(session.id) == session


async def test_who_only_looks_does_not_migrate(opening: Opener, url: str) -> None:
    await with_database(url, first_release)
    with pytest.raises(ConfigError, match="older release"):
        await SessionReader.open(StoreTuning(url=url))
    versions: list[object] = []
    await with_database(url, lambda connection: versions.append(migrations.version(connection)))
    assert versions == ["0001"]


async def test_who_only_looks_makes_no_store(url: str) -> None:
    with pytest.raises(ConfigError, match="(no|contain a) session store"):
        await SessionReader.open(StoreTuning(url=url))
    tables: list[str] = []
    await with_database(url, lambda connection: tables.extend(sa.inspect(connection).get_table_names()))
    assert tables == []


# Following


async def test_a_follower_gets_what_is_there_and_what_comes(opening: Opener, url: str) -> None:
    # Polling would be too slow: commits of this process are notified.
    store = await opening(url, poll_s=60)
    writer = await new_writer(store)
    await writer.append(said("1"), said("2"))
    async with asyncio.timeout(TIMEOUT_S), aclosing(store.follow(writer.session_id, after_seq=1)) as follow:
        assert texts([await anext(follow)]) == ["2"]
        waiting = asyncio.create_task(anext(follow))
        await writer.append(said("3"), said("4"))
        assert texts([await waiting, await anext(follow)]) == ["3", "4"]


async def test_a_follower_gets_long_histories_once_and_in_order(store: SessionStore) -> None:
    writer = await new_writer(store)
    await writer.append(*[said(str(number)) for number in range(1_200)])
    seen: list[int] = []
    async with asyncio.timeout(TIMEOUT_S), aclosing(store.follow(writer.session_id)) as follow:
        async for event in follow:
            seen.append(event.seq)
            if event.seq == 600:
                await writer.append(said("during"))
            if event.seq == 1_201:
                break
    assert seen == list(range(1, 1_202))


async def test_a_follower_gets_large_payloads_a_few_at_a_time(store: SessionStore) -> None:
    writer = await new_writer(store)
    for number in range(6):
        await writer.append(said(f"{number}" + "x" * 600_000))
    read: list[int] = []
    async with asyncio.timeout(TIMEOUT_S), aclosing(store.follow(writer.session_id)) as follow:
        async for event in follow:
            read.append(event.seq)
            if event.seq == 6:
                break
    assert read == [1, 2, 3, 4, 5, 6]
    page = partial(read_next_events, session_id=writer.session_id, after_seq=0, limit=500)
    events, is_last = await store._read(page)
    assert ([event.seq for event in events], is_last) == ([1, 2], False)


async def test_a_follower_gets_what_another_process_writes(opening: Opener, url: str) -> None:
    # PostgreSQL notifies; a file is polled.
    follower = await opening(url, poll_s=60 if url.startswith("postgresql") else 0.05)
    writer = await new_writer(await opening(url))
    await writer.append(said("there"))
    async with asyncio.timeout(TIMEOUT_S), aclosing(follower.follow(writer.session_id)) as follow:
        # From here on the reader has read everything and waits for a notification.
        assert texts([await anext(follow)]) == ["there"]
        waiting = asyncio.create_task(anext(follow))
        # The connection that listens is opened during the first reads: it receives one of these.
        while not waiting.done():
            await writer.append(said("from elsewhere"))
            await asyncio.wait({waiting}, timeout=0.05)
        assert texts([await waiting]) == ["from elsewhere"]


async def test_followers_end_when_their_session_is_deleted(store: SessionStore) -> None:
    writer, other = await new_writer(store), await new_writer(store)
    await writer.append(said("1"))
    follow = store.follow(writer.session_id)
    await anext(follow)
    ending = asyncio.create_task(anext(follow, None))
    staying = asyncio.create_task(anext(store.follow(other.session_id)))
    await store.delete(writer.session_id)
    assert await asyncio.wait_for(ending, TIMEOUT_S) is None
    await other.append(said("still here"))
    assert texts([await asyncio.wait_for(staying, TIMEOUT_S)]) == ["still here"]


async def test_followers_end_when_the_store_is_closed(store: SessionStore) -> None:
    writer = await new_writer(store)
    await writer.append(said("1"))
    follow = store.follow(writer.session_id)
    await anext(follow)
    ending = asyncio.create_task(anext(follow, None))
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.wait_for(ending, TIMEOUT_S) is None


# Deleting


async def test_a_deleted_session_is_gone_and_its_writer_is_told(store: SessionStore) -> None:
    gone, kept = await new_writer(store), await new_writer(store)
    await gone.append(said("forget me"))
    await kept.append(said("keep me"))
    await store.delete(gone.session_id)
    for call in (
        store.info(gone.session_id),
        store.events(gone.session_id, limit=1),
        gone.append(said("x")),
        store.claim(gone.session_id),
        store.delete(gone.session_id),
    ):
        with pytest.raises(UnknownSessionError):
            await call
    assert texts(await everything(store, kept.session_id)) == ["keep me"]
    assert [info.id for info in await store.sessions(limit=9)] == [kept.session_id]


async def test_sessions_expire_by_the_age_of_their_last_event(opening: Opener, url: str) -> None:
    time = Times(NOW_US - 40 * DAY_US)
    store = await opening(url, now_us=time.wall_us, clock=time)
    assert await store.retain(days=30) == 0
    # Enough rows for more than one transaction.
    silent = [await store.create() for _ in range(120)]
    used = await new_writer(store)
    time.passes(40 * DAY_US)
    young = await store.create()
    await used.append(said("today"))
    assert await store.retain(days=41) == 0
    assert await store.retain(days=30) == len(silent)
    assert {info.id for info in await store.sessions(limit=999)} == {used.session_id, young.id}
    assert texts(await everything(store, used.session_id)) == ["today"]


async def test_large_sessions_expire_too(opening: Opener, url: str) -> None:
    time = Times(NOW_US)
    store = await opening(url, now_us=time.wall_us, clock=time)
    assert await store.retain(days=1) == 0
    for _ in range(3):
        writer = await new_writer(store)
        await writer.append(*[said("x") for _ in range(3_000)])
    time.passes(2 * DAY_US)
    assert await store.retain(days=1) == 3
    assert await store.sessions(limit=9) == []


async def test_retention_runs_by_itself(opening: Opener, url: str) -> None:
    time = Times(NOW_US - 2 * DAY_US)
    first = await opening(url, now_us=time.wall_us, clock=time, poll_s=0.05)
    assert await first.retain(days=1.5) == 0
    writer = await new_writer(first)
    await writer.append(Draft(Kind.USER_TURN, {"text": "old"}, time.wall_us(), time.wall_us(), "user"))
    async with asyncio.timeout(TIMEOUT_S), aclosing(first.follow(writer.session_id)) as follow:
        # The follower must be registered before the session can be deleted.
        assert (await anext(follow)).seq == 1
        time.passes(2 * DAY_US)
        assert await first.retain(days=3) == 0
        await opening(url, retention_days=1.5, now_us=time.wall_us, clock=time)
        assert [event async for event in follow] == []


async def one_of_today(opening: Opener, url: str, time: Times) -> SessionStore:
    """Open a store that has run for a while, with a session created just now."""
    store = await opening(url, now_us=time.wall_us, clock=time)
    assert await store.retain(days=30) == 0
    time.passes(DAY_US)
    await store.create()
    assert await store.retain(days=30) == 0
    return store


@pytest.mark.parametrize("days", [40, 4_000, -40, -4_000])
async def test_a_clock_that_is_wrong_for_hours_deletes_nothing(opening: Opener, url: str, days: int) -> None:
    time = Times(NOW_US)
    store = await one_of_today(opening, url, time)
    time.jumps(days * DAY_US)
    for _ in range(20):
        assert await store.retain(days=30) == 0
        time.passes(HOUR_US)
    time.jumps(-days * DAY_US)
    for _ in range(20):
        time.passes(HOUR_US)
        assert await store.retain(days=30) == 0
    assert len(await store.sessions(limit=9)) == 1


async def test_a_session_that_is_held_while_the_clock_is_ahead_confirms_nothing(
    opening: Opener, url: str
) -> None:
    time = Times(NOW_US)
    store = await one_of_today(opening, url, time)
    time.jumps(40 * DAY_US)
    await (await store.claim((await store.create()).id)).append(
        Draft(Kind.USER_TURN, {"text": "x"}, time.wall_us(), time.wall_us(), "user")
    )
    assert await store.retain(days=30) == 0
    await store.close()
    store = await opening(url, now_us=time.wall_us, clock=time)
    assert await store.retain(days=30) == 0
    assert len(await store.sessions(limit=9)) == 2


async def test_a_start_with_a_wrong_clock_deletes_nothing(opening: Opener, url: str) -> None:
    time = Times(NOW_US)
    await (await one_of_today(opening, url, time)).close()
    time.jumps(40 * DAY_US)
    for _ in range(40):
        # Process starts do not add up: none of these processes has run for long.
        store = await opening(url, now_us=time.wall_us, clock=time)
        assert await store.retain(days=30) == 0
        time.passes(600_000_000)
        assert await store.retain(days=30) == 0
        await store.close()
    assert len(await (await opening(url)).sessions(limit=9)) == 1


async def test_a_store_that_has_never_retained_begins_with_its_newest_event(
    opening: Opener, url: str
) -> None:
    time = Times(NOW_US)
    store = await opening(url, now_us=time.wall_us, clock=time)
    await store.create()
    time.jumps(40 * DAY_US)
    assert await store.retain(days=30) == 0


async def test_a_jump_that_holds_for_a_day_is_time_that_has_passed(opening: Opener, url: str) -> None:
    time = Times(NOW_US)
    await (await one_of_today(opening, url, time)).close()
    # How long the server was off.
    time.jumps(40 * DAY_US)
    store = await opening(url, now_us=time.wall_us, clock=time)
    deleted = []
    for _ in range(26):
        deleted.append(await store.retain(days=30))
        time.passes(HOUR_US)
    assert deleted == [*[0] * 24, 1, 0]


async def test_running_time_is_counted_once_by_works_that_wait_together(opening: Opener, url: str) -> None:
    time = Times(NOW_US)
    store = await one_of_today(opening, url, time)
    time.jumps(40 * DAY_US)
    assert await store.retain(days=30) == 0
    for _ in range(16):
        # 14 hours in all. Counted twice they would exceed the day for which a clock jump must last.
        time.passes(HOUR_US * 7 // 8)
        assert await asyncio.gather(store.retain(days=30), store.retain(days=30)) == [0, 0]
    assert len(await store.sessions(limit=9)) == 1


# Closing


async def test_closing_commits_what_waits(opening: Opener, url: str) -> None:
    store = await opening(url, batch_events=5)
    writer = await new_writer(store)
    waiting = [asyncio.create_task(writer.append(said(str(number)))) for number in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert [(await task)[0].seq for task in waiting] == list(range(1, 51))
    again = await opening(url)
    assert texts(await everything(again, writer.session_id)) == [str(number) for number in range(50)]


async def test_a_closed_store_refuses(store: SessionStore) -> None:
    writer = await new_writer(store)
    await store.close()
    await store.close()
    for call in (writer.append(said("x")), store.create(), store.info(writer.session_id)):
        with pytest.raises(StoreUnavailableError):
            await call


async def test_nothing_waits_when_nothing_is_written(store: SessionStore) -> None:
    assert store.available and store.oldest_wait_s == 0


# Starting

OLD_SESSION = "11111111-2222-4333-8444-555555555555"


def first_release(connection: sa.Connection) -> None:
    """Create the tables of the release before keys existed, with a session in it."""
    migrations.upgrade(connection, "0001")
    connection.exec_driver_sql(f"INSERT INTO session VALUES ('{OLD_SESSION}', 'default', 3, 41, 7, 40)")
    insert = sa.text(
        "INSERT INTO event VALUES"
        " (:id, :seq, 2, :seq, :seq, 'user_turn', 'user', NULL, :final, 0.5, :payload)"
    )
    connection.execute(
        insert,
        [
            {"id": OLD_SESSION, "seq": seq, "final": True, "payload": f'{{"v":1,"text":"{seq}"}}'}
            for seq in range(1, 41)
        ],
    )


async def test_a_store_of_the_first_release_keeps_its_sessions(opening: Opener, url: str) -> None:
    await with_database(url, first_release)
    store = await opening(url)
    events = await everything(store, OLD_SESSION)
    assert texts(events) == [str(seq) for seq in range(1, 41)]
    assert events[6] == Event(
        OLD_SESSION, 7, 2, Kind.USER_TURN, {"v": 1, "text": "7"}, 7, 7, "user", None, True, 0.5, key="row.7"
    )
    writer = await store.claim(OLD_SESSION)
    assert writer.epoch == 4
    draft = said("new")
    assert await writer.append(draft) == await writer.append(draft)
    assert (await store.info(OLD_SESSION)).last_seq == 41


async def test_an_old_store_that_several_open_at_once_is_migrated_once(opening: Opener, url: str) -> None:
    await with_database(url, first_release)
    for store in await asyncio.gather(*(opening(url) for _ in range(4))):
        assert len(await everything(store, OLD_SESSION)) == 40


async def test_a_new_database_that_several_open_at_once_is_one_store(opening: Opener, url: str) -> None:
    stores = await asyncio.gather(*(opening(url) for _ in range(4)))
    for store in stores:
        await store.create()
    assert len(await stores[0].sessions(limit=9)) == 4


async def test_a_store_of_a_newer_release_is_refused(store: SessionStore, url: str) -> None:
    session = await store.create()
    await execute(url, "UPDATE session_store_version SET version_num = '9999'")
    with pytest.raises(ConfigError, match="newer release"):
        await SessionStore.open(StoreTuning(url=url))
    # A process that has it open already goes on.
    assert await store.info(session.id) == session


async def test_tables_of_another_program_are_left_alone(url: str) -> None:
    await execute(url, "CREATE TABLE event (title TEXT)")
    with pytest.raises(ConfigError, match="event"):
        await SessionStore.open(StoreTuning(url=url))
    await execute(url, "INSERT INTO event (title) VALUES ('party')")


# Export and import


async def exported(store: SessionStore, session_id: str) -> list[str]:
    return [line async for line in store.export(session_id)]


async def conversation(store: SessionStore) -> SessionWriter:
    """Commit a conversation of some length, through two claims, with late and awkward events."""
    first = await store.claim((await store.create(tenant="bank")).id)
    await first.append(*[said(f"{number} \u2028 é \0", event_us=NOW_US - number) for number in range(600)])
    writer = await store.claim(first.session_id)
    await writer.append(said("last", speaker="anna", confidence=0.1, final=False))
    return writer


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
async def test_an_export_can_be_imported_into_any_database(
    store: SessionStore, opening: Opener, request: pytest.FixtureRequest, target: str
) -> None:
    writer = await conversation(store)
    lines = await exported(store, writer.session_id)
    assert len(lines) == 603 and not any("\n" in line for line in lines)
    other = await opening(new_url(target, request))
    info = await other.import_(lines)
    assert info == await store.info(writer.session_id) == await other.info(writer.session_id)
    assert await everything(other, writer.session_id) == await everything(store, writer.session_id)
    assert await exported(other, writer.session_id) == lines
    # The imported session goes on there.
    [event] = await (await other.claim(writer.session_id)).append(said("more"))
    assert (event.seq, event.epoch) == (602, 3)


async def test_an_export_may_come_in_pieces_and_with_line_feeds(
    store: SessionStore, opening: Opener, tmp_path: Path
) -> None:
    lines = await exported(store, (await conversation(store)).session_id)

    async def arriving() -> AsyncIterator[str]:
        for line in lines:
            await asyncio.sleep(0)
            yield f"{line}\r\n"

    other = await opening(f"sqlite:///{tmp_path}/other.db")
    assert (await other.import_(arriving())).last_seq == 601


def swap(lines: list[str]) -> list[str]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def edited(lines: list[str], number: int, **changes: Any) -> list[str]:
    content = json.loads(lines[number])
    content.update(changes)
    return [*lines[:number], json.dumps(content, separators=(",", ":")), *lines[number + 1 :]]


TAMPERED: dict[str, Callable[[list[str]], list[str]]] = {
    "nothing": lambda lines: [],
    "cut off": lambda lines: lines[:-1],
    "cut in a line": lambda lines: [*lines[:-1], lines[-1][:20]],
    "an event less": lambda lines: [*lines[:5], *lines[6:]],
    "the last event less": lambda lines: [*lines[:-2], lines[-1]],
    "an event twice": lambda lines: [*lines[:5], lines[4], *lines[5:]],
    "two events swapped": swap,
    "more behind the end": lambda lines: [*lines, lines[1]],
    "a word changed": lambda lines: edited(lines, 3, payload={"v": 1, "text": "something else"}),
    "a count changed": lambda lines: edited(lines, 0, count=600),
    "another id": lambda lines: edited(lines, 0, id=str(uuid.uuid4())),
    "a path as id": lambda lines: edited(lines, 0, id="../../x"),
    "another format": lambda lines: edited(lines, 0, format="x"),
    "a newer version": lambda lines: edited(lines, 0, version=2),
    "an unknown kind": lambda lines: edited(lines, 3, kind="gossip"),
    "no key": lambda lines: edited(lines, 3, key=None),
    "the key of another": lambda lines: edited(lines, 3, key=json.loads(lines[4])["key"]),
    "another digest": lambda lines: edited(lines, len(lines) - 1, sha256="0" * 64),
    "no JSON": lambda lines: [*lines[:3], "}{", *lines[4:]],
    "a list": lambda lines: [*lines[:3], "[1]", *lines[4:]],
    "deep": lambda lines: [*lines[:3], "[" * 100_000, *lines[4:]],
}


@pytest.mark.parametrize("how", list(TAMPERED))
async def test_a_tampered_export_is_refused_as_a_whole(
    store: SessionStore, opening: Opener, tmp_path: Path, how: str
) -> None:
    lines = TAMPERED[how](await exported(store, (await conversation(store)).session_id))
    other = await opening(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(StoreError) as refusal:
        await other.import_(lines)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 200
    assert await other.sessions(limit=1, tenant="bank") == []


async def test_an_export_of_a_session_whose_events_are_not_all_there_ends(
    store: SessionStore, url: str
) -> None:
    writer = await conversation(store)
    await execute(url, "DELETE FROM event WHERE seq > 599")
    with pytest.raises(StoreError, match="600 to 601 are missing"):
        async with asyncio.timeout(TIMEOUT_S):
            await exported(store, writer.session_id)


async def test_a_session_that_is_there_is_not_imported_over(store: SessionStore) -> None:
    writer = await conversation(store)
    lines = await exported(store, writer.session_id)
    await writer.append(said("since then"))
    with pytest.raises(SessionExistsError, match="already"):
        await store.import_(lines)
    assert (await store.info(writer.session_id)).last_seq == 602


async def test_of_imports_of_one_session_at_once_one_is_told_that_it_is_there(
    store: SessionStore, opening: Opener, request: pytest.FixtureRequest, url: str
) -> None:
    writer = await conversation(store)
    lines = await exported(store, writer.session_id)
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    target = new_url(kind, request)
    others = [await opening(target), await opening(target)]
    results = await asyncio.gather(*(other.import_(lines) for other in others), return_exceptions=True)
    assert sorted(isinstance(result, SessionExistsError) for result in results) == [False, True], results
    assert await exported(others[0], writer.session_id) == lines
