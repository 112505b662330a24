"""The desk of one process over a real session store, on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from parley.core.tiers import SessionTier, Tier, TierEvent
from parley.language import find_language
from parley.pipelines.human_tier import HumanTier
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.desk.desk import Desk, DeskError
from parley.serving.gateway.desk.settings import DeskSettings
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.session_store.tier_board import MOST_HELD
from tests import virtual_time

DESK, OTHER = "desk-of-the-tests", "another-desk-1"


def play(folder: Path, scenario: Callable[[Conversations], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
        opened = Conversations(store, compactor=Compactor())
        try:
            await scenario(opened)
        finally:
            await opened.close()
            await store.close()

    virtual_time.run(whole())


def test_a_desk_that_closes_while_a_tier_changes_leaves_no_task(tmp_path: Path) -> None:
    async def scenario(opened: Conversations) -> None:
        for steps in range(8):
            desk = Desk(opened, DeskSettings())
            desk.start()
            async with opened.open() as conversation:
                assert conversation.change_tier(TierEvent.REQUESTED)
                await asyncio.sleep(1)
                assert conversation.change_tier(TierEvent.TAKEN)
                for _ in range(steps):
                    await asyncio.sleep(0)
                await desk.close()
                left = {each.get_name() for each in asyncio.all_tasks()}
                assert not {name for name in left if name.startswith("desk")}, (steps, left)

    play(tmp_path, scenario)


def test_a_desk_that_takes_a_session_from_an_absent_one_ends_the_call_of_that(tmp_path: Path) -> None:
    async def scenario(opened: Conversations) -> None:
        desk = Desk(opened, DeskSettings(grace_s=600))
        desk.start()
        async with opened.open() as conversation:
            session = conversation.session_id
            await desk.take(session, DESK)
            ended = asyncio.create_task(opened.board.until_not_held_by(session, DESK))
            await asyncio.sleep(599)
            with pytest.raises(DeskError, match="another desk"):
                await desk.take(session, OTHER)
            assert not ended.done()
            # The tier does not change when another desk takes the session, but its holder does.
            opened.board.set_holder(session, OTHER)
            epoch = conversation.tier.epoch
            await asyncio.wait_for(ended, 1)
            assert conversation.tier.epoch == epoch
            ended = asyncio.create_task(opened.board.until_not_held_by(session, OTHER))
            await desk.hand_back(session, OTHER, "")
            await asyncio.wait_for(ended, 1)
        await desk.close()

    play(tmp_path, scenario)


def test_a_human_may_speak_only_in_a_call_that_is_spoken(tmp_path: Path) -> None:
    async def scenario(opened: Conversations) -> None:
        desk = Desk(opened, DeskSettings())
        desk.start()
        async with opened.open(for_call=True) as conversation:
            session, events = conversation.session_id, CallEvents()
            # A conversation by turns (/ws/streaming) shows what is said, and has no audio to join.
            with conversation.reporting(events, speaks=False):
                await desk.take(session, DESK)
                with pytest.raises(DeskError, match="by turns"):
                    desk.check_speaker(session, DESK)
            with conversation.reporting(events, speaks=True):
                desk.check_speaker(session, DESK)
        await desk.close()

    play(tmp_path, scenario)


def test_no_caller_waits_and_no_session_is_taken_while_a_thousand_are_held(tmp_path: Path) -> None:
    async def scenario(opened: Conversations) -> None:
        desk, settings = Desk(opened, DeskSettings()), DeskSettings()
        opened.board.set_staffed(True)
        for number in range(MOST_HELD):
            opened.board.put(str(number), SessionTier(Tier.WAITING, since_us=number))
        async with opened.open() as conversation:
            human = HumanTier(conversation, settings, find_language("en"))
            assert human.answer("I want to talk to a human.", is_again=False) == settings.phrases["expired"]
            assert not human.offers("words") and conversation.tier.tier is Tier.AGENT
            with pytest.raises(DeskError, match="too many"):
                await desk.take(conversation.session_id, DESK)
            opened.board.remove("0")
            waiting = settings.phrases["waiting"].format(place=MOST_HELD)
            assert human.answer("I want to talk to a human.", is_again=False) == waiting
            # One on the board may be taken over, and goes on waiting until then.
            assert human.answer("Hello?", is_again=False) == waiting
            await desk.take(conversation.session_id, DESK)
            assert conversation.tier.tier is Tier.HUMAN
            await desk.hand_back(conversation.session_id, DESK, "")
        await desk.close()

    play(tmp_path, scenario)
