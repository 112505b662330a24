"""Scripted turns, and calls that play them on virtual time through the perception of a call."""

from dataclasses import replace

import pytest

from parley.evals.perception import fusion, streams
from parley.evals.perception.scripted import VISION_MS, perform, reports

THINGS = {"lamp": "the lamp", "desk": "the desk", "rug": "the rug"}


def pointed_at(performance, at_ms):
    return next((each.what for each in performance.pointing if each.start_ms <= at_ms < each.end_ms), None)


@pytest.mark.parametrize("seed", range(5))
def test_a_hand_is_at_its_thing_in_the_middle_of_the_word(seed: int):
    turn = perform("not {lamp:this one} but {desk:this one}", THINGS, seed, comes_from="rug", goes_to="rug")
    assert turn.text == "not this one but this one"
    assert pointed_at(turn, 0) == pointed_at(turn, turn.end_ms + 500) == "the rug"
    for first, thing in ((1, "the lamp"), (4, "the desk")):
        middle_ms = (turn.words[first].start_ms + turn.words[first + 1].end_ms) // 2
        assert pointed_at(turn, middle_ms) == thing


def test_people_and_voices_have_their_stretches():
    turn = perform("a: keep it / b: {!:that is fine}", THINGS, 1)
    assert [each.what for each in turn.voices] == ["speaker a", "speaker b"]
    [tense] = turn.tense
    assert (tense.start_ms, tense.end_ms) == (turn.words[2].start_ms, turn.words[4].end_ms)
    assert turn.voices[0].end_ms < turn.voices[1].start_ms


def test_reports_come_in_order_of_arrival_and_know_when_it_happened():
    turn = perform("what is {lamp:this}", THINGS, 1)
    found = reports(turn, 1)
    assert [each.arrival_ms for each in found] == sorted(each.arrival_ms for each in found)
    seen = next(each for each in found if each.stream == "vision")
    assert 150 <= seen.arrival_ms - seen.event_ms <= VISION_MS + 100
    moved = seen.as_arrived()
    assert moved.event_ms == seen.arrival_ms
    assert moved.payload.start_us - seen.payload.start_us == (seen.arrival_ms - seen.event_ms) * 1000


def test_an_answer_needs_its_words_and_none_of_the_others():
    turn = fusion.ScriptedTurn("moving", "", "By phone", forbids="letter")
    assert turn.is_right("You cancel it by phone.")
    assert not turn.is_right("You cancel it by phone, or by a letter.")
    assert not turn.is_right("I don't know.")


def test_both_sets_have_other_things_and_other_words():
    (tuning, of_tuning), (report, of_report) = fusion.read_set("tuning"), fusion.read_set("report")
    assert not set(of_tuning.values()) & set(of_report.values())
    pointing = [{turn.text for turn in turns if turn.comes_from} for turns in (tuning, report)]
    assert not pointing[0] & pointing[1]


def test_event_time_answers_what_words_and_arrival_order_do_not():
    found = fusion.measure(fusion.parser().parse_args(["--set", "tuning", "--repeats", "1"]))
    right = found["right_percent"]
    assert right["event time"]["all"] >= 90
    assert right["arrival order"]["moving"] <= 75
    assert right["words alone"]["moving"] <= 30
    assert "| event time |" in fusion.table(found)


def test_three_streams_are_placed_as_they_happened():
    arguments = streams.parser().parse_args(["--minutes", "1", "--seed", "7"])
    found = streams.measure(arguments)
    assert found["events"] > 150
    assert (found["misplaced"], found["late"]) == (0, 0)
    assert found["report_to_commit_ms"]["p95"] <= 50
    assert found["turn_waited_ms"]["p95"] <= 5
    assert "| misplaced in the timeline | 0 |" in streams.table(found)


def test_a_wrong_place_is_counted(tmp_path):
    call = streams.virtual_time.run(streams.play(tmp_path, 0.2, 1))
    first, second, *rest = [event for event in call.committed if event.source == "vision"]
    others = [event for event in call.committed if event.source != "vision"]
    assert streams.misplaced(call) == 0
    assert streams.misplaced(replace(call, committed=[second, first, *rest, *others])) > 0
    assert streams.misplaced(replace(call, committed=call.committed[1:])) == 1
