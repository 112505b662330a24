import pytest

from parley.sequencer.operations import (
    Advance,
    Heartbeat,
    Join,
    Journal,
    Learn,
    Operation,
    Report,
    StreamEnded,
    from_json,
    to_json,
)


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        (Join("stt", 80_000, 0), '["join","stt",80000,0]'),
        (Join("stt", 80_000, 0, 90_000), '["join","stt",80000,0,90000]'),
        (StreamEnded("stt"), '["leave","stt"]'),
        (Heartbeat("stt", 10), '["heartbeat","stt",10,null]'),
        (Heartbeat("stt", 10, 5), '["heartbeat","stt",10,5]'),
        (Learn("stt", 79_000), '["learn","stt",79000]'),
        (Report("stt", 10, "naïve"), '["report","stt",10,"naïve",null,null,0,true]'),
        (Report("stt", 10, "x", 9, "u1", 3, False), '["report","stt",10,"x",9,"u1",3,false]'),
        (Advance(20), '["advance",20]'),
    ],
)
def test_an_operation_is_one_line_and_comes_back(operation: Operation[str], line: str):
    assert to_json(operation, str) == line
    assert from_json(line, str) == operation


def test_a_payload_goes_through_the_functions_given():
    line = to_json(Report("stt", 10, (1, 2)), list)
    assert line == '["report","stt",10,[1,2],null,null,0,true]'
    back = from_json(line, lambda payload: tuple(payload) if isinstance(payload, list) else ())
    assert back == Report("stt", 10, (1, 2))


@pytest.mark.parametrize(
    "line", ["{}", "[]", "3", '["dance",1]', '["advance"]', '["join","stt"]', "[[1]]", "no"]
)
def test_a_line_that_is_no_operation_is_refused(line: str):
    with pytest.raises(ValueError):
        from_json(line, str)


def test_a_journal_stores_of_an_idle_stretch_nothing():
    journal: Journal[str] = Journal()
    for now_us in range(0, 1_000, 10):
        assert journal.record(Heartbeat("stt", now_us)) == []
        assert journal.record(Advance(now_us)) == []


def test_a_journal_stores_the_newest_heartbeats_before_an_advance_that_gave_something():
    journal: Journal[str] = Journal()
    report = Report("text", 15, "hello")
    for now_us in (10, 20):
        journal.record(Heartbeat("stt", now_us))
        journal.record(Heartbeat("vision", now_us, now_us - 7))
        journal.record(Heartbeat("vision", now_us - 1))
    assert journal.record(report) == [report]
    assert journal.record(Advance(21), yielded=True) == [
        Heartbeat("stt", 20),
        Heartbeat("vision", 20, 13),
        Heartbeat("vision", 19),
        Advance(21),
    ]
    assert journal.record(Advance(22), yielded=True) == [Advance(22)]


def test_a_journal_keeps_the_most_that_heartbeats_say_in_whatever_order_they_come():
    journal: Journal[str] = Journal()
    for at_us, passed_us in ((10, 5), (30, 4), (20, 9), (25, 7)):
        journal.record(Heartbeat("stt", at_us, passed_us))
        journal.record(Heartbeat("stt", at_us))
    assert journal.record(Advance(31), yielded=True) == [
        Heartbeat("stt", 30, 9),
        Heartbeat("stt", 30),
        Advance(31),
    ]


def test_a_journal_keeps_the_heartbeats_that_another_latency_would_read_differently():
    journal: Journal[str] = Journal()
    journal.record(Heartbeat("stt", 10))
    journal.record(Heartbeat("vision", 10))
    assert journal.record(Learn("stt", 5)) == [Heartbeat("stt", 10), Learn("stt", 5)]
    assert journal.record(Join("vision", 5, 11)) == [Heartbeat("vision", 10), Join("vision", 5, 11)]
    journal.record(Heartbeat("stt", 12))
    assert journal.record(StreamEnded("diar")) == [Heartbeat("stt", 12), StreamEnded("diar")]
