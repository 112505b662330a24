import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from parley.core.errors import CapacityError, FencedError, StoreClosedError, StoreError, UnknownSessionError
from parley.core.tiers import TierEvent
from parley.language import find_language
from parley.session_store.compaction import CompactionTuning, Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Draft, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time
from tests.session_files import locked

NO_SESSION = "00000000-0000-4000-8000-000000000000"

FACTS = find_language("en").facts
compacting = partial(Compactor, facts=FACTS)


@asynccontextmanager
async def conversations(
    folder: Path, settings: ConversationTuning | None = None
) -> AsyncIterator[Conversations]:
    url = f"sqlite:///{folder}/sessions.db"
    store = await SessionStore.open(StoreTuning(url=url, busy_timeout_ms=0, append_deadline_s=3))
    chosen = settings or ConversationTuning()
    try:
        compactor = compacting(chosen.compaction, budget_tokens=chosen.budget_tokens)
        yield Conversations(store, chosen, compactor=compactor)
    finally:
        await store.close()


def play(
    folder: Path,
    scenario: Callable[[Conversations], Coroutine[Any, Any, None]],
    settings: ConversationTuning | None = None,
) -> None:
    async def whole() -> None:
        async with conversations(folder, settings) as opened:
            await scenario(opened)

    virtual_time.run(whole())


def reply(conversation: Conversation, text: str) -> Draft:
    return conversation.draft(Kind.BOT_TURN, "bot", reply_id=text, text=text, truncated=False, unheard="")


