"""Pairs of turns of two timelines: what counts as decided otherwise, and what does not."""

from dataclasses import replace
from typing import Any

import pytest

from parley.recording.comparison import CallTurn, Difference, compare, turns_of


def event(at_ms: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"at_ms": at_ms, "event": name, **fields}


def call(joined_ms: int = 0) -> list[dict[str, Any]]:
    """Return a greeting, a question with its answer, and an interruption of the next answer."""
    events = [
        event(0, "CallerJoined"),
        event(20, "ReplyStarted", reply_id="0"),
        event(900, "ReplyFinished", reply_id="0", text="Hello there.", unheard="", truncated=False),
        event(1_000, "TurnStarted"),
        event(3_600, "TurnEndDecided", silence_ms=600),
        event(3_601, "TurnEnded", text="How much is it?"),
        event(3_650, "ToolsCalled"),
        event(4_100, "ReplyStarted", reply_id="1"),
        event(6_000, "ReplyFinished", reply_id="1", text="Five", unheard="pounds.", truncated=True),
        event(7_000, "TurnEndDecided", silence_ms=500),
        event(7_001, "TurnEnded", text="and abroad"),
        event(7_200, "ReplyStarted", reply_id="2"),
        event(9_000, "ReplyFinished", reply_id="2", text="Six pounds.", unheard="", truncated=False),
    ]
    events.insert(8, event(5_990, "ReplyCut", reason="words"))
    return [{**each, "at_ms": each["at_ms"] + joined_ms} for each in events]


GREETING, QUESTION, ABROAD = turns_of(call())


def test_turns_have_their_words_their_times_and_what_became_of_the_answer():
    assert GREETING == CallTurn(20, heard="Hello there.")
    assert QUESTION == CallTurn(
        3_000, "How much is it?", 600, "Five", "pounds.", is_cut=True, latency_ms=1_100, tool_calls=1
    )
    assert (ABROAD.at_ms, ABROAD.latency_ms, ABROAD.is_cut) == (6_500, 700, False)


def test_times_count_from_the_arrival_of_the_caller():
    assert turns_of(call(joined_ms=750), 750) == turns_of(call())


def test_a_turn_has_the_cost_of_its_answer_where_all_of_it_is_known():
    priced = [event(6_010, "TurnPriced", turn=1, cost=0.25), event(6_020, "TurnPriced", turn=1, cost=0.5)]
    events = [*call(), *priced, event(9_010, "TurnPriced", turn=2, cost=None)]
    turns = turns_of(sorted(events, key=lambda each: each["at_ms"]))
    assert [turn.cost for turn in turns] == [None, 0.75, None]


@pytest.mark.parametrize(
    "events", [[], [{}], [{"event": "TurnEnded"}], [{"at_ms": "x", "event": "ReplyFinished", "text": "a"}]]
)
def test_a_timeline_that_lacks_fields_has_no_turns(events: list[dict[str, Any]]):
    assert turns_of(events) == []


def typed(at_ms: int, answer: str = "An answer.") -> list[dict[str, Any]]:
    return [
        event(at_ms, "TextTyped", text="by hand"),
        event(at_ms + 100, "ReplyStarted", reply_id="typed"),
        event(at_ms + 1_000, "ReplyFinished", reply_id="typed", text=answer, unheard=""),
    ]


def test_typed_turns_are_turns_with_their_answers():
    *spoken, last = turns_of([*call(), *typed(10_000)])
    assert spoken == turns_of(call())
    assert last == CallTurn(10_000, "by hand", heard="An answer.", latency_ms=100, is_typed=True)


def test_a_typed_turn_is_no_pair_of_a_spoken_one():
    spoken = CallTurn(10_000, "by hand", heard="An answer.")
    [one, other] = compare([replace(spoken, is_typed=True)], [spoken])
    assert {one.differences, other.differences} == {(Difference.ONLY_THEN,), (Difference.ONLY_NOW,)}


def test_another_answer_to_a_typed_turn_is_another_decision():
    then, now = turns_of([*typed(10_000), *call()]), turns_of([*typed(10_020, "Another."), *call()])
    [pair, *_] = compare(then, now)
    assert pair.differences == (Difference.ANSWER,)


