"""The large tier of a call, as engines use it from their threads."""

import asyncio
from collections import deque

import pytest

from parley.models.omni import Preparation
from parley.models.omni.two_tier.content import Content
from parley.models.omni.two_tier.dialogue import UserTurnReady
from parley.processors.duplex.dialogue import CallDialogue

RATE_HZ = 16_000


class Steps:
    """Recorder of the steps that it receives."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def on_foreseen(self, text: str | None) -> None:
        self.received.append(("foreseen", text))

    def on_turn(self, *, is_open: bool) -> None:
        self.received.append(("turn", is_open))

    def on_asked(self, asked: UserTurnReady) -> None:
        self.received.append(("asked", asked.text))

    def on_said(self, text: str) -> None:
        self.received.append(("said", text))

    def on_dropped(self) -> None:
        self.received.append("dropped")

    def on_forgotten(self) -> None:
        self.received.append("forgotten")


async def settled() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.fixture
async def call() -> tuple[CallDialogue, Steps]:
    steps = Steps()
    return CallDialogue(
        steps, rate_hz=RATE_HZ, kept=lambda text: bytes(320) if text == "mhm" else None
    ), steps


async def test_what_was_made_before_an_engine_is_on_is_its(call: tuple[CallDialogue, Steps]) -> None:
    dialogue, _ = call
    greeting, taken = Content(RATE_HZ), deque[Content]()
    dialogue.arrived(greeting)
    dialogue.end().open(Preparation(), taken.append)
    answer = Content(RATE_HZ)
    dialogue.arrived(answer)
    assert list(taken) == [greeting, answer]


async def test_what_is_asked_comes_to_the_loop_in_its_order(call: tuple[CallDialogue, Steps]) -> None:
    dialogue, steps = call
    end = dialogue.end()
    end.open(Preparation(), lambda _content: None)

    def in_thread() -> None:
        end.turn(is_open=True)
        end.foresee("what is it")
        end.ask(UserTurnReady("what is it"))
        end.forget()
        end.drop()
        end.say("Sorry.")

    await asyncio.to_thread(in_thread)
    await settled()
    begins = [("turn", True), ("foreseen", "what is it"), ("asked", "what is it")]
    assert steps.received == [*begins, "forgotten", "dropped", ("said", "Sorry.")]


async def test_an_engine_that_comes_back_late_takes_nothing_from_the_next(
    call: tuple[CallDialogue, Steps],
) -> None:
    dialogue, steps = call
    hung, taken = dialogue.end(), deque[Content]()
    hung.open(Preparation(), lambda _content: None)
    following = dialogue.end()
    following.open(Preparation(), taken.append)
    hung.ask(UserTurnReady("old"))
    hung.close()
    await settled()
    assert dialogue.is_open and steps.received == []
    dialogue.arrived(Content(RATE_HZ))
    assert len(taken) == 1


async def test_the_turn_of_an_engine_that_is_gone_is_over(call: tuple[CallDialogue, Steps]) -> None:
    dialogue, steps = call
    end = dialogue.end()
    end.open(Preparation(), lambda _content: None)
    end.close()
    await settled()
    assert steps.received == [("turn", False)] and not dialogue.is_open


async def test_only_a_kept_phrase_is_hummed(call: tuple[CallDialogue, Steps]) -> None:
    end = call[0].end()
    hum = end.hum("mhm")
    assert hum is not None and hum.is_aside and hum.held_samples == 160
    assert end.hum("something else") is None
