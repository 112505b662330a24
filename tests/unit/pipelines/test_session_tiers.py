"""Rules of all tiers of one session over a real store: what is offered, and what a turn does to it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from parley.configs.deployment import Deployment
from parley.core.call_events import TierChanged
from parley.core.tiers import SEEN, Medium, Tier, TierEvent
from parley.pipelines.session_tiers import SessionTiers, session_tiers
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.desk.settings import DeskSettings
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.turn_taking.tier_offers import OfferCause
from parley.turn_taking.tier_settings import TierSettings
from tests import virtual_time

ALL = frozenset(Medium)
SETTINGS = TierSettings.model_validate(
    {
        "offers": [
            {"to": "screen", "cause": "eyes", "on": ["on my screen"]},
            {"to": "video", "cause": "verification", "on": ["verify me"]},
            {"to": "voice", "cause": "repairs", "after": 1},
            {"to": "voice", "cause": "policy", "on": ["close my account"], "ask": False},
            {"to": "video", "cause": "verification", "on_tool": {"name": "identify"}, "ask": False},
        ]
    }
)
DESK = DeskSettings.model_validate(
    {
        "offers": [
            {"cause": "policy", "on": ["complain"]},
            {"cause": "verification", "on": ["new address"]},
            {"cause": "policy", "on": ["sell my shares"], "ask": False},
            {"cause": "policy", "on_tool": {"name": "refund", "has": {"allowed": False}}, "ask": False},
            {"cause": "tension", "after_s": 4.0},
        ],
    }
)
FETCHING = DESK.phrases["waiting"].format(place=1)


class Session:
    """A session and the rules of its tiers."""

    def __init__(self, opened: Conversations, conversation: Conversation, media: frozenset[Medium]) -> None:
        self.conversation = conversation
        deployment = Deployment.model_validate(
            {"name": "t", "tiers": SETTINGS.model_dump(), "desk": DESK.model_dump()}
        )
        opened.board.set_staffed(True)
        self.tiers: SessionTiers = session_tiers(deployment, conversation, lambda: media)

    def says(self, *turns: str) -> list[str | None]:
        return [self.tiers.answer(said, is_again=False) for said in turns]

    @property
    def state(self) -> tuple[Tier, Medium | None]:
        return self.conversation.tier.tier, self.conversation.tier.to


def play(
    folder: Path, scenario: Callable[[Session], Coroutine[Any, Any, None]], *, media: frozenset[Medium] = ALL
) -> None:
    async def whole() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
        opened = Conversations(store, compactor=Compactor())
        try:
            async with opened.open() as conversation:
                await scenario(Session(opened, conversation, media))
        finally:
            await opened.close()
            await store.close()

    virtual_time.run(whole())


@pytest.mark.parametrize(
    ("turns", "answers", "state"),
    [
        (
            ["What is this on my screen?"],
            [SETTINGS.phrases["offer_screen"]],
            (Tier.STEP_OFFERED, Medium.SCREEN),
        ),
        (
            ["You have to verify me.", "Yes"],
            [SETTINGS.phrases["offer_video"], SETTINGS.phrases["go_voice"]],
            (Tier.STEPPING, Medium.VIDEO),
        ),
        (
            ["Verify me", "No"],
            [SETTINGS.phrases["offer_video"], SETTINGS.phrases["declined"]],
            (Tier.AGENT, Medium.VIDEO),
        ),
        # Words about something else decline, and are answered; the offer is not repeated.
        (
            ["Verify me", "What does a card cost?", "Then verify me"],
            [SETTINGS.phrases["offer_video"], None, None],
            (Tier.AGENT, Medium.VIDEO),
        ),
        (["Can I talk to you?"], [SETTINGS.phrases["go_voice"]], (Tier.STEPPING, Medium.VOICE)),
        # The caller asks for what they declined.
        (
            ["Verify me", "No", "Can I show you something?"],
            [SETTINGS.phrases["offer_video"], SETTINGS.phrases["declined"], SETTINGS.phrases["go_voice"]],
            (Tier.STEPPING, Medium.VIDEO),
        ),
        (
            ["Can I talk to you?", "What does a card cost?", "Never mind"],
            [SETTINGS.phrases["go_voice"], None, SETTINGS.phrases["declined"]],
            (Tier.AGENT, Medium.VOICE),
        ),
        # What the button of the page says.
        (
            ["Verify me", "No, never mind."],
            [SETTINGS.phrases["offer_video"], SETTINGS.phrases["declined"]],
            (Tier.AGENT, Medium.VIDEO),
        ),
        (
            ["Can I talk to you?", "No, never mind."],
            [SETTINGS.phrases["go_voice"], SETTINGS.phrases["declined"]],
            (Tier.AGENT, Medium.VOICE),
        ),
        # What the deployment leaves to another medium is no offer, and may be declined all the same.
        (
            ["Please close my account.", "Never mind", "Close my account"],
            [SETTINGS.phrases["go_voice"], SETTINGS.phrases["declined"], SETTINGS.phrases["go_voice"]],
            (Tier.STEPPING, Medium.VOICE),
        ),
        # An open offer does not keep the words of another rule from their effect.
        (
            ["Verify me", "No, close my account"],
            [SETTINGS.phrases["offer_video"], SETTINGS.phrases["go_voice"]],
            (Tier.STEPPING, Medium.VOICE),
        ),
        # The same for a human.
        (["I have a new address."], [DESK.phrases["offer"]], (Tier.OFFERED, None)),
        (
            ["I have a new address.", "No"],
            [DESK.phrases["offer"], DESK.phrases["declined"]],
            (Tier.AGENT, None),
        ),
        (["Sell my shares"], [FETCHING], (Tier.WAITING, None)),
        (["I want to complain", "Sell my shares"], [DESK.phrases["offer"], FETCHING], (Tier.WAITING, None)),
        (
            ["Verify me", "Sell my shares"],
            [SETTINGS.phrases["offer_video"], FETCHING],
            (Tier.WAITING, Medium.VIDEO),
        ),
        (["Sell my shares", "Never mind"], [FETCHING, DESK.phrases["withdrawn"]], (Tier.AGENT, None)),
        # Already there.
        (["Can we go on in writing?"], [None], (Tier.AGENT, None)),
        (["What does a card cost?"], [None], (Tier.AGENT, None)),
    ],
)
def test_words_offer_begin_and_end_a_step(
    turns: Sequence[str], answers: list[str | None], state: tuple[Tier, Medium | None], tmp_path: Path
) -> None:
    async def scenario(session: Session) -> None:
        assert session.says(*turns) == answers
        assert session.state == state

    play(tmp_path, scenario)


def test_a_client_that_cannot_is_offered_nothing(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        assert session.says("On my screen", "Can I talk to you?", "Verify me") == [None] * 3
        assert session.state == (Tier.AGENT, None)

    play(tmp_path, scenario, media=frozenset())


def test_a_human_comes_before_another_medium_in_every_tier(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        for before in (["Verify me"], ["Can I talk to you?"]):
            session.says(*before)
            [answer] = session.says("I want to talk to a human.")
            assert answer == session.tiers.human.waiting and session.state[0] is Tier.WAITING
            # No model is asked, and no step begins.
            assert session.says("Can I show you something?") == [session.tiers.human.waiting]
            session.conversation.change_tier(TierEvent.WITHDRAWN)
        session.conversation.change_tier(TierEvent.OFFERED)
        assert session.says("Can I talk to you?") == [SETTINGS.phrases["go_voice"]]

    play(tmp_path, scenario)


def test_repairs_make_an_offer_due_once(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        tiers, conversation = session.tiers, session.conversation

        async def exchange() -> str:
            await conversation.append(conversation.draft(Kind.USER_TURN, "user", {"text": "Pardon?"}))
            rule = tiers.new_offers().on_reply("Ten euros.", may_offer=tiers.may_offer)
            return "" if rule is None else tiers.offer(rule)

        assert await exchange() == SETTINGS.phrases["offer_voice"]
        assert session.says("No thanks") == [SETTINGS.phrases["declined"]]
        assert await exchange() == ""
        with conversation.reporting(CallEvents(), speaks=True):
            assert await exchange() == ""

    play(tmp_path, scenario)


TENSE = {"text": "fine", "prosody": {"start_us": 0, "end_us": 2_000_000, "stress": 0.9}}


@pytest.mark.parametrize(
    ("exchanges", "phrases", "state", "cause"),
    [
        (
            [[("refund", {"allowed": True})], [("refund", {"allowed": False})]],
            ["", FETCHING],
            (Tier.WAITING, None),
            "policy",
        ),
        # A result counts for the reply that answers it.
        (
            [[("identify", {})], []],
            [SETTINGS.phrases["go_voice"], ""],
            (Tier.STEPPING, Medium.VIDEO),
            "verification",
        ),
        # What a deployment leaves to a human goes before a step.
        (
            [[("identify", {}), ("refund", {"allowed": False})]],
            [FETCHING],
            (Tier.WAITING, None),
            "policy",
        ),
    ],
)
def test_the_result_of_a_tool_leads_to_a_human_or_to_another_medium(
    exchanges: list[list[tuple[str, dict[str, Any]]]],
    phrases: list[str],
    state: tuple[Tier, Medium | None],
    cause: str,
    tmp_path: Path,
) -> None:
    async def scenario(session: Session) -> None:
        conversation, tiers = session.conversation, session.tiers
        said = []
        for results in exchanges:
            drafts = [conversation.draft(Kind.USER_TURN, "user", {"text": "Well?"})]
            for name, result in results:
                known = {"name": name, "outcome": "done", "result": result}
                drafts.append(conversation.draft(Kind.TOOL_RESULT, "tool", known))
            await conversation.append(*drafts)
            rule = tiers.new_offers().on_reply("Ten euros.", may_offer=tiers.may_offer)
            said.append("" if rule is None else tiers.offer(rule))
            await conversation.append(conversation.draft(Kind.BOT_TURN, "bot", {"text": "Ten euros."}))
        assert said == phrases and session.state == state and conversation.tier.cause == cause

    play(tmp_path, scenario)


def test_sustained_tension_offers_a_human_and_a_change_of_the_tier_begins_anew(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        conversation, tiers = session.conversation, session.tiers

        async def exchange() -> OfferCause | None:
            turn = {"text": "fine", "tokens": [TENSE]}
            await conversation.append(conversation.draft(Kind.USER_TURN, "user", turn))
            rule = tiers.new_offers().on_reply("Ten euros.", may_offer=tiers.may_offer)
            await conversation.append(conversation.draft(Kind.BOT_TURN, "bot", {"text": "Ten euros."}))
            return None if rule is None or not tiers.offer(rule) else rule.cause

        assert [await exchange(), await exchange()] == [None, OfferCause.TENSION]
        assert conversation.tier.cause == "tension"
        session.says("No")
        assert [await exchange(), await exchange()] == [None, OfferCause.TENSION]

    play(tmp_path, scenario)


def test_a_step_ends_where_it_leads_and_every_change_is_recorded(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        conversation, events = session.conversation, CallEvents()
        changes: list[tuple[Tier, Medium | None]] = []
        events.subscribe(TierChanged, lambda event: changes.append((event.tier, event.to)))
        session.says("Can I talk to you?")
        with conversation.reporting(events, speaks=True):
            session.says("What is that on my screen?", "Yes, please")
            # They turn on the camera in place of the screen.
            conversation.use_medium(Medium.VIDEO, events, is_on=True)
            assert session.says("Can you turn off the camera?") == [SETTINGS.phrases["go_unseen"]]
            conversation.use_medium(Medium.VIDEO, events, is_on=False)
            assert session.says("I'd rather write") == [SETTINGS.phrases["go_text"]]
        assert changes == [
            (Tier.AGENT, Medium.VOICE),
            (Tier.STEP_OFFERED, Medium.SCREEN),
            (Tier.STEPPING, Medium.SCREEN),
            (Tier.AGENT, Medium.SCREEN),
            (Tier.STEPPING, Medium.VOICE),
            (Tier.AGENT, Medium.VOICE),
            (Tier.STEPPING, Medium.TEXT),
        ]
        await conversation.flushed()
        stored = [each.payload for each in conversation.events if each.kind is Kind.TIER]
        assert [(each["reason"], each["to"]) for each in stored] == [
            ("step_requested", "voice"),
            ("reached", "voice"),
            ("step_offered", "screen"),
            ("accepted", "screen"),
            ("reached", "screen"),
            ("step_requested", "voice"),
            ("reached", "voice"),
            ("step_requested", "text"),
            ("reached", "text"),
        ]
        assert stored[2]["cause"] == stored[3]["cause"] == "eyes"

    play(tmp_path, scenario)


def test_a_call_that_ends_ends_its_open_offer(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        with session.conversation.reporting(CallEvents(), speaks=True):
            session.says("Verify me")
        assert session.conversation.tier.reason == "expired"
        # It was not declined.
        assert session.says("Verify me") == [SETTINGS.phrases["offer_video"]]

    play(tmp_path, scenario)


def test_a_written_answer_stops_when_a_call_of_its_session_begins(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        conversation = session.conversation
        with conversation.reporting(CallEvents(), speaks=True):
            assert conversation.tier.holds == 0, "nothing was being written"
        async with conversation.turn:
            with conversation.reporting(CallEvents(), speaks=True):
                assert conversation.tier.holds == 1

    play(tmp_path, scenario)


def test_a_deployment_without_steps_ends_the_step_of_one_that_had_them(tmp_path: Path) -> None:
    async def scenario(session: Session) -> None:
        session.says("Verify me")
        plain = session_tiers(Deployment(name="t"), session.conversation, lambda: SEEN)
        assert session.state[0] is Tier.AGENT
        assert plain.answer("Can I show you something?", is_again=False) is None
        await asyncio.sleep(0)

    play(tmp_path, scenario)
