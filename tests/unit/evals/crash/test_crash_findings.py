"""Findings of the crash evaluation (lost, doubled, untrue): each figure can fail."""

from typing import Any

import pytest

from parley.evals.crash.findings import BY_CALL, BY_TEXT, Findings
from parley.evals.crash.model_peer import decide, shown_results
from parley.evals.crash.outside import BOOKING, ORDER, Request
from parley.evals.crash.statements import Statement, doubles, gaps, heard_replies, judge, spoken_turns
from parley.evals.harness.webrtc_caller import Message

SESSION = "5"


def event(seq: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "event_us": seq,
        "key": payload.pop("key", f"k{seq}"),
        "kind": kind,
        "payload": payload,
    }


def typed(seq: int, text: str) -> dict[str, Any]:
    return event(seq, "user_turn", text=text, transport="text")


def spoken(seq: int, text: str) -> dict[str, Any]:
    return event(seq, "user_turn", text=text, transport="webrtc")


def answer(seq: int, text: str, reply_id: str, *, truncated: bool = False) -> dict[str, Any]:
    return event(seq, "bot_turn", text=text, reply_id=reply_id, truncated=truncated, transport="text")


def called(seq: int, tool: str, item: str) -> dict[str, Any]:
    key = f"tool.{item}"
    names = {"name": tool, "arguments": {"item": item}, "call_id": f"c.{item}"}
    return event(seq, "tool_call", **names, effect_key=f"{SESSION}.{key}", key=key)


def result(seq: int, item: str, outcome: str = "done") -> dict[str, Any]:
    return event(seq, "tool_result", call_id=f"c.{item}", outcome=outcome, result={"done": item})


def turn(seq: int, text: str) -> Statement:
    return Statement("turn", "typed", "user_turn", {"seq": seq, "text": text})


def message(at_us: int, type_: str, **data: Any) -> Message:
    return Message(at_us, {"type": type_, "data": data})


# Acknowledged events


def test_what_is_there_as_it_was_stated_is_not_lost():
    events = [typed(1, "Hello."), answer(2, "Hi.", "reply.a")]
    done = Statement("done", "typed", "bot_turn", {"seq": 2, "text": "Hi.", "truncated": False})
    verdict = judge([turn(1, "Hello."), done], events)
    assert (verdict.stated, verdict.lost, verdict.out_of_order) == (2, (), ())


@pytest.mark.parametrize(
    "events", [[], [typed(2, "Hello.")], [typed(1, "Hullo.")], [answer(1, "Hello.", "reply.a")]]
)
def test_what_is_missing_moved_or_changed_is_lost(events):
    assert judge([turn(1, "Hello.")], events).lost == (turn(1, "Hello."),)


def test_a_turn_that_was_acknowledged_twice_is_one_turn():
    assert not judge([turn(1, "Hello."), turn(1, "Hello.")], [typed(1, "Hello.")]).lost


def test_commits_against_the_order_of_what_was_stated_are_seen():
    events = [typed(1, "B."), typed(2, "A.")]
    first = Statement("200", "typed", "user_turn", {"text": "A."})
    second = Statement("200", "typed", "user_turn", {"text": "B."})
    assert judge([first, second], events).out_of_order == (second,)
    assert not judge([second, first], events).out_of_order


def test_two_spoken_turns_of_the_same_words_need_two_events():
    messages = [
        message(1, "user-transcription", text="what is", final=True),
        message(2, "user-transcription", text="my code", final=False),
        message(3, "user-transcription", text="my code", final=True),
        Message(4, {"type": "bot-llm-started"}),
        message(5, "user-transcription", text="what is my code", final=True),
        Message(6, {"type": "bot-llm-started"}),
        message(7, "user-transcription", text="nobody was asked this", final=True),
    ]
    stated = spoken_turns(messages)
    assert [statement.fields["text"] for statement in stated] == ["what is my code"] * 2
    assert len(judge(stated, [spoken(1, "what is\nmy code")]).lost) == 1
    assert not judge(stated, [spoken(1, "what is my code"), spoken(2, "what is my code")]).lost
    # Typed text is not that of the spoken turn.
    assert len(judge(stated, [typed(1, "what is my code"), typed(2, "what is my code")]).lost) == 2


