"""The rules of the sequencer, one by one."""

import weakref

import pytest

from parley.sequencer.merge import Committed, Sequencer, SequencerSettings
from parley.sequencer.watermark import StreamState, UnknownStreamError

LATENCY_US = {"text": 0, "stt": 80_000, "vision": 200_000}


def sequencer(*streams: str, **settings: int) -> Sequencer[str]:
    """Return a sequencer whose streams joined at 0 and do not stall unless the test says so."""
    made: Sequencer[str] = Sequencer(SequencerSettings(**{"stall_us": 60_000_000, **settings}))
    for name in streams:
        made.join(name, latency_us=LATENCY_US[name], at_us=0)
    return made


def beat(made: Sequencer[str], at_us: int, *streams: str) -> list[Committed[str]]:
    """Send heartbeats of these streams, and advance the time."""
    for name in streams:
        made.heartbeat(name, at_us)
    return made.advance(at_us)


def payloads(committed: list[Committed[str]]) -> list[str]:
    return [one.payload for one in committed]


def test_simultaneous_events_come_out_together_although_they_arrive_120_ms_apart():
    made = sequencer("stt", "vision")
    made.report("stt", 1_080_000, "this is fine")
    assert beat(made, 1_100_000, "stt", "vision") == []
    made.report("vision", 1_200_000, "points at the fee")
    committed = beat(made, 1_210_000, "stt", "vision")
    assert payloads(committed) == ["this is fine", "points at the fee"]
    assert {one.event_us for one in committed} == {1_000_000}


def test_order_is_of_events_not_of_arrivals():
    made = sequencer("text", "vision")
    made.report("text", 1_100_000, "second")
    made.report("vision", 1_250_000, "first")
    assert payloads(beat(made, 1_300_000, "text", "vision")) == ["first", "second"]


def test_an_idle_stream_that_lives_does_not_freeze_the_timeline():
    made = sequencer("text", "vision")
    made.report("text", 1_000_000, "hello")
    assert beat(made, 1_199_999, "text", "vision") == []
    assert payloads(beat(made, 1_200_000, "text", "vision")) == ["hello"]


def test_the_only_stream_waits_for_nobody():
    made = sequencer("text")
    made.report("text", 1_000_000, "hello")
    assert payloads(made.advance(1_000_000)) == ["hello"]


def test_at_one_microsecond_the_stream_that_joined_first_comes_first_a_caller_who_reports_first():
    made = sequencer("vision", "text")
    made.report("text", 1_000_000, "typed")
    # Vision has passed the moment before: it may still report something about this one.
    made.heartbeat("vision", 1_200_000)
    assert made.advance(1_200_000) == []
    made.report("vision", 1_200_000, "seen")
    assert payloads(beat(made, 1_210_000, "vision", "text")) == ["seen", "typed"]


def test_at_one_microsecond_no_one_waits_for_a_stream_that_joined_later():
    made = sequencer("text", "vision")
    made.report("text", 1_000_000, "typed")
    assert payloads(beat(made, 1_200_000, "vision", "text")) == ["typed"]


def test_reports_of_one_stream_at_one_microsecond_keep_their_order():
    made = sequencer("stt")
    for word in ("this", "is", "fine"):
        made.report("stt", 1_080_000, word)
    assert payloads(made.advance(1_080_000)) == ["this", "is", "fine"]


def test_a_report_is_committed_on_its_deadline_with_all_that_happened_before_it():
    made = sequencer("text", "stt", "vision", deadline_us=300_000)
    made.report("text", 1_000_000, "typed")
    made.report("stt", 1_050_000, "said before")
    made.report("text", 1_100_000, "typed later")
    assert beat(made, 1_299_999, "text", "stt") == []
    assert payloads(beat(made, 1_300_000, "text", "stt")) == ["said before", "typed"]
    assert made.counts.overdue == 2


