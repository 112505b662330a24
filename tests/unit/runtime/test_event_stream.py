"""Order, failures and bounds of the event stream of a call."""

import asyncio
import gc
import weakref
from dataclasses import dataclass

import pytest
from loguru import logger

from parley.core.call_events import CallEvent
from parley.runtime.event_stream import MOST_NESTED, CallEvents, EventQueue, EventScope, EventStormError
from tests import virtual_time


@dataclass(frozen=True, slots=True)
class Rang(CallEvent):
    """Event of a bell."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Answered(CallEvent):
    """Event of a door that was answered."""


class StoppedClock:
    """A clock that stands still."""

    def now_us(self) -> int:
        return 7_000

    def now_ms(self) -> int:
        return 7

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        """Return at once."""


def stream() -> CallEvents:
    return CallEvents(StoppedClock())


def test_events_are_stamped_on_the_clock_of_the_stream():
    assert stream().now_ms() == 7


def test_subscribers_are_called_at_once_in_the_order_in_which_they_subscribed():
    events, seen = stream(), list[str]()
    events.subscribe(Rang, lambda event: seen.append(f"first {event.times}"))
    events.subscribe(Rang, lambda event: seen.append(f"second {event.times}"))
    events.publish(Rang(0, 1))
    assert seen == ["first 1", "second 1"]
    events.publish(Rang(0, 2))
    assert seen == ["first 1", "second 1", "first 2", "second 2"]


def test_only_events_of_the_class_are_delivered():
    events, seen = stream(), list[CallEvent]()
    events.subscribe(Answered, seen.append)
    events.publish(Rang(0))
    events.publish(Answered(1))
    assert seen == [Answered(1)]


def test_who_subscribes_to_the_base_class_receives_everything_in_its_place():
    events, seen = stream(), list[tuple[str, CallEvent]]()
    events.subscribe(Rang, lambda event: seen.append(("before", event)))
    events.subscribe(CallEvent, lambda event: seen.append(("all", event)))
    events.subscribe(Rang, lambda event: seen.append(("after", event)))
    events.publish(Rang(0))
    events.publish(Answered(0))
    assert seen == [("before", Rang(0)), ("all", Rang(0)), ("after", Rang(0)), ("all", Answered(0))]


def test_who_subscribes_after_a_class_was_published_receives_the_next_event():
    events, seen = stream(), list[CallEvent]()
    events.publish(Rang(0, 1))
    events.subscribe(Rang, seen.append)
    events.publish(Rang(0, 2))
    assert seen == [Rang(0, 2)]


def test_an_event_that_is_published_in_a_delivery_is_delivered_after_it():
    events, seen = stream(), list[str]()

    def answer(_event: Rang) -> None:
        events.publish(Answered(0))
        seen.append("answering")

    events.subscribe(Rang, answer)
    events.subscribe(Answered, lambda _event: seen.append("answered"))
    events.subscribe(Rang, lambda _event: seen.append("rang"))
    events.publish(Rang(0))
    assert seen == ["answering", "rang", "answered"]


def test_events_that_are_published_in_a_delivery_keep_their_order():
    events, seen = stream(), list[int]()

    def echo(event: Rang) -> None:
        if event.times < 10:
            events.publish(Rang(0, event.times * 10))
            events.publish(Rang(0, event.times * 10 + 1))

    events.subscribe(Rang, echo)
    events.subscribe(Rang, lambda event: seen.append(event.times))
    events.publish(Rang(0, 1))
    events.publish(Rang(0, 2))
    assert seen == [1, 10, 11, 2, 20, 21]


def test_a_subscriber_that_fails_keeps_nothing_from_the_others_and_is_reported():
    events, seen, lines = stream(), list[CallEvent](), list[str]()

    def fail(_event: Rang) -> None:
        raise ValueError("no door")

    sink = logger.add(lines.append, level="ERROR", format="{message}")
    try:
        events.subscribe(Rang, fail)
        events.subscribe(Rang, seen.append)
        events.publish(Rang(0, 1))
        events.publish(Rang(0, 2))
    finally:
        logger.remove(sink)
    assert seen == [Rang(0, 1), Rang(0, 2)]
    assert events.failures == 2
    assert "fail" in lines[0] and "Rang" in lines[0] and "ValueError" in lines[0]


def test_what_ends_the_program_is_not_held_back_and_the_stream_works_on():
    events, seen = stream(), list[CallEvent]()

    def leave(event: Rang) -> None:
        if event.times == 1:
            events.publish(Answered(0))
            raise KeyboardInterrupt

    events.subscribe(Rang, leave)
    events.subscribe(CallEvent, seen.append)
    with pytest.raises(KeyboardInterrupt):
        events.publish(Rang(0, 1))
    events.publish(Rang(0, 2))
    assert seen == [Rang(0, 2)]


def test_subscribers_that_answer_each_other_without_end_are_stopped():
    events, refused = stream(), list[str]()

    def double(event: Rang) -> None:
        for _ in range(2):
            try:
                events.publish(Rang(0, event.times + 1))
            except EventStormError as error:
                refused.append(str(error))

    def stop(event: Rang) -> None:
        if refused:
            # Waiting events are delivered; no event is added any more.
            events.close()

    events.subscribe(Rang, double)
    events.subscribe(Rang, stop)
    events.publish(Rang(0))
    assert refused and f"{MOST_NESTED} events are waiting" in refused[0]
    events.publish(Rang(0))
    assert events.failures == 0


def test_a_closed_stream_holds_and_calls_nobody():
    events, seen = stream(), list[CallEvent]()
    events.subscribe(Rang, seen.append)
    events.publish(Rang(0, 1))
    events.close()
    events.publish(Rang(0, 2))
    assert seen == [Rang(0, 1)]


def test_a_queue_gives_the_events_of_its_classes_in_order_to_a_task():
    async def scenario() -> list[CallEvent]:
        events = CallEvents()
        queue = events.open_queue(Rang, Answered, size=8)
        events.publish(Rang(1))
        events.publish(Answered(2))
        events.publish(CallEvent(3))
        events.publish(Rang(4))
        return [await queue.get() for _ in range(3)]

    assert virtual_time.run(scenario()) == [Rang(1), Answered(2), Rang(4)]


def test_a_reader_waits_for_the_next_event():
    async def scenario() -> list[CallEvent]:
        events, read = CallEvents(), list[CallEvent]()
        queue = events.open_queue(Rang, size=8)

        async def reader() -> None:
            async for event in queue:
                read.append(event)

        task = asyncio.create_task(reader())
        await asyncio.sleep(1)
        assert read == []
        events.publish(Rang(5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return read

    assert virtual_time.run(scenario()) == [Rang(5)]


def test_a_full_queue_drops_the_oldest_and_counts_it():
    queue: EventQueue[Rang] = EventQueue(2)
    for times in range(5):
        queue.put(Rang(0, times))
    assert queue.dropped == 3

    async def scenario() -> list[int]:
        return [(await queue.get()).times for _ in range(2)]

    assert virtual_time.run(scenario()) == [3, 4]


def test_an_event_is_waited_for_until_its_deadline_and_not_after_it():
    async def scenario() -> tuple[CallEvent | None, CallEvent | None, float, int]:
        events, loop = CallEvents(), asyncio.get_running_loop()
        began_s = loop.time()
        loop.call_later(0.2, events.publish, Rang(0, 1))
        loop.call_later(0.3, events.publish, Rang(0, 2))
        found = await events.wait_for(Rang, within_ms=1_000, where=lambda event: event.times == 2)
        took_s = loop.time() - began_s
        missed = await events.wait_for(Answered, within_ms=500)
        return found, missed, round(took_s, 3), len(events._subscriptions)

    assert virtual_time.run(scenario()) == (Rang(0, 2), None, 0.3, 0)


def test_a_scope_is_a_part_of_the_stream_until_it_is_closed():
    whole = CallEvents()
    scope = EventScope(whole)
    in_scope, in_whole = list[Rang](), list[Rang]()
    scope.subscribe(Rang, in_scope.append)
    whole.subscribe(Rang, in_whole.append)
    whole.publish(Rang(1, 1))
    scope.publish(Rang(2, 2))
    assert in_scope == in_whole == [Rang(1, 1), Rang(2, 2)]
    scope.close()
    whole.publish(Rang(3, 3))
    scope.publish(Rang(4, 4))
    scope.subscribe(Rang, in_scope.append)
    whole.publish(Rang(5, 5))
    assert [event.times for event in in_scope] == [1, 2]
    assert [event.times for event in in_whole] == [1, 2, 3, 5]
    assert not scope.has_subscribers(Rang)


async def test_a_scope_waits_for_events_of_the_whole_stream_and_leaves_no_subscriber():
    whole = CallEvents()
    scope = EventScope(whole)
    waiting = asyncio.create_task(scope.wait_for(Rang, within_ms=1_000))
    await asyncio.sleep(0)
    whole.publish(Rang(1, 1))
    assert await waiting == Rang(1, 1)
    assert not whole.has_subscribers(Rang)


def test_a_stage_of_a_part_is_freed_with_its_call_without_a_collection():
    class Stage:
        def __init__(self, events: CallEvents) -> None:
            self._events = events
            events.subscribe(Rang, lambda _event: self._ring())

        def _ring(self) -> None:
            self._events.publish(Answered(self._events.now_ms()))

    whole = CallEvents()
    stage = weakref.ref(Stage(EventScope(whole)))
    gc.disable()
    try:
        assert stage() is not None
        whole.close()
        assert stage() is None
    finally:
        gc.enable()
