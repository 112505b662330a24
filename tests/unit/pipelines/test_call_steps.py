"""Steps of a call: what its client is sent, and what it answers for the caller. On virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pipecat.frames.frames import Frame
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from parley.core.tiers import Medium, Tier
from parley.language import find_language
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.medium_steps import MediumSteps
from parley.pipelines.stages.medium_steps import BURST, CallSteps, ClientMedia
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.turn_taking.tier_settings import TierSettings
from tests import virtual_time

SETTINGS = TierSettings.model_validate(
    {"offers": [{"to": "screen", "cause": "eyes", "on": ["on my screen"]}], "step_s": 30}
)
CAN = {"can": ["text", "video", "screen"]}


class SteppingCall:
    """A call whose client can change its medium.

    Attributes:
        call: the call.
        rules: of the steps of its session.
        steps: of the call.
        said: phrases of the deployment.
        sent: messages to the client.
    """

    def __init__(self, call: Call, *, sees: bool) -> None:
        self.call, self.said = call, list[str]()
        self.sent: list[dict[str, Any]] = []
        media = ClientMedia(sees=sees)
        self.rules = MediumSteps(call.conversation, SETTINGS, find_language(), media.now)
        self.steps = CallSteps(call, self.rules, media, self.said.append)

    def says(self, text: str) -> str | None:
        return self.rules.answer(text, is_again=False)

    async def keep(self, frame: Frame) -> None:
        assert isinstance(frame, RTVIServerMessageFrame)
        self.sent.append(frame.data)

    @property
    def tier(self) -> Tier:
        return self.call.conversation.tier.tier

    @property
    def shown(self) -> list[tuple[str, str, str]]:
        return [(each["tier"], each["to"], each["reason"]) for each in self.sent]


def play(
    folder: Path, scenario: Callable[[SteppingCall], Coroutine[Any, Any, None]], *, sees: bool = True
) -> None:
    async def whole() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
        opened = Conversations(store, compactor=Compactor())
        try:
            async with opened.open() as conversation:
                call = Call(conversation, "webrtc", LiveCall(conversation.clock))
                stepping = SteppingCall(call, sees=sees)
                call.live.input.open(stepping.keep)
                async with asyncio.TaskGroup() as tasks:
                    running = [
                        tasks.create_task(stepping.steps.run()),
                        tasks.create_task(call.live.input.run()),
                    ]
                    with conversation.reporting(call.events, speaks=True):
                        await asyncio.sleep(0)
                        await scenario(stepping)
                    for task in running:
                        task.cancel()
        finally:
            await opened.close()
            await store.close()

    virtual_time.run(whole())


def test_a_button_accepts_and_the_camera_ends_the_step(tmp_path: Path) -> None:
    async def scenario(call: SteppingCall) -> None:
        assert call.says("That is on my screen") is None, "the client has not said what it can"
        call.steps.take(CAN)
        assert call.says("That is on my screen") == SETTINGS.phrases["offer_screen"]
        call.steps.take({"answer": "accepted"})
        call.call.conversation.use_medium(Medium.SCREEN, call.call.events, is_on=True)
        await asyncio.sleep(0.1)
        assert call.shown == [
            ("step_offered", "screen", "step_offered"),
            ("stepping", "screen", "accepted"),
            ("agent", "screen", "reached"),
        ]
        assert call.said == [SETTINGS.phrases["go_screen"], SETTINGS.phrases["seen"]]
        # It is late: there is nothing to accept, to decline or to fail any more.
        for answer in ("accepted", "declined", "failed"):
            call.steps.take({"answer": answer})
        assert len(call.said) == 2 and call.tier is Tier.AGENT

    play(tmp_path, scenario)


@pytest.mark.parametrize("answer", ["declined", "failed"])
def test_a_step_that_is_not_taken_ends_with_a_phrase(answer: str, tmp_path: Path) -> None:
    async def scenario(call: SteppingCall) -> None:
        call.steps.take(CAN)
        call.says("Can I share my screen?")
        assert call.tier is Tier.STEPPING
        call.steps.take({"answer": answer})
        assert call.tier is Tier.AGENT
        assert call.said == [
            SETTINGS.phrases["declined"] if answer == "declined" else SETTINGS.phrases["failed"]
        ]

    play(tmp_path, scenario)


def test_a_step_that_takes_too_long_is_over(tmp_path: Path) -> None:
    async def scenario(call: SteppingCall) -> None:
        call.steps.take(CAN)
        call.says("Can I share my screen?")
        await asyncio.sleep(SETTINGS.step_s - 1)
        assert call.tier is Tier.STEPPING
        # Each step has its own time.
        call.says("Can I show you something?")
        await asyncio.sleep(SETTINGS.step_s - 1)
        assert call.tier is Tier.STEPPING
        await asyncio.sleep(2)
        assert call.tier is Tier.AGENT and call.said == [SETTINGS.phrases["failed"]]
        assert call.shown[-1] == ("agent", "video", "expired")

    play(tmp_path, scenario)


def test_a_client_that_comes_back_is_sent_the_open_step(tmp_path: Path) -> None:
    async def scenario(call: SteppingCall) -> None:
        call.steps.take(CAN)
        await asyncio.sleep(0.1)
        assert not call.sent
        call.says("Can I share my screen?")
        call.steps.take(CAN)
        await asyncio.sleep(0.1)
        assert call.shown == [("stepping", "screen", "step_requested")] * 2

    play(tmp_path, scenario)


def test_where_nothing_looks_at_pictures_none_are_offered(tmp_path: Path) -> None:
    async def scenario(call: SteppingCall) -> None:
        call.steps.take(CAN)
        assert call.says("Can I share my screen?") is None
        assert call.says("That is on my screen") is None
        assert call.says("Can we go on in writing?") == SETTINGS.phrases["go_text"]

    play(tmp_path, scenario, sees=False)


def test_reports_that_are_invalid_or_too_many_are_dropped(tmp_path: Path) -> None:
    async def scenario(call: SteppingCall) -> None:
        invalid = [None, "can", {"can": ["telepathy"]}, {"can": 5}, {"answer": "maybe"}, {"more": 1}]
        for data in invalid:
            call.steps.take(data)
        for _ in range(BURST - len(invalid)):
            call.steps.take({"can": []})
        call.steps.take(CAN)
        assert call.says("Can I share my screen?") is None
        await asyncio.sleep(5)
        call.steps.take(CAN)
        assert call.says("Can I share my screen?") == SETTINGS.phrases["go_screen"]

    play(tmp_path, scenario)