def test_a_deadline_counts_at_the_very_moment_that_was_committed_last():
    made = sequencer("text", "vision", "stt", deadline_us=300_000)
    made.report("text", 1_000_000, "typed")
    made.report("stt", 1_080_000, "said")
    # Vision stands at the moment of both: a report may still come between them.
    assert payloads(beat(made, 1_200_000, "text", "vision", "stt")) == ["typed"]
    assert beat(made, 1_379_999, "text", "stt") == []
    assert payloads(beat(made, 1_380_000, "text", "stt")) == ["said"]


def test_a_stalled_stream_holds_no_one_up_and_counts_again_when_it_is_back():
    made = sequencer("text", "vision", stall_us=400_000, deadline_us=10_000_000)
    made.report("text", 300_000, "one")
    assert beat(made, 400_000, "text") == []
    assert payloads(beat(made, 400_001, "text")) == ["one"]
    assert made.state("vision", 400_001) is StreamState.STALLED
    made.heartbeat("vision", 500_000)
    made.report("text", 510_000, "two")
    assert beat(made, 520_000, "text") == []
    assert made.state("vision", 520_000) is StreamState.ACTIVE


def test_what_a_stalled_stream_brings_later_is_kept_marked_and_behind():
    made = sequencer("text", "vision", stall_us=400_000)
    made.report("text", 1_000_000, "typed")
    assert payloads(beat(made, 1_000_000, "text")) == ["typed"]
    made.report("vision", 1_100_000, "seen before")
    (late,) = beat(made, 1_100_000, "text", "vision")
    assert (late.payload, late.late, late.seq, late.event_us) == ("seen before", True, 1, 900_000)
    assert made.counts.late == 1


def test_a_late_report_waits_for_nobody():
    made = sequencer("text", "vision", deadline_us=100_000)
    made.report("text", 1_000_000, "typed")
    assert payloads(beat(made, 1_100_000, "text", "vision")) == ["typed"]
    # The watermark stands at 950 ms, the frontier at 1 s.
    made.report("vision", 1_150_000, "seen at 950", event_us=950_000)
    made.report("vision", 1_150_000, "seen at 990", event_us=990_000)
    assert [one.late for one in made.advance(1_150_000)] == [True, True]


def test_a_stream_that_leaves_holds_no_one_up_and_what_it_said_keeps_its_place():
    made = sequencer("text", "vision")
    made.report("text", 1_000_000, "typed")
    made.report("vision", 1_100_000, "seen before")
    assert payloads(made.advance(1_100_000)) == ["seen before"]
    made.report("text", 1_100_000, "typed later")
    assert made.advance(1_100_000) == []
    made.leave("vision")
    assert payloads(made.advance(1_110_000)) == ["typed", "typed later"]


def test_what_a_stream_still_had_on_the_way_when_it_left_is_kept():
    made = sequencer("text", "vision")
    made.leave("vision")
    made.heartbeat("vision", 1_050_000)
    made.report("vision", 1_100_000, "seen")
    assert made.state("vision", 1_100_000) is StreamState.LEFT
    assert payloads(beat(made, 1_100_000, "text")) == ["seen"]


def test_a_stream_that_is_back_knows_what_it_said():
    made = sequencer("stt")
    made.report("stt", 1_080_000, "hello", identity="u1")
    made.leave("stt")
    made.join("stt", latency_us=50_000, at_us=1_090_000)
    made.report("stt", 1_100_000, "hello", identity="u1")
    made.report("stt", 1_100_000, "there", identity="u2")
    assert [(one.payload, one.event_us) for one in made.advance(1_100_000)] == [
        ("hello", 1_000_000),
        ("there", 1_050_000),
    ]
    assert made.counts.duplicates == 1