def test_a_turn_is_durable_when_it_returns_and_is_in_the_view(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            turn = await conversation.user_turn("My name is Ada.", transport="text")
            stored = await opened.store.events(conversation.session_id, limit=10)
            assert [event.kind for event in stored] == [Kind.USER_TURN, Kind.STATE]
            assert stored[0] == turn
            assert conversation.state.values == {"name": "Ada"}
            assert "My name is Ada." in conversation.view().messages[0]["content"]

    play(tmp_path, scenario)


def test_a_session_is_live_until_all_that_its_last_holder_recorded_is_stored(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        session_id = (await opened.store.create()).id

        async def hold() -> None:
            async with opened.open(session_id) as conversation:
                conversation.record(reply(conversation, "its last words"))

        holding = asyncio.create_task(hold())
        pending_without_holder = 0
        async with asyncio.timeout(60):
            while not opened.is_live(session_id):
                await asyncio.sleep(0)
            while opened.is_live(session_id):
                pending_without_holder += opened.get(session_id) is None
                await asyncio.sleep(0)
        assert pending_without_holder
        [stored] = await opened.store.events(session_id, limit=10)
        assert stored.payload["text"] == "its last words"
        await holding
        assert not opened.is_live(NO_SESSION)

    play(tmp_path, scenario)


def test_records_keep_their_order_among_appends_and_go_in_few_commits(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            for number in range(5):
                conversation.record(reply(conversation, f"reply {number}"))
            await conversation.append(conversation.draft(Kind.USER_TURN, "user", text="a", transport="text"))
            conversation.record(reply(conversation, "last"))
        stored = await opened.store.events(conversation.session_id, limit=10)
        texts = [event.payload["text"] for event in stored]
        assert texts == [f"reply {number}" for number in range(5)] + ["a", "last"]

    play(tmp_path, scenario)


def test_the_same_key_is_one_turn_also_after_reopening(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            first = await conversation.user_turn("Hello.", transport="text", key="k")
            again = await conversation.user_turn("Hello.", transport="text", key="k")
            both = await asyncio.gather(
                *(conversation.user_turn("Bye.", transport="text", key="b") for _ in range(2))
            )
        async with opened.open(conversation.session_id) as reopened:
            third = await reopened.user_turn("Hello.", transport="text", key="k")
            assert [message["role"] for message in reopened.view().messages] == ["user"]
            assert len([event for event in reopened.events if event.kind is Kind.USER_TURN]) == 2
        assert first == again == third
        assert both[0] == both[1]

    play(tmp_path, scenario)


def test_a_turn_that_comes_again_does_not_undo_what_was_said_since(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await conversation.user_turn("My name is Bob.", transport="text", key="first")
            # It contains nothing new: no STATE goes with it.
            await conversation.user_turn("My name is Bob.", transport="text", key="second")
            await conversation.user_turn("My name is Eve.", transport="text", key="third")
            await conversation.user_turn("My name is Bob.", transport="text", key="second")
            assert conversation.state.values == {"name": "Eve"}
            assert [event.kind for event in conversation.events].count(Kind.STATE) == 2

    play(tmp_path, scenario)


def test_two_transports_of_one_process_share_one_claim(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as voice:
            async with opened.open(voice.session_id) as text:
                assert text is voice
                assert opened.get(voice.session_id) is voice
            # The call that left first took nothing away.
            await voice.user_turn("still here", transport="webrtc")
        assert opened.get(voice.session_id) is None

    play(tmp_path, scenario)


def test_a_claim_of_another_process_is_the_end_of_this_one(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with conversations(tmp_path) as other, opened.open() as conversation:
            async with other.open(conversation.session_id) as theirs:
                with pytest.raises(FencedError):
                    await conversation.user_turn("mine", transport="text")
                assert conversation.lost.is_set()
                assert isinstance(conversation.loss, FencedError)
                with pytest.raises(FencedError):
                    await conversation.user_turn("mine again", transport="text")
                await theirs.user_turn("theirs", transport="text")
            # Opening it anew takes it back.
            async with opened.open(conversation.session_id) as again:
                assert again is not conversation
                assert [event.payload["text"] for event in again.events] == ["theirs"]

    play(tmp_path, scenario)


def test_a_deleted_session_ends_its_conversation(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await opened.store.delete(conversation.session_id)
            with pytest.raises(UnknownSessionError):
                await conversation.user_turn("anybody?", transport="text")
            assert conversation.lost.is_set()

    play(tmp_path, scenario)


@pytest.mark.parametrize("session_id", [NO_SESSION, "nonsense", ""])
def test_an_unknown_session_is_refused_and_leaves_nothing_open(tmp_path: Path, session_id: str):
    async def scenario(opened: Conversations) -> None:
        for _ in range(2):
            with pytest.raises(UnknownSessionError):
                async with opened.open(session_id):
                    pass
            assert opened.get(session_id) is None
        with pytest.raises(UnknownSessionError):
            await opened.view(session_id)

    play(tmp_path, scenario)


def test_a_database_that_is_away_longer_than_its_deadline_gets_everything_once_in_order(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            with locked(tmp_path / "sessions.db"):
                turns = [
                    asyncio.create_task(conversation.user_turn(f"turn {number}", transport="text"))
                    for number in range(3)
                ]
                conversation.record(reply(conversation, "said"))
                # The writer's deadline is 3 s.
                await asyncio.sleep(10)
                assert not any(turn.done() for turn in turns)
            events = await asyncio.gather(*turns)
            assert [event.payload["text"] for event in events] == ["turn 0", "turn 1", "turn 2"]
        stored = await opened.store.events(conversation.session_id, limit=10)
        texts = [event.payload["text"] for event in stored]
        assert sorted(texts) == ["said", "turn 0", "turn 1", "turn 2"]
        assert [event.seq for event in stored] == [1, 2, 3, 4]

    play(tmp_path, scenario)


def test_a_turn_whose_caller_gave_up_waiting_is_committed_all_the_same(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            with locked(tmp_path / "sessions.db"):
                turn = asyncio.create_task(conversation.user_turn("said once", transport="text"))
                await asyncio.sleep(1)
                turn.cancel()
                await asyncio.wait({turn})
            await conversation.user_turn("and then", transport="text")
            assert [event.payload["text"] for event in conversation.events] == ["said once", "and then"]

    play(tmp_path, scenario)


def test_too_much_for_a_database_that_is_away_is_refused_and_what_was_taken_is_kept(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            with locked(tmp_path / "sessions.db"):
                for number in range(10):
                    conversation.record(reply(conversation, f"reply {number}"))
                with pytest.raises(CapacityError):
                    await conversation.user_turn("one too many", transport="text")
            await asyncio.sleep(5)
            await conversation.user_turn("room again", transport="text")
            assert len(conversation.events) == 11

    play(tmp_path, scenario, ConversationTuning(max_pending=10))


def test_an_event_that_cannot_be_stored_hurts_no_one_else(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            bad = conversation.draft(Kind.USER_TURN, "user", text={1, 2}, transport="text")
            conversation.record(reply(conversation, "before"))
            refused = asyncio.create_task(conversation.append(bad))
            good = asyncio.create_task(conversation.user_turn("good", transport="text"))
            with pytest.raises(StoreError):
                await refused
            await good
        stored = await opened.store.events(conversation.session_id, limit=10)
        assert [event.payload["text"] for event in stored] == ["before", "good"]

    play(tmp_path, scenario)


def test_older_turns_are_summarised_alongside_the_conversation_and_the_log_stays(tmp_path: Path):
    settings = ConversationTuning(
        budget_tokens=400, compaction=CompactionTuning(keep_turns=2, summary_tokens=100)
    )

    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await conversation.user_turn("My account number is 4172.", transport="text")
            for number in range(12):
                await conversation.user_turn(f"Tell me about fee number {number}, please.", transport="text")
                await conversation.append(
                    reply(conversation, f"Fee {number} is {number} euros a month. " * 3)
                )
                await asyncio.sleep(1)
            view = conversation.view()
            assert view.until_seq > 0
            assert view.tokens <= 400
            assert "4172" in view.messages[0]["content"]
            assert view.messages[-1]["content"].startswith("Fee 11 is 11 euros")
        whole = await opened.store.events(conversation.session_id, limit=100)
        assert len([event for event in whole if event.kind is Kind.USER_TURN]) == 13
        assert len([event for event in whole if event.kind is Kind.SUMMARY]) >= 1
        async with opened.open(conversation.session_id) as again:
            assert again.view().messages == view.messages
            assert len(again.events) < len(whole)

    play(tmp_path, scenario, settings)


def test_what_waits_when_the_conversation_is_closed_is_committed(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            conversation.record(reply(conversation, "the last words"))
        stored = await opened.store.events(conversation.session_id, limit=10)
        assert [event.payload["text"] for event in stored] == ["the last words"]

    play(tmp_path, scenario)


def test_a_view_of_a_session_that_no_one_has_open_claims_nothing(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await conversation.user_turn("Hello.", transport="text")
        before = await opened.store.info(conversation.session_id)
        assert (await opened.view(conversation.session_id)).messages == conversation.view().messages
        assert (await opened.store.info(conversation.session_id)).epoch == before.epoch

    play(tmp_path, scenario)


def test_the_session_clock_does_not_follow_a_wall_clock_that_is_set_back(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            first = await conversation.user_turn("Hello.", transport="text")
        url = f"sqlite:///{tmp_path}/sessions.db"
        # An hour earlier, by the wall clock of the next process.
        earlier = await SessionStore.open(StoreTuning(url=url), now_us=lambda: first.event_us - 3_600_000_000)
        try:
            writer = await earlier.claim(conversation.session_id)
            assert writer.clock.now_us() > first.arrival_us
        finally:
            await earlier.close()

    play(tmp_path, scenario)


def test_a_session_that_is_opened_again_while_it_ends_goes_on_and_loses_nothing(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await conversation.user_turn("Hello.", transport="webrtc")
            blocked = locked(tmp_path / "sessions.db")
            blocked.__enter__()
            conversation.record(reply(conversation, "heard as far as here"))

        async def release() -> None:
            await asyncio.sleep(0.7)
            blocked.__exit__(None, None, None)

        # Hang up, and type at once, while the store is unavailable.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(release())
            async with opened.open(conversation.session_id) as again:
                await again.user_turn("And then?", transport="text")
                texts = [event.payload["text"] for event in again.events]
                assert texts == ["Hello.", "heard as far as here", "And then?"]
        stored = await opened.store.events(conversation.session_id, limit=10)
        assert [event.payload["text"] for event in stored] == ["Hello.", "heard as far as here", "And then?"]

    play(tmp_path, scenario)


def test_a_store_that_is_closed_ends_the_conversation_and_the_loop_goes_on(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await opened.store.close()
            conversation.record(reply(conversation, "too late"))
            async with asyncio.timeout(5):
                await conversation.lost.wait()
            with pytest.raises(StoreClosedError):
                await conversation.user_turn("too late too", transport="text")

    play(tmp_path, scenario)


def test_a_summary_that_breaks_is_tried_again_with_the_next_turn(tmp_path: Path):
    settings = ConversationTuning(
        budget_tokens=300, compaction=CompactionTuning(keep_turns=1, summary_tokens=60)
    )

    class Breaks:
        calls = 0

        async def summarize(self, request: object) -> str:
            type(self).calls += 1
            if self.calls == 1:
                raise ValueError("a bug in a vendor's SDK")
            return "They asked about fees."

    async def whole() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
        compactor = compacting(settings.compaction, Breaks(), budget_tokens=300)
        opened = Conversations(store, settings, compactor=compactor)
        async with opened.open() as conversation:
            for number in range(6):
                await conversation.user_turn(f"Tell me about fee number {number}, please.", transport="text")
                await conversation.append(
                    reply(conversation, f"Fee {number} is {number} euros a month. " * 5)
                )
                await asyncio.sleep(1)
            assert Breaks.calls >= 2
            assert any(event.kind is Kind.SUMMARY for event in conversation.events)
        await opened.close()
        await store.close()

    virtual_time.run(whole())


def test_a_summary_is_written_also_when_no_one_holds_the_session_any_more(tmp_path: Path):
    settings = ConversationTuning(
        budget_tokens=300, compaction=CompactionTuning(keep_turns=1, summary_tokens=60)
    )

    class Slow:
        async def summarize(self, request: object) -> str:
            await asyncio.sleep(8)
            return "They asked about fees."

    async def whole() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
        compactor = compacting(settings.compaction, Slow(), budget_tokens=300)
        opened = Conversations(store, settings, compactor=compactor)
        session_id = (await store.create()).id
        # Opened for one turn and closed, as for typed turns.
        for number in range(6):
            async with opened.open(session_id) as conversation:
                await conversation.user_turn(f"Tell me about fee number {number}, please.", transport="text")
                await conversation.append(
                    reply(conversation, f"Fee {number} is {number} euros a month. " * 5)
                )
        await asyncio.sleep(20)
        stored = await store.events(session_id, limit=100)
        assert [event.payload["by"] for event in stored if event.kind is Kind.SUMMARY][:1] == ["summarizer"]
        assert opened.get(session_id) is None
        await opened.close()
        await store.close()

    virtual_time.run(whole())


def test_turns_that_nothing_answers_are_summarised_too(tmp_path: Path):
    settings = ConversationTuning(
        budget_tokens=300, compaction=CompactionTuning(keep_turns=1, summary_tokens=60)
    )

    async def scenario(opened: Conversations) -> None:
        session_id = (await opened.store.create()).id
        for number in range(30):
            async with opened.open(session_id) as conversation:
                await conversation.user_turn(f"Tell me about fee number {number}, please.", transport="text")
            await asyncio.sleep(1)
        async with opened.open(session_id) as again:
            assert any(event.kind is Kind.SUMMARY for event in again.events)
            assert len(again.events) < 15
        await opened.close()

    play(tmp_path, scenario, settings)


def test_a_summary_of_a_session_that_was_lost_meanwhile_is_no_failure(tmp_path: Path):
    settings = ConversationTuning(
        budget_tokens=300, compaction=CompactionTuning(keep_turns=1, summary_tokens=60)
    )
    log: list[str] = []

    class Held:
        def __init__(self) -> None:
            self.asked, self.go_on = asyncio.Event(), asyncio.Event()

        async def summarize(self, request: object) -> str:
            self.asked.set()
            await self.go_on.wait()
            return "They asked about fees."

    async def whole() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
        held = Held()
        compactor = compacting(settings.compaction, held, budget_tokens=300)
        opened = Conversations(store, settings, compactor=compactor)
        async with opened.open() as conversation:
            for number in range(6):
                await conversation.user_turn(f"Tell me about fee number {number}, please.", transport="text")
                await conversation.append(
                    reply(conversation, f"Fee {number} is {number} euros a month. " * 5)
                )
            await held.asked.wait()
            # Another process.
            await store.claim(conversation.session_id)
            held.go_on.set()
            await conversation.lost.wait()
            await conversation.kept_short()
        await opened.close()
        await store.close()
        lines = "".join(log)
        assert conversation.session_id not in lines
        assert "no summary" not in lines

    sink = logger.add(log.append, level=0)
    try:
        virtual_time.run(whole())
    finally:
        logger.remove(sink)


def test_a_session_that_is_deleted_through_here_is_gone_at_once(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await conversation.user_turn("Hello.", transport="text")
            await opened.delete(conversation.session_id)
            assert conversation.lost.is_set()
            with pytest.raises(UnknownSessionError):
                await opened.view(conversation.session_id)

    play(tmp_path, scenario)


def test_the_newest_call_takes_a_session_over_and_the_one_before_loses_it(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open(for_call=True) as first:
            first.record(reply(first, "Good morning."))
            async with opened.open(first.session_id, for_call=True) as second:
                assert first.lost.is_set()
                assert "continues in another call" in str(first.loss)
                with pytest.raises(FencedError):
                    await first.user_turn("Do you hear me?", transport="a")
                await second.user_turn("Who is there?", transport="b")
                # The words of the first are in it.
                assert [event.payload["text"] for event in second.events] == [
                    "Good morning.", "Who is there?",
                ]  # fmt: skip
                async with opened.open(first.session_id, for_call=True):
                    assert second.lost.is_set()

    play(tmp_path, scenario)


def test_a_lost_conversation_does_not_put_its_session_among_those_that_wait(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with (
            opened.open(for_call=True) as first,
            opened.open(first.session_id, for_call=True) as second,
        ):
            assert not first.change_tier(TierEvent.REQUESTED)
            assert not first.tier.is_held and second.place == 0
            assert second.change_tier(TierEvent.REQUESTED) and second.place == 1

    play(tmp_path, scenario)


def test_of_two_calls_that_come_at_once_one_has_the_session(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        session_id = (await opened.store.create()).id
        both = asyncio.Barrier(2)

        async def hold() -> bool:
            async with opened.open(session_id, for_call=True) as conversation:
                await both.wait()
                return conversation.lost.is_set()

        assert sorted(await asyncio.gather(hold(), hold())) == [False, True]

    play(tmp_path, scenario)


def test_a_typed_turn_shares_the_session_of_a_call(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open(for_call=True) as call, opened.open(call.session_id) as typed:
            assert typed is call
            assert not call.lost.is_set()

    play(tmp_path, scenario)


def test_a_call_that_is_over_takes_nothing_from_the_next_one(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open(for_call=True) as first:
            session_id = first.session_id
        async with opened.open(session_id, for_call=True) as second:
            assert second is first
            assert not second.lost.is_set()

    play(tmp_path, scenario)


# Whispers


def test_a_whisper_lasts_until_a_reply_whose_request_contained_it(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            whispers = opened.board.whispers
            whispers[conversation.session_id] = "Mention the app."

            def is_shown() -> bool:
                return "Mention the app." in str(conversation.view(pictures=True).messages)

            # A call begins, and greets.
            conversation.view(pictures=True)
            await asyncio.sleep(1)
            await conversation.append(reply(conversation, "Welcome."))
            assert whispers
            # A reply that was being spoken, to a request of before.
            spoken = reply(conversation, "We open at ten.")
            await asyncio.sleep(1)
            await conversation.user_turn("And when do you close?", transport="text")
            await conversation.append(spoken)
            assert whispers
            await conversation.user_turn("Do you hear me?", transport="text")
            # The page reads the view, too.
            conversation.view()
            assert is_shown()
            await asyncio.sleep(1)
            answer = reply(conversation, "We close at six.")
            await asyncio.sleep(1)
            # A look ahead at words over the reply asks nothing.
            conversation.foreseen("Mhm.", transport="text", pictures=True)
            await conversation.append(answer)
            assert not whispers and not is_shown()

    play(tmp_path, scenario)


def test_a_whisper_that_comes_after_the_request_is_for_the_next_one(tmp_path: Path):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            whispers = opened.board.whispers
            whispers[conversation.session_id] = "Be brief."
            turn = await conversation.user_turn("When do you open?", transport="text")
            conversation.view(turn=turn.seq, pictures=True)
            whispers[conversation.session_id] = "Mention the app."
            await asyncio.sleep(1)
            await conversation.append(reply(conversation, "At ten."))
            assert whispers.get(conversation.session_id) == "Mention the app."

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["ended", "taken over"])
def test_a_session_that_has_ended_is_freed_without_a_collection(tmp_path: Path, is_taken_over: bool):
    async def scenario(opened: Conversations) -> None:
        async with opened.open() as conversation:
            await conversation.user_turn("Do you hear me?", transport="text")
            held = weakref.ref(conversation)
            if is_taken_over:
                assert await opened.release(conversation.session_id, "continues elsewhere")
        session_id = conversation.session_id
        del conversation
        # Its tasks end.
        await asyncio.sleep(1)
        assert not opened.is_live(session_id)
        assert held() is None

    gc.collect()
    gc.disable()
    try:
        play(tmp_path, scenario)
    finally:
        gc.enable()
