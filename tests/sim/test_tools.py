"""A tool that is used in the middle of a call, on virtual time."""

from pathlib import Path
from typing import Any

from parley.configs.deployment import Bot
from parley.session_store.events import Kind
from tests.fakes.scripted_llm import TOOL, ScriptedRow
from tests.fakes.tools import FakeTool
from tests.sim.call import OFF, silence, simulate, voice

QUESTION = [silence(500), voice(1_000), silence(1_500)]
ASKED_MS = 1_500
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def test_the_answer_after_a_tool_is_heard_at_once(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING)
    row = ScriptedRow((TOOL,), ("It is sunny. ", "And warm."))
    call = simulate([*QUESTION, silence(8_000)], tmp_path, row=row, tools=[tool], speculation=OFF)
    # No filler, because there is no wait.
    [(start_ms, _)] = call.bot_spans_ms()
    assert start_ms - ASKED_MS < 1_300
    assert len(tool.effects) == 1
    received = (Kind.USER_TURN, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.BOT_TURN)
    assert tuple(event.kind for event in call.events if event.kind in received) == received
    assert call.events[-2].payload["text"] == "It is sunny. And warm."


def test_the_answer_after_a_tool_follows_the_words_that_announce_it(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING)
    row = ScriptedRow(("Let me look that up. ", TOOL), ("It is sunny.",))
    call = simulate([*QUESTION, silence(8_000)], tmp_path, row=row, tools=[tool], speculation=OFF)
    # Without a pause.
    [(start_ms, _)] = call.bot_spans_ms(gap_ms=200)
    assert start_ms - ASKED_MS < 1_300
    replies = [event.payload["text"] for event in call.events if event.kind is Kind.BOT_TURN]
    assert replies == ["Let me look that up.", "It is sunny."]


def test_a_cough_while_a_tool_runs_costs_nothing(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING, takes_s=4)
    row = ScriptedRow((TOOL,), ("It is sunny.",))
    call = simulate([*QUESTION, voice(160), silence(8_000)], tmp_path, row=row, tools=[tool], speculation=OFF)
    assert [turn.bot_text for turn in call.turns if turn.bot_text] == ["It is sunny."]
    outcomes = [event.payload["outcome"] for event in call.events if event.kind is Kind.TOOL_RESULT]
    assert (outcomes, len(tool.effects)) == (["done"], 1)


def test_a_cough_over_a_tool_that_was_announced_costs_nothing(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING, takes_s=4)
    row = ScriptedRow(("Let me look that up. ", TOOL), ("It is sunny.",))
    caller = [*QUESTION, silence(1_500), voice(160), silence(8_000)]
    call = simulate(caller, tmp_path, row=row, tools=[tool], speculation=OFF)
    replies = [event.payload["text"] for event in call.events if event.kind is Kind.BOT_TURN]
    assert (replies, len(tool.effects)) == (["Let me look that up.", "It is sunny."], 1)


def test_a_tool_that_was_interrupted_for_nothing_is_asked_for_again_and_runs_once(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING, takes_s=4)
    row = ScriptedRow(("Let me look that up. ", TOOL), (TOOL,), ("It is sunny.",))
    caller = [*QUESTION, silence(1_000), voice(600), silence(12_000)]
    # The question has one word, the other voice none.
    call = simulate(caller, tmp_path, row=row, tools=[tool], words=("what",), word_ms=1_000, speculation=OFF)
    replies = [event.payload["text"] for event in call.events if event.kind is Kind.BOT_TURN]
    assert (replies, len(tool.effects)) == (["Let me look that up.", "It is sunny."], 1)
    assert row.services[0].requests == 3


def test_left_to_pipecat_a_cough_while_a_tool_runs_does_not_leave_the_caller_in_silence(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING, takes_s=4)
    row = ScriptedRow((TOOL,), ("It is sunny.",))
    caller = [*QUESTION, voice(160), silence(8_000)]
    call = simulate(caller, tmp_path, row=row, tools=[tool], barge_in=None, speculation=OFF)
    # The result is no longer needed: the bot says that it is listening.
    assert [turn.bot_text for turn in call.turns if turn.bot_text] == [Bot().reprompt]
    outcomes = [event.payload["outcome"] for event in call.events if event.kind is Kind.TOOL_RESULT]
    assert (outcomes, len(tool.effects)) == (["done"], 1)
