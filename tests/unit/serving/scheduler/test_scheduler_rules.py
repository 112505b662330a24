"""The scheduler's indexes against its rules in their plainest form, by random operations on both."""

import random
from collections import Counter
from typing import Any

import pytest

from parley.models.llm.kv.segments import CacheHandle
from parley.serving.scheduler.arrival_order import CHUNK, ArrivalOrder
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    LeaseGranted,
    LeaseLost,
    RequestRefused,
    Task,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)
from tests.unit.serving.scheduler.plain_scheduler import PlainScheduler

NAMES = ("u", "v", "w", "x", "y", "z")


class Both:
    """The scheduler and its plain form, with the same random operations."""

    def __init__(self, seed: int, **settings: Any) -> None:
        chosen = SchedulerSettings(no_worker_ms=20_000, **settings)
        self.draw = random.Random(seed)
        self.indexed, self.plain = Scheduler(chosen), PlainScheduler(chosen)
        self.now_ms = 0
        self.number = 0
        self.waiting: list[str] = []
        self.running: dict[str, WorkerRequest] = {}
        self.wants: dict[str, WorkerRequest] = {}
        self.offers: dict[str, WorkerCapacity] = {}
        self.seen: Counter[str] = Counter()

    def call(self, name: str, *arguments: Any, **options: Any) -> None:
        mine: list[Effect] | None = getattr(self.indexed, name)(*arguments, **options)
        theirs: list[Effect] | None = getattr(self.plain, name)(*arguments, **options)
        assert mine == theirs, name
        for effect in mine or ():
            ticket = effect.ticket_id
            self.seen[type(effect).__name__] += 1
            if isinstance(effect, LeaseGranted):
                self.running[ticket] = self.wants[ticket]
            elif isinstance(effect, LeaseLost):
                del self.running[ticket]
            else:
                assert isinstance(effect, RequestRefused)
                self.seen[effect.reason] += 1

    def check(self) -> None:
        self.waiting = [request.want.ticket_id for request in self.plain.queue]
        places = self.indexed.places(self.now_ms)
        assert [place.ticket_id for place in places] == self.waiting
        assert self.indexed.next_deadline_ms() == self.plain.next_deadline_ms()
        if self.waiting:
            place = self.draw.choice(places)
            assert self.indexed.position(place.ticket_id) == place.position

    def step(self) -> None:
        self.now_ms += self.draw.choice((0, 0, 0, 1, 7, 50, 300, 2_000, 9_000))
        draw, now_ms = self.draw, self.now_ms
        ticket = draw.choice([*self.waiting, *self.running, "unknown"])
        name = draw.choice(NAMES)
        operation = draw.choice(OPERATIONS)
        self.seen[operation] += 1
        if operation == "ask":
            self.ask()
        elif operation == "heartbeat":
            for each in self.waiting:
                if draw.random() < 0.9:
                    self.call("heartbeat", each, now_ms)
        elif operation == "release":
            self.release(draw.choice([*self.running, "unknown"]))
        elif operation == "lease_rejected":
            self.running.pop(ticket, None)
            self.call(operation, ticket, now_ms, busy=draw.random() < 0.3)
        elif operation == "cancel":
            self.running.pop(ticket, None)
            self.call(operation, ticket, now_ms)
        elif operation in ("evict", "move"):
            self.call(operation, ticket, now_ms)
        elif operation == "worker_up":
            self.worker_up(name)
        elif operation == "worker_stands":
            self.call(operation, name, draw.choice((WorkerState.READY, *WorkerState)), now_ms)
        elif operation == "worker_down":
            self.call(operation, name, now_ms)
        elif operation == "left":
            self.call(operation, f"session {draw.randrange(20)}")
        else:
            due_ms = self.indexed.next_deadline_ms()
            self.now_ms = max(now_ms, due_ms or 0)
            self.call(operation, self.now_ms)
        self.check()

    def ask(self) -> None:
        draw = self.draw
        self.number += 1
        session = draw.randrange(20)
        chain = tuple((f"{session}.{turn}", 17 * turn + session) for turn in range(1, draw.randrange(2, 6)))
        worker = draw.choice(NAMES)
        incarnation = self.offers[worker].incarnation if worker in self.offers else "none"
        handle = CacheHandle(worker, incarnation, chain[-1][0], chain[-1][1])
        want = WorkerRequest(
            f"{self.number}",
            f"session {session}",
            draw.choice((Task.CHAT, Task.CHAT, Task.CHAT, Task.HALF_DUPLEX)),
            kv_bytes=draw.choice((0, 10, 40, 60, 120)),
            digests=chain if draw.random() < 0.7 else (),
            handle=handle if draw.random() < 0.6 else None,
        )
        self.wants[want.ticket_id] = want
        self.call("ask", want, self.now_ms)

    def release(self, ticket: str) -> None:
        want = self.running.pop(ticket, None)
        kept = () if want is None or self.draw.random() < 0.2 else (want.digests or ((f"of {ticket}", 33),))
        self.call("release", ticket, self.now_ms, well=self.draw.random() < 0.5, kept=kept)

    def worker_up(self, name: str) -> None:
        known = self.offers.get(name)
        is_same = known is not None and self.draw.random() < 0.3
        incarnation = known.incarnation if is_same and known is not None else f"i{self.now_ms}.{self.number}"
        slots, kv_bytes = self.draw.choice((1, 1, 2, 4)), self.draw.choice((None, 50, 80, 150))
        self.offers[name] = WorkerCapacity(name, incarnation, slots, kv_bytes)
        self.call("worker_up", self.offers[name], self.now_ms)


OPERATIONS = (
    *("ask",) * 5,
    *("release",) * 4,
    *("heartbeat", "worker_up", "worker_stands") * 2,
    *("lease_rejected", "cancel", "evict", "move", "worker_down", "left", "on_deadline"),
)


@pytest.mark.parametrize("seed", range(6))
def test_the_indexes_decide_as_the_plain_rules_in_random_operations(seed: int) -> None:
    bounds: dict[str, Any] = {"silent_ms": 5_000} if seed % 2 else {"suspect_ms": 0, "kept_caches": 2}
    both = Both(seed, max_waiting=10, **bounds)
    for _ in range(6_000):
        both.step()
    assert min(both.seen[each] for each in OPERATIONS) > 100
    assert both.seen["LeaseGranted"] > 500 and both.seen["LeaseLost"] > 100
    assert {"queue_full", "too_large"} <= both.seen.keys()


def test_an_order_counts_what_is_before_as_a_sorted_list_does() -> None:
    draw = random.Random(1)
    order, plain = ArrivalOrder(), set[int]()
    for step in range(20_000):
        number = draw.randrange(4 * CHUNK)
        # First it grows, then it shrinks to nothing.
        if draw.random() < (0.7 if step < 12_000 else 0.2):
            order.add(number)
            plain.add(number)
        else:
            number = draw.choice((number, *sorted(plain)[:1]))
            order.discard(number)
            plain.discard(number)
        if step % 50 == 0:
            assert list(order) == sorted(plain)
        assert len(order) == len(plain) and order.first == min(plain, default=None)
        assert order.before(number) == sum(each < number for each in plain)
        assert (number in order) is (number in plain)