def test_what_was_heard_is_promised_once_something_after_it_is_acknowledged():
    heard = {"kind": "heard", "reply_id": "r", "text": "At", "unheard": "nine", "truncated": True}
    messages = [
        message(10, "server-message", **heard, in_context=True),
        message(11, "server-message", **heard, in_context=False),
        message(12, "server-message", kind="turn"),
    ]
    settled, unsettled = heard_replies(messages, settled_us=11)
    assert (len(settled), unsettled) == (1, [])
    settled, unsettled = heard_replies(messages, settled_us=10)
    assert (settled, len(unsettled)) == ([], 1)
    stored = event(1, "bot_turn", reply_id="r", text="At", unheard="nine", truncated=True)
    assert not judge(unsettled, [stored]).lost
    assert judge(unsettled, [{**stored, "payload": {**stored["payload"], "text": "At nine"}}]).lost


# Once and without a gap


def test_a_timeline_with_nothing_twice():
    events = [
        typed(1, "A."),
        answer(2, "On", "reply.a", truncated=True),
        answer(3, "Once.", "reply.a.2"),
        spoken(4, "yes"),
        spoken(5, "yes"),
        called(6, ORDER, "item1"),
        result(7, "item1"),
    ]
    assert (doubles(events), gaps(events)) == ([], 0)


@pytest.mark.parametrize(
    "twice",
    [
        [typed(1, "A."), typed(2, "A.")],
        [answer(1, "Once.", "reply.a"), answer(2, "Again.", "reply.a.2")],
        [called(1, ORDER, "item1"), called(2, ORDER, "item1")],
        [result(1, "item1"), result(2, "item1", "unknown")],
        [{**spoken(1, "yes"), "event_us": 9}, {**spoken(2, "yes"), "event_us": 9}],
        [event(1, "bot_turn", reply_id="r"), event(2, "bot_turn", reply_id="r")],
    ],
)
def test_what_is_there_twice_is_found(twice):
    assert len(doubles(twice)) == 1


def test_missing_and_repeated_numbers_are_gaps():
    assert gaps([typed(1, "A."), typed(3, "B.")]) == 1
    assert gaps([typed(1, "A."), typed(1, "B.")]) == 1
    assert gaps([]) == 0


# Effects


def of_tools(tool: str, requests: int, effects: int, outcome: str | None) -> Findings:
    findings = Findings()
    events = [typed(1, f"Please {'order' if tool == ORDER else 'book'} item1."), called(2, tool, "item1")]
    if outcome is not None:
        events.append(result(3, "item1", outcome))
    sent = [Request(f"{SESSION}.tool.item1", tool, "item1")] * requests
    findings.of_tools(SESSION, [*sent, Request("6.tool.item1", tool, "item9")], {"item1": effects}, events)
    return findings


def test_an_order_that_was_carried_out_once_is_right():
    findings = of_tools(ORDER, 1, 1, "done")
    assert (findings.effects, findings.details) == (1, [])


def test_an_effect_that_took_place_twice_is_a_fault():
    assert of_tools(ORDER, 2, 2, "done").doubled_effects == 1


def test_a_booking_that_was_sent_again_and_took_effect_once_is_right():
    findings = of_tools(BOOKING, 2, 1, "done")
    assert (findings.retried, findings.doubled_effects, findings.details) == (1, 0, [])


@pytest.mark.parametrize("effects", [0, 1])
def test_no_one_knows_what_became_of_an_order(effects):
    findings = of_tools(ORDER, 1, effects, "unknown")
    assert (findings.unknown, findings.untrue) == (1, 0)


