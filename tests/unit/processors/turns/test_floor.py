"""Floor holding by the bot."""

from parley.core.call_events import CallEvent, FloorLeft, FloorTaken, Wait, WaitBegan, WaitEnded
from parley.processors.turns.floor import Floor, FloorHolder
from parley.runtime.event_stream import CallEvents


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


async def test_a_stage_that_holds_a_reply_holds_the_floor_and_says_so_once():
    events, changes = CallEvents(), list[CallEvent]()
    floor, holder = Floor(events), FloorHolder(events)
    for kind in (FloorTaken, FloorLeft):
        events.subscribe(kind, changes.append)
    holder.hold(False)
    assert not floor.holds_reply()
    holder.hold(True)
    holder.hold(True)
    assert floor.holds_reply() and floor.is_answering()
    holder.hold(False)
    assert not floor.holds_reply() and not floor.is_answering()
    assert [type(change) for change in changes] == [FloorTaken, FloorLeft]
