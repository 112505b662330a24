"""Whole calls on virtual time in which a rule of the deployment offers or fetches a human."""

import asyncio
from pathlib import Path

import pytest

from parley.core.call_events import AnnotationReported
from parley.core.timeline import Annotation, ProsodyPayload, Source
from parley.session_store.events import Kind
from tests.fakes.scripted_llm import TOOL, ScriptedRow
from tests.fakes.tools import FakeTool
from tests.sim.call import OFF, RunningCall, SimulatedCall, silence, simulate, voice

NOTHING = {"type": "object", "properties": {}}
OFFER = "Shall I fetch a colleague?"
FETCHING = "I am fetching a colleague. You are number 1. Say never mind to go on with me."
QUESTION = [silence(500), voice(1_000), silence(6_000)]


def changes(call: SimulatedCall) -> list[tuple[str, str, str | None]]:
    tiers = [each.payload for each in call.events if each.kind is Kind.TIER]
    return [(each["tier"], each["reason"], each.get("cause")) for each in tiers]


def replies(call: SimulatedCall) -> list[str]:
    return [each.payload["text"] for each in call.events if each.kind is Kind.BOT_TURN]


@pytest.mark.parametrize("mode", ["cascade", "duplex"])
@pytest.mark.parametrize("announced", [(), ("Let me look that up. ",)])
def test_the_result_of_a_tool_fetches_a_human_once_its_answer_was_heard(
    tmp_path: Path, announced: tuple[str, ...], mode: str
):
    tool = FakeTool(name="look_up", parameters=NOTHING, answer={"allowed": False})
    row = ScriptedRow((*announced, TOOL), ("That needs a colleague.",))
    rule = {"cause": "policy", "ask": False, "on_tool": {"name": "look_up", "has": {"allowed": False}}}
    call = simulate(
        QUESTION,
        tmp_path,
        row=row,
        tools=[tool],
        speculation=OFF,
        desk={"offers": [rule]},
        omni=[] if mode == "duplex" else None,
    )
    heard = [each.strip() for each in announced]
    assert replies(call) == [*heard, "That needs a colleague.", FETCHING]
    assert changes(call) == [("waiting", "policy", "policy")]


@pytest.mark.parametrize("mode", ["cascade", "duplex"])
def test_a_human_is_fetched_after_an_answer_that_is_written_slowly(tmp_path: Path, mode: str):
    tool = FakeTool(name="look_up", parameters=NOTHING, answer={"allowed": False})
    answer = (1.5, "That needs a colleague. ", 1.0, "I fetch one now. ", 1.0, "Good bye.")
    row = ScriptedRow(("Let me look that up. ", TOOL), answer)
    rule = {"cause": "policy", "ask": False, "on_tool": {"name": "look_up", "has": {"allowed": False}}}
    call = simulate(
        [silence(500), voice(1_000), silence(14_000)],
        tmp_path,
        row=row,
        tools=[tool],
        speculation=OFF,
        desk={"offers": [rule]},
        omni=[] if mode == "duplex" else None,
    )
    kinds = [each.kind for each in call.events if each.kind in (Kind.BOT_TURN, Kind.TIER)]
    assert kinds == [Kind.BOT_TURN, Kind.BOT_TURN, Kind.TIER, Kind.BOT_TURN]
    said = "That needs a colleague. I fetch one now. Good bye."
    assert replies(call) == ["Let me look that up.", said, FETCHING]


def test_another_result_of_the_tool_fetches_no_human(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING, answer={"allowed": True})
    row = ScriptedRow((TOOL,), ("Done.",))
    rule = {"cause": "policy", "ask": False, "on_tool": {"name": "look_up", "has": {"allowed": False}}}
    call = simulate(QUESTION, tmp_path, row=row, tools=[tool], speculation=OFF, desk={"offers": [rule]})
    assert (replies(call), changes(call)) == (["Done."], [])


def test_sustained_tension_offers_a_human_and_a_calm_turn_between_does_not(tmp_path: Path):
    def judged(*scores: float, folder: str) -> SimulatedCall:
        async def perceive(running: RunningCall) -> None:
            clock = running.call.conversation.clock
            for score in scores:
                await asyncio.sleep(1.4)
                now_us = clock.now_us()
                payload = ProsodyPayload(now_us - 900_000, now_us + 100_000, stress=score)
                annotation = Annotation(now_us, now_us, Source.PROSODY, payload)
                running.call.events.publish(AnnotationReported(0, Source.PROSODY, annotation))
                await asyncio.sleep(6.1)

        place = tmp_path / folder
        place.mkdir()
        return simulate(
            QUESTION * len(scores),
            place,
            scripts=[("Ten euros.",)] * len(scores),
            concurrently=perceive,
            speculation=OFF,
            desk={"offers": [{"cause": "tension", "after_s": 1.5}]},
        )

    assert changes(judged(0.9, 0.9, folder="tense")) == [("offered", "offered", "tension")]
    assert changes(judged(0.9, 0.2, 0.9, folder="calm")) == []


def test_turns_that_were_recognised_badly_offer_a_human(tmp_path: Path):
    call = simulate(
        QUESTION * 2,
        tmp_path,
        scripts=[("Ten euros.",)] * 2,
        confidence=0.2,
        speculation=OFF,
        desk={"offers": [{"cause": "unclear", "after": 2}]},
    )
    assert replies(call) == ["Ten euros.", "Ten euros.", OFFER]
    assert changes(call) == [("offered", "offered", "unclear")]