def test_a_phrase_that_covers_the_wait_is_no_part_of_the_answer():
    masked = call()
    masked[7:7] = [
        event(3_900, "ReplyStarted", reply_id="m"),
        event(4_300, "ReplyFinished", reply_id="m", text="Okay.", unheard="", in_context=False),
    ]
    found = turns_of(masked)
    assert found == [GREETING, replace(QUESTION, latency_ms=900), ABROAD]
    assert all(pair.is_decided_alike for pair in compare(turns_of(call()), found))
    # It is heard to its end while the answer begins, and the answer is cut off afterwards.
    assert turns_of(sorted(masked, key=lambda each: each["at_ms"])) == found
    # Alone it answers nothing.
    assert not turns_of([*call()[:6], masked[7], masked[8]])[-1].is_answered


def test_noise_is_no_turn_and_words_that_come_later_belong_to_theirs():
    noise = [event(10_500, "TurnEndDecided", silence_ms=400), event(10_501, "TurnEnded", text="")]
    assert turns_of([*call(), *noise]) == turns_of(call())
    reply = [
        event(10_900, "ReplyStarted", reply_id="3"),
        event(12_000, "ReplyFinished", reply_id="3", text="Hello.", unheard=""),
    ]
    later = event(10_950, "TurnTranscribed", text="good day")
    assert turns_of([*call(), *noise, reply[0], later, reply[1]])[-1] == CallTurn(
        10_100, "good day", 400, heard="Hello.", latency_ms=800
    )
    # Without words it is something that the agent said unasked, close to a noise or long after.
    late = [{**each, "at_ms": each["at_ms"] + 20_000} for each in reply]
    assert turns_of([*call(), *noise, *late])[-1] == CallTurn(30_900, heard="Hello.")


def test_what_came_after_the_end_of_the_recording_is_not_compared():
    pairs = compare([GREETING], [GREETING, QUESTION, ABROAD], until_ms=4_000)
    assert [pair.now for pair in pairs] == [GREETING, QUESTION]


def differences(then: list[CallTurn], now: list[CallTurn]) -> list[tuple[Difference, ...]]:
    return [pair.differences for pair in compare(then, now)]


def test_the_same_call_somewhat_later_is_decided_alike():
    then = [GREETING, QUESTION, ABROAD]
    later = [replace(turn, at_ms=turn.at_ms + 400, latency_ms=2_000) for turn in then]
    assert differences(then, later) == [(), (), ()]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"text": "how much is it"}, ()),
        ({"text": "how much is his"}, (Difference.WORDS,)),
        ({"unheard": "euros."}, (Difference.ANSWER,)),
        # How much had been written when it was cut off is not a decision.
        ({"unheard": ""}, ()),
        ({"heard": "Five pounds.", "unheard": "", "is_cut": False}, (Difference.CUT,)),
        ({"heard": "", "unheard": "", "is_cut": False}, (Difference.ANSWERED, Difference.CUT)),
        ({"tool_calls": 0}, (Difference.TOOLS,)),
    ],
)
def test_a_difference_of_a_turn_has_a_name(changes: dict[str, Any], expected: tuple[Difference, ...]):
    [_, (found), _] = differences(
        [GREETING, QUESTION, ABROAD], [GREETING, replace(QUESTION, **changes), ABROAD]
    )
    assert found == expected


def test_words_alone_are_no_decision():
    [pair] = compare([QUESTION], [replace(QUESTION, text="how much is his")])
    assert pair.is_decided_alike and pair.differences == (Difference.WORDS,)


def test_a_turn_that_was_split_is_missing_once_and_new_twice():
    parts = [replace(ABROAD, at_ms=4_900, text="and"), replace(ABROAD, at_ms=8_100, text="abroad")]
    pairs = compare([GREETING, QUESTION, ABROAD], [GREETING, QUESTION, *parts])
    assert [pair.differences for pair in pairs[2:]] == [
        (Difference.ONLY_NOW,), (Difference.ONLY_THEN,), (Difference.ONLY_NOW,),
    ]  # fmt: skip


def test_what_the_caller_did_not_stay_for_is_not_compared():
    gone = replace(ABROAD, heard="Six", unheard="pounds.")
    assert differences([QUESTION, gone], [QUESTION, ABROAD]) == [(), ()]
    left = replace(ABROAD, heard="", latency_ms=None)
    assert differences([QUESTION, left], [QUESTION, ABROAD]) == [(), ()]
    # Within the call both are differences.
    assert differences([left, QUESTION], [ABROAD, QUESTION])[0] == (Difference.ANSWERED,)