def test_a_revision_that_happened_later_has_a_later_place_and_deadline():
    made = sequencer("stt", "vision", deadline_us=300_000)
    made.report("stt", 1_080_000, "this", identity="u", final=False)
    made.report("stt", 1_180_000, "this is", identity="u", revision=1, final=False)
    made.report("stt", 1_280_000, "this is fine", identity="u", revision=2)
    assert beat(made, 1_570_000, "stt") == []
    (only,) = beat(made, 1_580_000, "stt")
    assert (only.payload, only.event_us, only.arrival_us, only.revision, only.final) == (
        "this is fine",
        1_200_000,
        1_280_000,
        2,
        True,
    )
    assert made.counts.superseded == 2


def test_a_revision_of_the_same_moment_keeps_place_and_deadline_of_what_waits():
    made = sequencer("stt", "vision", deadline_us=300_000)
    made.report("stt", 1_080_000, "this", event_us=1_000_000, identity="u", final=False)
    made.report("stt", 1_280_000, "these", event_us=1_000_000, identity="u", revision=1)
    made.report("stt", 1_280_000, "between", event_us=1_100_000)
    (only,) = beat(made, 1_380_000, "stt")
    assert (only.payload, only.event_us, only.arrival_us) == ("these", 1_000_000, 1_280_000)


def test_a_revision_of_what_is_committed_is_committed_and_says_of_what():
    made = sequencer("stt")
    made.report("stt", 1_080_000, "before")
    made.report("stt", 1_090_000, "this", identity="u", final=False)
    assert [(one.seq, one.statement) for one in made.advance(1_090_000)] == [(0, 0), (1, 1)]
    made.report("stt", 1_180_000, "this is", identity="u", revision=1, final=False)
    made.report("stt", 1_180_000, "between")
    made.report("stt", 1_190_000, "this is fine", identity="u", revision=2)
    assert [(one.payload, one.statement, one.late) for one in made.advance(1_190_000)] == [
        ("between", 2, False),
        ("this is fine", 1, False),
    ]
    made.report("stt", 1_300_000, "more", identity="u", revision=3)
    assert made.advance(1_300_000) == []
    assert made.counts.after_final == 1


def test_the_last_partial_once_more_as_final_is_news():
    made = sequencer("stt")
    made.report("stt", 1_080_000, "fine", identity="u", revision=4, final=False)
    made.advance(1_080_000)
    made.report("stt", 1_180_000, "fine", identity="u", revision=4, final=False)
    made.report("stt", 1_180_000, "fine", identity="u", revision=4)
    made.report("stt", 1_180_000, "fine", identity="u", revision=4)
    made.report("stt", 1_180_000, "fin", identity="u", revision=3)
    assert [(one.statement, one.final) for one in made.advance(1_180_000)] == [(0, True)]
    assert (made.counts.duplicates, made.counts.outdated) == (2, 1)


def test_the_same_identity_of_another_stream_is_another_statement():
    made = sequencer("stt", "text")
    made.report("stt", 1_080_000, "said", identity="1")
    made.report("text", 1_100_000, "typed", identity="1")
    assert payloads(beat(made, 1_200_000, "stt", "text")) == ["said", "typed"]


def test_only_the_last_touched_identities_are_known():
    made = sequencer("stt", remembered=2)
    made.report("stt", 100_000, "a", identity="a", final=False)
    made.report("stt", 100_000, "b", identity="b")
    made.report("stt", 100_000, "a2", identity="a", revision=1)
    made.report("stt", 100_000, "c", identity="c")
    for known in ("a", "c"):
        made.report("stt", 100_000, "again", identity=known)
    assert payloads(made.advance(100_000)) == ["a2", "b", "c"]
    made.report("stt", 100_000, "again", identity="b")
    assert payloads(made.advance(100_000)) == ["again"]


class Thing:
    """Payload that can be weakly referenced."""


@pytest.mark.parametrize("identity", [None, "u"])
def test_what_is_committed_is_not_held_any_longer(identity: str | None):
    made: Sequencer[Thing] = Sequencer()
    made.join("text", latency_us=0, at_us=0)
    thing = Thing()
    held = weakref.ref(thing)
    made.report("text", 10, thing, identity=identity)
    del thing
    assert [one.payload for one in made.advance(10)] == [held()]
    made.advance(20)
    assert held() is None