@pytest.mark.parametrize(
    ("tool", "effects", "outcome"),
    [(ORDER, 0, "done"), (ORDER, 1, "failed"), (BOOKING, 1, "unknown"), (BOOKING, 0, "done")],
)
def test_a_result_that_says_what_is_not_so_is_a_fault(tool, effects, outcome):
    assert of_tools(tool, 1, effects, outcome).untrue == 1


def test_a_call_without_a_result_is_a_fault():
    assert of_tools(ORDER, 1, 1, None).unsettled_calls == 1


def test_a_wish_for_which_no_tool_was_called_is_a_fault():
    findings = Findings()
    findings.of_tools(SESSION, [], {}, [typed(1, "Please order item1.")])
    assert findings.undone == 1


# The verdict


def sound() -> Findings:
    findings = Findings(voice=True, rounds=1, kills=1, effects=1)
    for channel in (BY_TEXT, BY_CALL):
        findings.facts_asked[channel] = findings.facts_right[channel] = 1
    events = [typed(1, "Hello.")]
    findings.after_the_kill([turn(1, "Hello.")], [], events)
    findings.in_the_end([turn(1, "Hello.")], 1, events)
    return findings


def test_a_sound_run_passes():
    assert sound().passed(), sound().faults
    assert "| must-haves | all hold |" in sound().table()


def test_what_is_lost_after_the_kill_or_in_the_end_is_a_fault():
    findings = sound()
    findings.after_the_kill([turn(2, "Lost.")], [], [])
    findings.in_the_end([turn(2, "Lost.")], 0, [])
    assert findings.faults == {"lost": 1, "lost in the end": 1}
    assert not findings.passed()
    assert "1 lost" in findings.table()


def test_a_fact_that_was_not_answered_by_call_is_a_fault():
    findings = sound()
    findings.facts_right[BY_CALL] = 0
    assert findings.faults == {"facts not answered": 1}


def test_what_the_server_refused_unkilled_is_a_fault():
    findings = sound()
    findings.refused.append("503")
    assert not findings.passed()


def test_a_run_that_looked_at_nothing_does_not_pass():
    assert set(Findings().faults) == {"nothing acknowledged", "no effects"}


# The model


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def use(item: str, outcome: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": ORDER, "arguments": f'{{"item": "{item}"}}'}}
    return [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": outcome},
    ]


def test_the_model_calls_a_tool_once_and_then_tells_what_came_of_it():
    asked = [
        user("My code is amber7."),
        {"role": "assistant", "content": "Noted."},
        user("Please order item12."),
    ]
    assert decide(asked, 1) == ((ORDER, "item12"), "")
    wish, text = decide([*asked, *use("item12", '{"done": "item12"}')], 2)
    assert wish is None
    assert "item12" in text
    # Another item whose name begins with the same letters.
    assert decide([*asked[:2], user("Please order item1."), *use("item12", "{}")], 3)[0] == (ORDER, "item1")


def test_the_model_knows_the_code_from_what_the_person_said():
    said = [user("[notes]\n\nMy code is amber7."), {"role": "assistant", "content": "Your code is birch1."}]
    assert decide([*said, user("What is my code?")], 1)[1] == "Your code is amber7."
    assert "not told" in decide([user("what is my code")], 1)[1]


def test_every_answer_of_the_model_has_its_own_words():
    assert decide([user("Thank you.")], 1) != decide([user("Thank you.")], 2)


def test_a_turn_whose_answer_broke_off_is_answered_again():
    cut = {
        "role": "assistant",
        "content": "Thank you, I [cut off here; the person heard no more of this reply]",
    }
    assert decide([user("Please book item3."), cut], 1)[0] == (BOOKING, "item3")


def test_results_of_unknown_outcome_are_not_results():
    assert shown_results([*use("item1", '{"done": "item1"}'), *use("item2", '{"outcome": "unknown"}')]) == [
        "item1"
    ]
