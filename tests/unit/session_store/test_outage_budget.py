"""The cost of a long outage of the database, on virtual time: only reports of specialists are lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from parley.core.errors import CapacityError
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time
from tests.session_files import locked

SETTINGS = ConversationTuning(max_pending=100, max_pending_records=200)


@asynccontextmanager
async def opened(folder: Path, settings: ConversationTuning) -> AsyncIterator[Conversations]:
    url = f"sqlite:///{folder}/sessions.db"
    store = await SessionStore.open(StoreTuning(url=url, busy_timeout_ms=0, append_deadline_s=3))
    conversations = Conversations(store, settings, compactor=Compactor())
    try:
        yield conversations
        await conversations.close()
    finally:
        await store.close()


def play(
    folder: Path,
    scenario: Callable[[Conversations], Coroutine[Any, Any, None]],
    settings: ConversationTuning = SETTINGS,
) -> None:
    async def whole() -> None:
        async with opened(folder, settings) as conversations:
            await scenario(conversations)

    virtual_time.run(whole())


@contextmanager
def logged(level: str) -> Iterator[list[str]]:
    """Collect the log from ``level`` on."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message.record["message"])), level=level)
    try:
        yield lines
    finally:
        logger.remove(sink)


def report(conversation: Conversation, order: int, *, kind: Kind = Kind.ANNOTATION) -> Draft:
    return conversation.draft(kind, "stt", order=order)


def heard(conversation: Conversation, reply_id: str, *, kind: Kind = Kind.HEARD) -> Draft:
    return conversation.draft(kind, "bot", reply_id=reply_id, text="At nine.", truncated=False, unheard="")


async def stored(conversations: Conversations, conversation: Conversation) -> list[Event]:
    return await conversations.store.events(conversation.session_id, limit=10_000)


def test_half_a_minute_with_thousands_of_reports_costs_no_turn_no_reply_and_no_heard_mark(tmp_path: Path):
    async def scenario(conversations: Conversations) -> None:
        async with conversations.open() as conversation:
            with logged("ERROR") as lines:
                with locked(tmp_path / "sessions.db"):
                    turns = []
                    for second in range(30):
                        for number in range(100):
                            conversation.record(report(conversation, 100 * second + number))
                        conversation.record(heard(conversation, f"r{second}"))
                        conversation.record(heard(conversation, f"r{second}", kind=Kind.BOT_TURN))
                        text = f"turn {second}"
                        turns.append(asyncio.create_task(conversation.user_turn(text, transport="text")))
                        await asyncio.sleep(1)
                    assert not any(turn.done() for turn in turns)
                events = await asyncio.gather(*turns)
                await conversation.flushed()
            dropped = conversation.dropped_records
        assert [event.payload["text"] for event in events] == [f"turn {second}" for second in range(30)]
        everything = await stored(conversations, conversation)
        kept = [event for event in everything if event.kind is not Kind.ANNOTATION]
        assert [event.kind for event in kept] == [Kind.HEARD, Kind.BOT_TURN, Kind.USER_TURN] * 30
        replies = [event.payload["reply_id"] for event in kept if event.kind is Kind.BOT_TURN]
        assert replies == [f"r{second}" for second in range(30)]
        orders = [event.payload["order"] for event in everything if event.kind is Kind.ANNOTATION]
        assert orders == sorted(orders)
        # The oldest gave way to the newest; those of the first moment were on their way already.
        assert orders[-100:] == list(range(2_900, 3_000))
        assert len(orders) == SETTINGS.max_pending_records
        assert dropped == 3_000 - len(orders)
        assert [line for line in lines if "annotations while" in line] == [
            f"session {conversation.shown_id}: dropped {dropped} annotations while the store was unavailable"
        ]

    play(tmp_path, scenario)


def test_each_outage_is_told_by_itself(tmp_path: Path):
    async def scenario(conversations: Conversations) -> None:
        async with conversations.open() as conversation:
            with logged("ERROR") as lines:
                for _ in range(2):
                    with locked(tmp_path / "sessions.db"):
                        turn = asyncio.create_task(conversation.user_turn("Hello?", transport="text"))
                        await asyncio.sleep(1)
                        for order in range(SETTINGS.max_pending_records + 7):
                            conversation.record(report(conversation, order))
                        await asyncio.sleep(5)
                    await turn
                    await conversation.flushed()
            assert conversation.dropped_records == 14
            assert len([line for line in lines if "dropped 7 annotations" in line]) == 2

    play(tmp_path, scenario)


def test_a_record_of_many_kinds_loses_only_what_may_be_lost(tmp_path: Path):
    async def scenario(conversations: Conversations) -> None:
        async with conversations.open() as conversation:
            with locked(tmp_path / "sessions.db"):
                turn = asyncio.create_task(conversation.user_turn("Hello?", transport="text"))
                await asyncio.sleep(1)
                conversation.record(
                    report(conversation, -1, kind=Kind.JOURNAL),
                    heard(conversation, "r"),
                    *(report(conversation, order) for order in range(SETTINGS.max_pending_records)),
                )
                await asyncio.sleep(1)
            await turn
        kinds = [event.kind for event in await stored(conversations, conversation)]
        assert kinds == [Kind.USER_TURN, Kind.HEARD, *[Kind.ANNOTATION] * SETTINGS.max_pending_records]

    play(tmp_path, scenario)


def test_turns_that_fill_their_own_budget_leave_that_of_the_reports_alone(tmp_path: Path):
    settings = ConversationTuning(max_pending=10, max_pending_records=10)

    async def scenario(conversations: Conversations) -> None:
        async with conversations.open() as conversation:
            with locked(tmp_path / "sessions.db"):
                for number in range(10):
                    conversation.record(heard(conversation, f"r{number}"))
                conversation.record(report(conversation, 0), heard(conversation, "one too many"))
                with pytest.raises(CapacityError):
                    await conversation.user_turn("One too many.", transport="text")
                await asyncio.sleep(1)
        events = await stored(conversations, conversation)
        assert [event.kind for event in events] == [Kind.HEARD] * 10 + [Kind.ANNOTATION]

    play(tmp_path, scenario, settings)


def test_without_an_outage_nothing_is_dropped(tmp_path: Path):
    async def scenario(conversations: Conversations) -> None:
        async with conversations.open() as conversation:
            for order in range(1_000):
                conversation.record(report(conversation, order))
                if order % SETTINGS.max_pending_records == SETTINGS.max_pending_records - 1:
                    await asyncio.sleep(1)
            assert conversation.dropped_records == 0
        assert len(await stored(conversations, conversation)) == 1_000

    play(tmp_path, scenario)


def test_what_is_recorded_when_the_session_is_closed_here_is_said_to_be_lost(tmp_path: Path):
    async def scenario(conversations: Conversations) -> None:
        async with conversations.open() as conversation:
            pass
        await asyncio.sleep(1)
        with logged("ERROR") as lines:
            conversation.record(heard(conversation, "late"))
        assert ["1 records are lost" in line for line in lines] == [True]

    play(tmp_path, scenario)


def test_what_still_waits_when_the_process_ends_is_said_to_be_lost(tmp_path: Path):
    settings = ConversationTuning(close_s=1.0)

    async def scenario(conversations: Conversations) -> None:
        with logged("ERROR") as lines:
            async with conversations.open() as conversation:
                with locked(tmp_path / "sessions.db"):
                    conversation.record(heard(conversation, "r"), heard(conversation, "r"))
                    await asyncio.sleep(0.5)
                    await conversations.close()
        assert any("2 events are lost" in line for line in lines)

    play(tmp_path, scenario, settings)
