"""Calls in which the model is called before the turn has ended, on virtual time."""

from pathlib import Path

from parley.models.llm import Message
from parley.session_store.events import Kind
from tests.fakes.scripted_llm import TOOL, ScriptedRow
from tests.fakes.tools import FakeTool
from tests.sim.call import OFF, SimulatedCall, silence, simulate, voice

THINKING_S = 0.15
ANSWER = (THINKING_S, "The answer is yes. ", "That is all.")
TEXT = "The answer is yes. That is all."
QUESTION = [silence(500), voice(1_200)]
ENDED_MS = 1_700


def questions(call: SimulatedCall) -> list[str]:
    return [_last(asked) for asked in call.model.asked]


def _last(asked: list[Message]) -> str:
    return next(message.text for message in reversed(asked) if message.role == "user")


def test_a_model_that_thinks_is_not_waited_for(tmp_path: Path):
    caller = [*QUESTION, silence(3_000)]
    sooner = simulate(caller, tmp_path / "on", scripts=[ANSWER])
    later = simulate(caller, tmp_path / "off", scripts=[ANSWER], speculation=OFF)
    gained_ms = later.bot_spans_ms()[0][0] - sooner.bot_spans_ms()[0][0]
    assert 60 <= gained_ms <= 1_000 * THINKING_S + 20
    assert [turn.bot_text for turn in sooner.turns] == [turn.bot_text for turn in later.turns] == [TEXT]
    assert [turn.answered_ahead for turn in (*sooner.turns, *later.turns)] == [True, False]


def test_a_long_wait_hides_all_of_the_thinking(tmp_path: Path):
    caller = [*QUESTION, silence(3_000)]
    script = (0.4, "The answer is yes. ")
    slow = simulate(caller, tmp_path / "slow", scripts=[script], completeness=[0.0])
    quick = simulate(caller, tmp_path / "quick", scripts=[script[1:]], completeness=[0.0], speculation=OFF)
    assert slow.bot_spans_ms()[0][0] <= quick.bot_spans_ms()[0][0]


def test_a_patient_agent_has_its_answer_ready_when_it_is_sure(tmp_path: Path):
    caller, patient = [*QUESTION, silence(4_000)], {"kind": "predictive", "patience": 0.9}
    open_ = {"words": ("if", "i", "lose", "it"), "word_ms": 300, "completeness": [0.02], "endpoint": patient}
    slow = simulate(caller, tmp_path / "slow", scripts=[(0.4, "The answer is yes. ")], **open_)
    quick = simulate(caller, tmp_path / "quick", scripts=[("The answer is yes. ",)], speculation=OFF, **open_)
    assert slow.turns[0].answered_ahead
    assert len(slow.model.asked) == 1
    # All of the 0.4 s of generation lies inside the wait.
    assert slow.bot_spans_ms()[0][0] - ENDED_MS > 700
    assert slow.bot_spans_ms()[0][0] <= quick.bot_spans_ms()[0][0]


def test_what_is_heard_stands_after_what_was_asked_in_the_record(tmp_path: Path):
    call = simulate([*QUESTION, silence(3_000)], tmp_path, scripts=[ANSWER])
    received = [event for event in call.events if event.kind in (Kind.USER_TURN, Kind.BOT_TURN)]
    assert [(event.kind, event.payload["text"]) for event in received] == [
        (Kind.USER_TURN, "what is it what is it"),
        (Kind.BOT_TURN, TEXT),
    ]


def test_a_caller_who_goes_on_hears_nothing_of_a_guess(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(400), voice(1_000), silence(3_000)]
    call = simulate(
        caller,
        tmp_path,
        scripts=[("Wrong. ",), ("Wrong again. ",), ANSWER],
        completeness=[0.0, 0.0, 0.0, 0.95],
    )
    assert len(call.turns) == 1
    asked = questions(call)
    assert len(asked) >= 2
    assert call.turns[0].user_text.startswith(asked[0])
    assert asked[-1] == call.turns[0].user_text
    [(start_ms, _)] = call.bot_spans_ms()
    assert start_ms > 2_900
    replies = [event.payload["text"] for event in call.events if event.kind is Kind.BOT_TURN]
    assert replies == [call.turns[0].bot_text]


def test_the_guess_of_a_later_turn_knows_what_was_heard_before(tmp_path: Path):
    caller = [*QUESTION, silence(3_000), voice(1_200), silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER])
    assert [turn.answered_ahead for turn in call.turns] == [True, True]
    assert [message.text for message in call.model.asked[-1] if message.role == "assistant"] == [TEXT]


def test_a_tool_runs_once_and_for_the_turn_itself(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters={"type": "object", "properties": {}})
    row = ScriptedRow((TOOL,), (TOOL,), ("It is sunny.",))
    call = simulate([*QUESTION, silence(6_000)], tmp_path, row=row, tools=[tool])
    assert len(tool.effects) == 1
    kinds = (Kind.USER_TURN, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.BOT_TURN)
    assert tuple(event.kind for event in call.events if event.kind in kinds) == kinds
    assert [turn.bot_text for turn in call.turns if turn.bot_text] == ["It is sunny."]


def test_a_tool_that_is_wanted_after_the_turn_belongs_to_it(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters={"type": "object", "properties": {}})
    # The tool is called after the turn has ended and is recorded.
    row = ScriptedRow((1.5, TOOL), ("It is sunny.",))
    call = simulate([*QUESTION, silence(8_000)], tmp_path, row=row, tools=[tool])
    assert (len(row.services), row.services[0].requests, len(tool.effects)) == (1, 2, 1)
    [user] = [event for event in call.events if event.kind is Kind.USER_TURN]
    [used] = [event for event in call.events if event.kind is Kind.TOOL_CALL]
    assert used.payload["turn"] == user.seq
    assert [turn.bot_text for turn in call.turns if turn.bot_text] == ["It is sunny."]