def test_when_too_many_wait_the_earliest_go():
    made = sequencer("text", "vision", max_waiting=3)
    for number in range(5):
        made.report("text", 1_000_000 + number, str(number))
    assert payloads(made.advance(1_000_005)) == ["0", "1"]
    assert (made.waiting, made.counts.crowded) == (3, 2)


def test_a_report_from_the_future_happened_when_it_arrived():
    made = sequencer("text", "stt")
    made.report("stt", 1_000_000, "wrong clock", event_us=9_000_000)
    (only,) = beat(made, 1_080_000, "stt", "text")
    assert only.event_us == 1_000_000
    made.report("text", 1_090_000, "typed")
    assert [one.late for one in beat(made, 1_170_000, "stt", "text")] == [False]


def test_a_report_that_knows_its_time_promises_nothing_about_its_next_one():
    made = sequencer("stt", "vision")
    made.report("stt", 1_000_000, "quick", event_us=1_000_000)
    made.heartbeat("vision", 1_200_000)
    assert made.advance(1_010_000) == []
    made.report("stt", 1_020_000, "older", event_us=950_000)
    assert payloads(beat(made, 1_200_000, "stt")) == ["older", "quick"]


def test_a_stream_that_works_on_something_older_is_waited_for_though_it_lives():
    made = sequencer("stt", "vision")
    made.report("stt", 1_080_000, "fine")
    made.heartbeat("vision", 1_300_000, passed_us=900_000)
    assert beat(made, 1_300_000, "stt") == []
    assert made.state("vision", 1_300_000) is StreamState.ACTIVE
    made.heartbeat("vision", 1_310_000, passed_us=1_000_001)
    assert payloads(made.advance(1_310_000)) == ["fine"]


def test_learning_moves_the_next_report_and_not_what_waits():
    made = sequencer("stt", "vision")
    made.report("stt", 1_080_000, "before")
    assert made.learn("stt", 85_000) == made.latency_us("stt") == 85_000
    made.report("stt", 1_090_000, "after")
    committed = beat(made, 1_300_000, "stt", "vision")
    assert [one.event_us for one in committed] == [1_000_000, 1_005_000]


def test_a_stream_that_joins_in_the_middle_does_not_turn_back_what_was_committed():
    made = sequencer("text")
    made.report("text", 1_000_000, "one")
    first = made.advance(1_000_000)
    made.join("vision", latency_us=200_000, at_us=1_000_000)
    made.report("text", 1_010_000, "two")
    assert made.advance(1_010_000) == []
    made.report("vision", 1_020_000, "seen")
    assert [(one.seq, one.payload, one.late) for one in first + beat(made, 1_220_000, "text", "vision")] == [
        (0, "one", False),
        (1, "seen", True),
        (2, "two", False),
    ]


def test_everything_is_committed_up_to_where_some_streams_have_passed():
    made = sequencer("text", "stt", "vision")
    for name in LATENCY_US:
        made.heartbeat(name, 1_200_000)
    assert made.passed_us(["vision"], 1_200_000) == 1_000_000
    # The words' own stream still holds the order back: tags after its moment are not committed.
    made.heartbeat("vision", 1_500_000)
    assert made.passed_us(["vision"], 1_500_000) == 1_120_000
    assert made.passed_us(["prosody"], 1_500_000) is None
    made.report("text", 1_250_000, "typed")
    made.advance(1_750_000)
    assert made.passed_us(["vision"], 1_500_000) == 1_250_000


@pytest.mark.parametrize(
    "call",
    [
        lambda made: made.report("nobody", 0, "x"),
        lambda made: made.heartbeat("nobody", 0),
        lambda made: made.learn("nobody", 0),
        lambda made: made.latency_us("nobody"),
    ],
)
def test_a_stream_that_never_joined_is_refused(call):
    with pytest.raises(UnknownStreamError):
        call(sequencer("text"))
