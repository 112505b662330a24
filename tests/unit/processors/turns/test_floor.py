"""Whether the bot holds the floor."""

from core.call_events import Wait, WaitBegan, WaitEnded
from processors.turns.floor import Floor
from runtime.event_stream import CallEvents


def test_an_answer_that_is_owed_is_on_its_way_and_no_reply_yet():
    events = CallEvents()
    floor = Floor(events)
    assert not floor.is_answering()
    events.publish(WaitBegan(0, Wait.ANSWER))
    assert floor.is_answering() and not floor.holds_reply()
    events.publish(WaitEnded(0, Wait.ANSWER))
    assert not floor.is_answering()


def test_who_waits_for_a_person_or_a_line_waits_for_no_answer():
    events = CallEvents()
    floor = Floor(events)
    events.publish(WaitBegan(0, Wait.PERSON))
    assert not floor.is_answering()
    events.publish(WaitBegan(0, Wait.ANSWER))
    events.publish(WaitEnded(0, Wait.PERSON))
    assert floor.is_answering()


def test_any_stage_that_holds_a_reply_holds_the_floor_until_the_call_is_over():
    floor, holds = Floor(CallEvents()), [False, False]
    floor.add_holder(lambda: holds[0])
    floor.add_holder(lambda: holds[1])
    assert not floor.holds_reply()
    holds[1] = True
    assert floor.holds_reply() and floor.is_answering()
    floor.close()
    assert not floor.holds_reply()
