"""First steps of two timelines that differ, for turns that were decided otherwise."""

from typing import Any

from parley.recording.comparison import compare, turns_of
from parley.recording.divergence import Step, explain, steps_of

Events = list[dict[str, Any]]


def event(at_ms: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"at_ms": at_ms, "event": name, **fields}


def call(*, words: str = "how much is it", reply_ms: int = 3_600, answer: str = "Five pounds.") -> Events:
    return [
        event(0, "CallerJoined"),
        event(1_250, "VoiceStarted", voiced_ms=250),
        event(3_000, "VoiceEnded", silence_ms=200),
        event(3_100, "UtteranceRead", text=words),
        event(3_300, "TurnEndDecided", silence_ms=500, rule="words"),
        event(3_301, "TurnEnded", text=words),
        event(reply_ms, "ReplyStarted", reply_id="1"),
        event(6_000, "ReplyFinished", reply_id="1", text=answer, unheard="", truncated=False),
        event(8_000, "VoiceStarted", voiced_ms=250),
        event(9_500, "TurnEndDecided", silence_ms=500, rule="words"),
        event(9_501, "TurnEnded", text="and abroad"),
        event(9_900, "ReplyStarted", reply_id="2"),
        event(11_000, "ReplyFinished", reply_id="2", text="Six pounds.", unheard="", truncated=False),
    ]


def explained(then: Events, now: Events) -> list[tuple[str, ...]]:
    return explain(compare(turns_of(then), turns_of(now)), steps_of(then), steps_of(now))


def test_a_step_has_its_own_time_and_detail():
    steps = steps_of(call(), arrival_ms=500)
    assert steps[:3] == [
        Step(500, "a voice begins"),
        Step(2_300, "the voice ends"),
        Step(2_600, "words are recognised", "how much is it"),
    ]
    assert str(steps[2]) == "words are recognised (how much is it)"
    assert len(str(Step(0, "the turn ends", "x" * 500))) < 110


def test_events_that_are_no_steps_and_events_without_a_time_are_left_out():
    assert steps_of([{}, event(5, "ClientDelayReported"), {"event": "ReplyCut", "at_ms": "x"}]) == []


def test_turns_that_were_decided_alike_need_no_explanation():
    assert explained(call(), call(reply_ms=3_900)) == [(), ()]


def test_an_answer_that_came_late_is_explained_by_its_time():
    masked = call(reply_ms=5_100, answer="Okay. Five pounds.")
    first, second = explained(call(), masked)
    assert first[0] == "0:03.60 1500 ms later now: a reply begins"
    assert "only now: the reply ends (Okay. Five pounds.)" in first[2]
    assert second == ()


def test_other_words_come_before_the_answer_that_follows_from_them():
    first, _ = explained(call(), call(words="how much is his", answer="Who?"))
    assert first[:2] == (
        "0:03.10 only then: words are recognised (how much is it)",
        "0:03.10 only now: words are recognised (how much is his)",
    )


def test_a_turn_that_was_split_shows_the_decision_in_the_pause():
    split = call()
    split[2:2] = [
        event(1_900, "TurnEndDecided", silence_ms=400, rule="longest"),
        event(1_901, "TurnEnded", text="how much"),
    ]
    found = explained(call(), split)
    lines = [line for reasons in found for line in reasons]
    assert lines[0] == "0:01.90 only now: the end of the turn is decided (longest)"
