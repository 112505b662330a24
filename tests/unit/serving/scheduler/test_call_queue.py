"""The queue of callers for a line: order, bounds, callers who have left."""

import random

import pytest

from parley.core.errors import CapacityError
from parley.serving.scheduler.call_queue import CallQueue, CallQueueSettings


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def queue_of(clock: Clock, **settings: float) -> CallQueue:
    return CallQueue(CallQueueSettings(**settings), clock)


def test_callers_keep_the_order_in_which_they_came():
    queue = queue_of(Clock())
    for ticket in ("first", "second", "third"):
        queue.join(ticket)
    assert [queue.ahead_of(ticket) for ticket in ("first", "second", "third", "newcomer")] == [0, 1, 2, 3]
    queue.leave("first")
    assert [queue.ahead_of(ticket) for ticket in ("second", "third")] == [0, 1]


def test_callers_whom_the_recogniser_does_not_hear_are_not_ahead_of_one_in_what_it_can_hear():
    queue = queue_of(Clock())
    queue.join("typed", uses_recogniser=False)
    queue.join("spoken")
    assert queue.ahead_of("newcomer") == 2
    assert queue.ahead_of("newcomer", heard_only=True) == 1
    assert queue.ahead_of("spoken", heard_only=True) == 0


def test_a_full_queue_refuses_and_a_place_that_is_left_is_free():
    queue = queue_of(Clock(), most=1)
    queue.join("first")
    with pytest.raises(CapacityError, match="queue for a line is full"):
        queue.join("second")
    queue.leave("first")
    queue.join("second")


def test_no_one_is_after_a_caller_who_could_take_no_line():
    queue = queue_of(Clock(), most=2)
    queue.join("held back", is_held_back=True)
    queue.join("able")
    queue.join("held back too", is_held_back=True)
    with pytest.raises(CapacityError):
        queue.join("a third one", is_held_back=True)
    assert not queue.is_full
    assert [queue.ahead_of(each) for each in ("able", "held back too", "newcomer")] == [0, 2, 1]
    assert queue.ahead_of("held back too", for_line=True) == 1
    queue.hold_back("held back", False)
    assert [queue.ahead_of(each) for each in ("able", "newcomer")] == [1, 2]
    assert queue.is_full


def test_a_caller_who_is_polled_for_is_removed_when_the_poll_is_late():
    clock = Clock()
    queue = queue_of(clock)
    queue.join("telephone", expires_s=8)
    queue.join("browser")
    clock.now_s = 8
    queue.refresh("telephone", 16)
    clock.now_s = 16
    assert queue.ahead_of("browser") == 1
    clock.now_s = 16.1
    assert queue.ahead_of("browser") == 0 and "telephone" not in queue


def test_a_caller_is_overdue_when_they_have_waited_as_long_as_one_may():
    clock = Clock()
    queue = queue_of(clock, longest_s=60)
    queue.join("first")
    clock.now_s = 59.9
    assert not queue.is_overdue("first")
    clock.now_s = 60
    assert queue.is_overdue("first") and not queue.is_overdue("newcomer")
    assert queue.leave("first") == 60
    assert queue.leave("first") is None


def test_counts_are_those_of_a_list_in_random_operations():
    draw, clock = random.Random(3), Clock()
    queue = queue_of(clock, most=10_000)
    # In order of arrival, by ticket: uses the recogniser, time of expiry, is held back.
    plain: dict[str, list] = {}
    for step in range(4_000):
        clock.now_s += draw.choice((0, 0, 0.5))
        known = draw.choice([*plain, "unknown"])
        operation = draw.choice(("join", "join", "join", "leave", "hold", "refresh", "remove"))
        if operation == "join":
            facts = [draw.random() < 0.7, draw.choice((None, clock.now_s + 20)), draw.random() < 0.3]
            plain[f"{step}"] = facts
            queue.join(f"{step}", uses_recogniser=facts[0], expires_s=facts[1], is_held_back=facts[2])
        elif operation == "hold":
            is_held_back = draw.random() < 0.5
            queue.hold_back(known, is_held_back)
            plain.get(known, [0, 0, 0])[2] = is_held_back
        elif operation == "refresh":
            queue.refresh(known, clock.now_s + 30)
            plain.get(known, [0, 0, 0])[1] = clock.now_s + 30
        else:
            (queue.leave if operation == "leave" else queue.remove)(known)
            plain.pop(known, None)
        plain = {ticket: each for ticket, each in plain.items() if each[1] is None or each[1] >= clock.now_s}
        assert len(queue) == len(plain)
        heard_only, for_line = draw.random() < 0.5, draw.random() < 0.5
        ticket = draw.choice([*plain, "newcomer"])
        counts_all = ticket in plain and plain[ticket][2] and not for_line
        ahead = [*plain.values()][: [*plain, "newcomer"].index(ticket)]
        assert queue.ahead_of(ticket, heard_only=heard_only, for_line=for_line) == sum(
            (counts_all or not held_back) and (heard or not heard_only) for heard, _, held_back in ahead
        )
        assert [each.ticket for each in queue.callers()] == list(plain) or step % 20
