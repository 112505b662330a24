"""Assignment of queued requests to workers; the tests set the time."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from parley.serving.scheduler.eta import Eta, EtaSettings
from parley.serving.scheduler.request_queue import Waiter
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import (
    CacheHandle,
    Effect,
    Lease,
    LeaseGranted,
    LeaseLost,
    RefusalReason,
    RequestRefused,
    Task,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)
from parley.serving.scheduler.worker_index import Runs


def want(ticket: str, task: Task = Task.CHAT, **more: object) -> WorkerRequest:
    return WorkerRequest(ticket, f"session of {ticket}", task, **more)  # type: ignore[arg-type]


def pool(*workers: str, slots: int = 1, kv_bytes: int | None = None, **settings: object) -> Scheduler:
    scheduler = Scheduler(SchedulerSettings.model_validate(settings))
    for worker in workers:
        scheduler.worker_up(WorkerCapacity(worker, "1", slots, kv_bytes), 0)
    return scheduler


def granted(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(each.ticket_id, each.lease.worker) for each in effects if isinstance(each, LeaseGranted)]


def refused(effects: list[Effect]) -> list[tuple[str, RefusalReason]]:
    return [(each.ticket_id, each.reason) for each in effects if isinstance(each, RequestRefused)]


def test_a_free_worker_is_granted_at_once_and_carries_the_epoch_of_the_session() -> None:
    [effect] = pool("w").ask(want("a", epoch=7), 5)
    assert isinstance(effect, LeaseGranted)
    assert (effect.lease.worker, effect.lease.incarnation, effect.lease.epoch) == ("w", "1", 7)


def test_who_came_first_is_served_first() -> None:
    scheduler = pool("w")
    assert granted(scheduler.ask(want("a"), 0)) == [("a", "w")]
    for ticket in "bcd":
        assert scheduler.ask(want(ticket), 1) == []
    assert [(place.ticket_id, place.position) for place in scheduler.places(2)] == [
        ("b", 1),
        ("c", 2),
        ("d", 3),
    ]
    assert granted(scheduler.release("a", 3, well=True)) == [("b", "w")]
    scheduler.cancel("c", 4)
    assert granted(scheduler.cancel("b", 5)) == [("d", "w")]


def test_a_full_queue_is_refused_and_the_worker_is_not() -> None:
    scheduler = pool("w", max_waiting=1)
    scheduler.ask(want("a"), 0)
    scheduler.ask(want("b"), 0)
    [effect] = scheduler.ask(want("c"), 0)
    assert effect == RequestRefused("c", RefusalReason.QUEUE_FULL, 1)
    assert granted(pool("w", max_waiting=0).ask(want("a"), 0))


def test_a_ticket_is_used_once() -> None:
    scheduler = pool("w")
    for ticket in "ab":
        scheduler.ask(want(ticket), 0)
        with pytest.raises(ValueError, match="in use"):
            scheduler.ask(want(ticket), 0)


def test_an_operator_throws_out_who_waits_and_no_one_who_runs() -> None:
    scheduler = pool("w")
    scheduler.ask(want("a"), 0)
    scheduler.ask(want("b"), 0)
    assert scheduler.evict("a", 1) == []
    assert refused(scheduler.evict("b", 1)) == [("b", RefusalReason.CANCELLED)]
    assert scheduler.waiting == 0


def test_who_waits_and_is_not_heard_of_has_left() -> None:
    scheduler = pool("w", silent_ms=1_000)
    for ticket in "abc":
        scheduler.ask(want(ticket), 0)
    scheduler.heartbeat("c", 600)
    assert scheduler.next_deadline_ms() == 1_000
    assert refused(scheduler.on_deadline(1_000)) == [("b", RefusalReason.LEFT)]
    assert scheduler.next_deadline_ms() == 1_600


# Workers that fail.


@pytest.mark.parametrize("standing", [WorkerState.LOADING, WorkerState.DRAINING, WorkerState.SUSPECT])
def test_only_a_worker_that_is_ready_is_granted(standing: WorkerState) -> None:
    scheduler = pool()
    scheduler.worker_up(WorkerCapacity("w", "1"), 0, standing=standing)
    assert scheduler.ask(want("a"), 0) == []
    assert granted(scheduler.worker_stands("w", WorkerState.READY, 1)) == [("a", "w")]


def test_what_a_dead_worker_had_waits_at_the_head_in_the_order_in_which_it_asked() -> None:
    scheduler = pool("v", "w")
    for ticket in "abcd":
        scheduler.ask(want(ticket), 0)
    assert [type(each) for each in scheduler.worker_down("w", 1)] == [LeaseLost]
    assert [type(each) for each in scheduler.worker_down("v", 2)] == [LeaseLost]
    assert [place.ticket_id for place in scheduler.places(3)] == ["a", "b", "c", "d"]
    assert granted(scheduler.worker_up(WorkerCapacity("x", "1", slots=3), 4)) == [
        ("a", "x"),
        ("b", "x"),
        ("c", "x"),
    ]


def test_a_conversation_goes_on_at_once_where_another_worker_is_free() -> None:
    scheduler = pool("v", "w")
    scheduler.ask(want("a"), 0)
    lost, goes_on = scheduler.worker_down("v", 1)
    assert isinstance(lost, LeaseLost) and isinstance(goes_on, LeaseGranted)
    assert goes_on.lease.worker == "w"


def test_a_worker_that_came_again_is_another_one() -> None:
    scheduler = pool("w")
    scheduler.ask(want("a"), 0)
    lost, goes_on = scheduler.worker_up(WorkerCapacity("w", "2"), 1)
    assert isinstance(lost, LeaseLost) and lost.lease.incarnation == "1"
    assert isinstance(goes_on, LeaseGranted) and goes_on.lease.incarnation == "2"


def test_a_worker_that_someone_else_has_is_suspect_until_it_says_that_it_is_ready() -> None:
    scheduler = pool("v", "w")
    scheduler.ask(want("a"), 0)
    assert granted(scheduler.lease_rejected("a", 1, busy=True)) == [("a", "w")]
    assert scheduler.ask(want("b"), 2) == []
    assert granted(scheduler.worker_stands("v", WorkerState.READY, 3)) == [("b", "v")]


def test_a_worker_that_fails_someone_gets_no_one_for_a_while_whatever_it_says() -> None:
    scheduler = pool("w", suspect_ms=1_000)
    scheduler.ask(want("a"), 0)
    for failed_ms, trusted_ms in ((0, 1_000), (1_000, 3_000), (3_000, 7_000)):
        assert scheduler.lease_rejected("a", failed_ms) == []
        assert scheduler.worker_stands("w", WorkerState.READY, failed_ms + 1) == []
        assert scheduler.next_deadline_ms() == trusted_ms
        assert granted(scheduler.on_deadline(trusted_ms)) == [("a", "w")]
    # A worker whose conversation ends well is trusted again.
    scheduler.release("a", 8_000, well=True)
    scheduler.ask(want("b"), 8_000)
    scheduler.lease_rejected("b", 8_000)
    assert scheduler.next_deadline_ms() == 9_000


def test_a_conversation_is_moved_off_a_worker_that_hangs() -> None:
    scheduler = pool("w")
    scheduler.ask(want("a"), 0)
    scheduler.ask(want("b"), 0)
    [lost] = scheduler.move("a", 1)
    assert isinstance(lost, LeaseLost)
    assert [place.ticket_id for place in scheduler.places(1)] == ["a", "b"]


def test_without_a_worker_no_one_waits_for_ever() -> None:
    scheduler = pool(no_worker_ms=1_000)
    assert scheduler.ask(want("a"), 100) == []
    assert scheduler.places(100)[0].wait_ms is None
    assert scheduler.next_deadline_ms() == 1_100
    assert refused(scheduler.on_deadline(1_100)) == [("a", RefusalReason.NO_WORKER)]
    assert refused(scheduler.ask(want("b"), 1_200)) == [("b", RefusalReason.NO_WORKER)]
    scheduler.worker_up(WorkerCapacity("w", "1"), 1_300)
    assert granted(scheduler.ask(want("c"), 1_400))


def test_a_scheduler_that_stops_tells_those_who_wait_and_lets_the_others_go_on() -> None:
    scheduler = pool("w")
    for ticket in "abc":
        scheduler.ask(want(ticket), 0)
    assert refused(scheduler.stop()) == [("b", RefusalReason.STOPPING), ("c", RefusalReason.STOPPING)]
    assert refused(scheduler.ask(want("d"), 1)) == [("d", RefusalReason.STOPPING)]
    assert len(scheduler.running(2)) == 1


def test_strangers_change_nothing() -> None:
    scheduler = pool("w")
    version = scheduler.version
    assert (
        scheduler.release("x", 0, well=True)
        == scheduler.cancel("x", 0)
        == scheduler.lease_rejected("x", 0)
        == []
    )
    assert scheduler.evict("x", 0) == scheduler.move("x", 0) == scheduler.worker_down("x", 0) == []
    assert scheduler.worker_stands("x", WorkerState.READY, 0) == []
    scheduler.heartbeat("x", 0)
    assert scheduler.version == version


# Memory.


def test_memory_is_what_counts_where_a_worker_has_many_slots() -> None:
    scheduler = pool("w", slots=8, kv_bytes=100)
    assert granted(scheduler.ask(want("a", kv_bytes=60), 0))
    assert scheduler.ask(want("b", kv_bytes=60), 0) == []
    # It would fit, and does not overtake the earlier request.
    assert scheduler.ask(want("c", kv_bytes=10), 0) == []
    assert granted(scheduler.release("a", 1, well=True)) == [("b", "w"), ("c", "w")]


def test_what_no_worker_can_ever_hold_is_refused_with_what_there_is() -> None:
    assert pool("w", kv_bytes=100).ask(want("a", kv_bytes=101), 0) == [
        RequestRefused("a", RefusalReason.TOO_LARGE, 100)
    ]


def test_who_fits_nowhere_any_more_holds_no_one_up_and_is_told() -> None:
    scheduler = pool("small", kv_bytes=100, no_worker_ms=5_000)
    scheduler.worker_up(WorkerCapacity("large", "1", kv_bytes=150), 0)
    assert granted(scheduler.ask(want("a", kv_bytes=120), 0)) == [("a", "large")]
    assert scheduler.ask(want("b", kv_bytes=120), 0) == []
    scheduler.worker_down("large", 1_000)
    assert granted(scheduler.ask(want("c", kv_bytes=50), 1_000)) == [("c", "small")]
    # The client may come again.
    assert scheduler.on_deadline(5_999) == []
    assert refused(scheduler.on_deadline(6_000)) == [
        ("a", RefusalReason.TOO_LARGE),
        ("b", RefusalReason.TOO_LARGE),
    ]


def test_a_scheduler_that_stops_takes_no_one_back_in() -> None:
    scheduler = pool("w")
    scheduler.ask(want("a"), 0)
    scheduler.stop()
    lost, received = scheduler.worker_down("w", 1)
    assert isinstance(lost, LeaseLost) and received == RequestRefused("a", RefusalReason.STOPPING)


# Caches.

CHAIN = (("s", 10), ("s u", 20), ("s u b", 35))


def warm(*workers: str, **settings: object) -> Scheduler:
    """Return a scheduler whose last worker has the cache of a conversation, the others those of others."""
    scheduler = pool(*workers, **settings)
    for worker in workers:
        scheduler.ask(want(f"first of {worker}"), 0)
    for each in scheduler.running(0):
        worker = each.lease.worker
        kept = CHAIN if worker == workers[-1] else ((f"other {worker}", 500),)
        scheduler.release(each.ticket_id, 0, well=False, kept=kept)
    return scheduler


def resumes(
    ticket: str, worker: str, digest: str = "s u b", incarnation: str = "1", **more: object
) -> WorkerRequest:
    return want(ticket, digests=CHAIN, handle=CacheHandle(worker, incarnation, digest, 35), **more)


def test_the_worker_that_the_handle_names_is_taken() -> None:
    assert granted(warm("u", "v", "w").ask(resumes("a", "w"), 1)) == [("a", "w")]


def test_then_the_one_with_the_longest_beginning() -> None:
    scheduler = warm("u", "v", "w")
    assert granted(scheduler.ask(want("a", digests=(*CHAIN[:2], ("s u x", 40))), 1)) == [("a", "w")]


def test_then_an_empty_one() -> None:
    scheduler = warm("u", "v", "w")
    scheduler.worker_up(WorkerCapacity("x", "1"), 1)
    assert granted(scheduler.ask(want("a"), 1)) == [("a", "x")]


@pytest.mark.parametrize(("incarnation", "worker"), [("1", "w"), ("2", "u")])
def test_a_cache_that_another_gateway_kept_is_found_in_the_same_process_only(
    incarnation: str, worker: str
) -> None:
    scheduler = pool("u", "w", slots=2)
    asks = WorkerRequest("a", "session", Task.CHAT, digests=CHAIN, handle=handle_of("w", incarnation))
    scheduler.found(asks, 0)
    assert granted(scheduler.ask(asks, 1)) == [("a", worker)]


def test_what_is_known_of_a_session_is_not_replaced_by_what_another_gateway_kept() -> None:
    scheduler = pool("u", "w", slots=2)
    scheduler.ask(WorkerRequest("a", "session", Task.CHAT), 0)
    newer = (*CHAIN, ("newer", CHAIN[-1][1] + 10))
    scheduler.release("a", 1, well=True, kept=newer)
    asks = WorkerRequest("b", "session", Task.CHAT, digests=newer, handle=handle_of("u", "1"))
    scheduler.found(asks, 2)
    assert granted(scheduler.ask(asks, 3)) == [("b", "u")]


def handle_of(worker: str, incarnation: str) -> CacheHandle:
    return CacheHandle(worker, incarnation, *CHAIN[-1])


def test_then_the_one_whose_cache_is_the_least_loss() -> None:
    # Reading 35 tokens again is faster than reading 500.
    scheduler = warm("u", "v", "w")
    assert granted(scheduler.ask(want("a"), 1)) == [("a", "w")]
    # 500 tokens that were not used for ten minutes are worth less than 35 of now.
    scheduler = warm("u", "w")
    scheduler.ask(want("x"), 600_000)
    scheduler.release("x", 600_000, well=False, kept=CHAIN)
    assert granted(scheduler.ask(want("a"), 600_001)) == [("a", "u")]


def test_what_no_one_has_open_any_more_goes_first() -> None:
    scheduler = warm("u", "w")
    # 500 tokens of a session that has ended are less of a loss than 35 of one that has not.
    scheduler.left("session of first of u")
    assert granted(scheduler.ask(want("a"), 1)) == [("a", "u")]


@pytest.mark.parametrize("handle", [("w", "2"), ("gone", "1")])
def test_a_handle_of_another_process_is_no_reason_to_wait(handle: tuple[str, str]) -> None:
    scheduler = warm("u", "w")
    scheduler.ask(resumes("x", "w"), 1)
    assert granted(scheduler.ask(resumes("a", handle[0], incarnation=handle[1]), 2)) == [("a", "u")]


def test_the_head_waits_for_its_cache_no_longer_than_it_may() -> None:
    scheduler = warm("u", "w")
    own = resumes("x", "w")
    assert granted(scheduler.ask(own, 100)) == [("x", "w")]
    # Its last turn is still in the cache there.
    again = WorkerRequest("a", own.session_id, Task.CHAT, digests=CHAIN, handle=own.handle)
    assert scheduler.ask(again, 1_000) == []
    assert scheduler.next_deadline_ms() == 1_200
    assert scheduler.on_deadline(1_199) == []
    assert granted(scheduler.on_deadline(1_200)) == [("a", "u")]


def test_the_head_has_its_own_worker_as_soon_as_that_is_free() -> None:
    scheduler = warm("u", "w")
    own = resumes("x", "w")
    scheduler.ask(own, 100)
    scheduler.ask(WorkerRequest("a", own.session_id, Task.CHAT, digests=CHAIN, handle=own.handle), 1_000)
    assert granted(scheduler.release("x", 1_050, well=True, kept=CHAIN)) == [("a", "w")]


def test_who_is_in_a_call_does_not_wait_for_someone_elses_cache() -> None:
    scheduler = warm("u", "w")
    own = resumes("x", "w")
    scheduler.ask(own, 100)
    scheduler.ask(
        WorkerRequest("a", own.session_id, Task.OMNI_DUPLEX, digests=CHAIN, handle=own.handle), 1_000
    )
    assert granted(scheduler.ask(want("b", Task.OMNI_DUPLEX), 1_001)) == [("a", "u")]


def test_a_call_is_served_before_texts_that_came_earlier() -> None:
    scheduler = pool("w")
    scheduler.ask(want("a"), 0)
    chat, voice, omni = Task.CHAT, Task.HALF_DUPLEX, Task.OMNI_DUPLEX
    for ticket, task in (("b", chat), ("c", voice), ("d", chat), ("e", omni)):
        scheduler.ask(want(ticket, task), 1)
    assert [place.ticket_id for place in scheduler.places(2)] == ["c", "e", "b", "d"]
    assert [scheduler.position(ticket) for ticket in "bcde"] == [3, 1, 4, 2]
    # A text that loses its worker is resumed before calls that have not begun.
    assert granted(scheduler.move("a", 3)) == []
    assert [place.ticket_id for place in scheduler.places(4)] == ["a", "c", "e", "b", "d"]


# Estimates.


def test_each_waits_for_the_worker_that_is_free_first() -> None:
    scheduler = pool("v", "w")
    scheduler.ask(want("a", Task.CHAT), 0)
    scheduler.ask(want("b", Task.OMNI_DUPLEX), 5_000)
    for ticket in "cde":
        scheduler.ask(want(ticket, Task.CHAT), 5_000)
    # v: 15 s from 0 on; w: 90 s from 5 s on.
    assert [place.wait_ms for place in scheduler.places(5_000)] == [10_000, 25_000, 40_000]
    # A conversation that has overrun its estimate ends some time.
    assert scheduler.places(60_000)[0].wait_ms == 15_000


def test_a_worker_that_loads_counts_from_when_it_is_ready() -> None:
    scheduler = pool()
    scheduler.worker_up(WorkerCapacity("w", "1"), 0, standing=WorkerState.LOADING, ready_ms=20_000)
    scheduler.ask(want("a"), 5_000)
    assert scheduler.places(5_000)[0].wait_ms == 15_000


def test_estimates_learn_from_conversations_that_went_well_alone() -> None:
    scheduler = Scheduler(eta=Eta(EtaSettings(least_samples=2)))
    scheduler.worker_up(WorkerCapacity("w", "1"), 0)
    for number, well in enumerate((True, False, True)):
        scheduler.ask(want(f"{number}", Task.OMNI_DUPLEX), 0)
        scheduler.release(f"{number}", 40_000 if well else 100, well=well)
    assert scheduler.eta.lasts_s(Task.OMNI_DUPLEX) == pytest.approx(40)
    assert scheduler.eta.lasts_s(Task.CHAT) == 15


# Invariants.


class Model:
    """Driver of a scheduler with random inputs that checks its invariants."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.scheduler = pool(silent_ms=5_000, max_waiting=30, no_worker_ms=20_000, suspect_ms=0)
        self.now_ms = 0
        self.tickets = itertools.count()
        self.incarnations = itertools.count()
        self.waiting: list[str] = []
        self.runs: dict[str, str] = {}
        # Tickets that lost a worker, and may come before older ones.
        self.resumed: set[str] = set()
        self.offers: dict[str, WorkerCapacity] = {}
        self.ready: set[str] = set()
        self.wants: dict[str, WorkerRequest] = {}
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        self.now_ms += self.draw.choice((0, 0, 1, 7, 50, 300, 2_000))
        operation = self.draw.choice(OPERATIONS)
        self.seen[operation] += 1
        effects = getattr(self, operation)()
        self.take(effects)
        self.check()

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            ticket = effect.ticket_id
            if isinstance(effect, LeaseGranted):
                self.granted(effect)
            elif isinstance(effect, LeaseLost):
                # Only an existing lease can be lost.
                assert self.runs.pop(ticket) == effect.lease.worker
                self.wait_again(ticket)
            else:
                assert ticket in self.waiting
                self.waiting.remove(ticket)
                self.resumed.discard(ticket)

    def granted(self, effect: LeaseGranted) -> None:
        ticket, lease = effect.ticket_id, effect.lease
        assert ticket not in self.runs
        # No request overtakes an earlier one, except those that no present worker could hold.
        assert next(filter(self.fits, self.waiting)) == ticket
        assert lease.worker in self.ready
        offer = self.offers[lease.worker]
        assert lease.incarnation == offer.incarnation
        self.waiting.remove(ticket)
        self.resumed.discard(ticket)
        self.runs[ticket] = lease.worker

    def fits(self, ticket: str) -> bool:
        kv_bytes = self.wants[ticket].kv_bytes
        return any(each.kv_bytes is None or kv_bytes <= each.kv_bytes for each in self.offers.values())

    def has_room(self, name: str, kv_bytes: int) -> bool:
        offer = self.offers[name]
        held = [self.wants[ticket].kv_bytes for ticket, worker in self.runs.items() if worker == name]
        return len(held) < offer.slots and (offer.kv_bytes is None or sum(held) + kv_bytes <= offer.kv_bytes)

    def wait_again(self, ticket: str) -> None:
        self.resumed.add(ticket)
        self.line_up(ticket)

    def line_up(self, ticket: str) -> None:
        """Put a ticket in its place: resumed conversations, calls, texts, each in order of their requests."""
        self.waiting.append(ticket)
        self.waiting.sort(key=lambda each: (self.group(each), int(each)))

    def group(self, ticket: str) -> int:
        if ticket in self.resumed:
            return 0
        return 1 if self.wants[ticket].task.is_live else 2

    def check(self) -> None:
        scheduler = self.scheduler
        places = scheduler.places(self.now_ms)
        assert [place.ticket_id for place in places] == self.waiting
        assert [place.position for place in places] == list(range(1, len(places) + 1))
        assert {each.ticket_id: each.lease.worker for each in scheduler.running(self.now_ms)} == self.runs
        assert scheduler.workers.keys() == self.offers.keys()
        for name, offer in self.offers.items():
            held = [self.wants[ticket] for ticket, worker in self.runs.items() if worker == name]
            assert len(held) <= offer.slots
            assert offer.kv_bytes is None or sum(each.kv_bytes for each in held) <= offer.kv_bytes
        # The first request that waits for no cache waits for no worker with room.
        head = next(filter(self.fits, self.waiting), None)
        if head is not None and self.wants[head].handle is None:
            assert not any(self.has_room(name, self.wants[head].kv_bytes) for name in self.ready)
        deadline_ms = scheduler.next_deadline_ms()
        if self.waiting and deadline_ms is not None and scheduler.settings.silent_ms is not None:
            assert deadline_ms <= self.now_ms + scheduler.settings.silent_ms

    # Random actions.

    def ask(self) -> list[Effect]:
        ticket = str(next(self.tickets))
        worker = self.draw.choice(("v", "w", "x"))
        incarnation = self.offers[worker].incarnation if worker in self.offers else "none"
        chain = (("s", 10), (f"s {self.draw.randrange(4)}", 20))
        handle = CacheHandle(worker, incarnation, chain[-1][0], 20) if self.draw.random() < 0.5 else None
        self.wants[ticket] = WorkerRequest(
            ticket,
            f"session {self.draw.randrange(20)}",
            self.draw.choice(list(Task)),
            kv_bytes=self.draw.choice((0, 10, 40, 60, 120)),
            digests=chain,
            handle=handle,
        )
        self.line_up(ticket)
        return self.scheduler.ask(self.wants[ticket], self.now_ms)

    def heartbeat(self) -> list[Effect]:
        for ticket in self.waiting:
            if self.draw.random() < 0.9:
                self.scheduler.heartbeat(ticket, self.now_ms)
        return []

    def release(self) -> list[Effect]:
        if not self.runs:
            return []
        ticket = self.draw.choice(list(self.runs))
        del self.runs[ticket]
        kept = self.wants[ticket].digests if self.draw.random() < 0.7 else ()
        return self.scheduler.release(ticket, self.now_ms, well=self.draw.random() < 0.5, kept=kept)

    def cancel(self) -> list[Effect]:
        known = [*self.waiting, *self.runs]
        if not known:
            return []
        ticket = self.draw.choice(known)
        if ticket in self.waiting:
            self.waiting.remove(ticket)
            self.resumed.discard(ticket)
        self.runs.pop(ticket, None)
        return self.scheduler.cancel(ticket, self.now_ms)

    def evict(self) -> list[Effect]:
        return self.scheduler.evict(self.draw.choice(self.waiting), self.now_ms) if self.waiting else []

    def lease_rejected(self) -> list[Effect]:
        if not self.runs:
            return []
        ticket = self.draw.choice(list(self.runs))
        self.ready.discard(self.runs.pop(ticket))
        self.wait_again(ticket)
        return self.scheduler.lease_rejected(ticket, self.now_ms)

    def move(self) -> list[Effect]:
        if not self.runs:
            return []
        ticket = self.draw.choice(list(self.runs))
        self.ready.discard(self.runs[ticket])
        return self.scheduler.move(ticket, self.now_ms)

    def worker_up(self) -> list[Effect]:
        name = self.draw.choice(("v", "w", "x"))
        known = self.offers.get(name)
        same = known is not None and self.draw.random() < 0.5
        # A present worker may describe itself, and offers what it did.
        offer = (
            known
            if same and known
            else WorkerCapacity(
                name,
                f"i{next(self.incarnations)}",
                slots=self.draw.choice((1, 1, 2, 4)),
                kv_bytes=self.draw.choice((None, 80, 150)),
            )
        )
        self.offers[name] = offer
        self.ready.add(name)
        return self.scheduler.worker_up(offer, self.now_ms)

    def worker_stands(self) -> list[Effect]:
        if not self.offers:
            return []
        name, standing = self.draw.choice(list(self.offers)), self.draw.choice(list(WorkerState))
        (self.ready.add if standing is WorkerState.READY else self.ready.discard)(name)
        return self.scheduler.worker_stands(name, standing, self.now_ms)

    def worker_down(self) -> list[Effect]:
        if not self.offers or self.draw.random() < 0.5:
            return []
        name = self.draw.choice(list(self.offers))
        del self.offers[name]
        self.ready.discard(name)
        return self.scheduler.worker_down(name, self.now_ms)

    def on_deadline(self) -> list[Effect]:
        due_ms = self.scheduler.next_deadline_ms()
        if due_ms is not None and self.draw.random() < 0.5:
            self.now_ms = max(self.now_ms, due_ms)
        return self.scheduler.on_deadline(self.now_ms)


OPERATIONS = (
    *("ask",) * 4,
    *("release",) * 3,
    *("heartbeat",) * 2,
    *(
        "cancel",
        "evict",
        "lease_rejected",
        "move",
        "worker_up",
        "worker_stands",
        "worker_down",
        "on_deadline",
    ),
)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_granted_twice_lost_or_out_of_order_in_100_000_random_operations(seed: int) -> None:
    model = Model(seed)
    for _ in range(25_000):
        model.step()
    assert min(model.seen.values()) > 1_000 and int(next(model.tickets)) > 5_000
    # Every worker can be used to the end.
    scheduler, now_ms = model.scheduler, model.now_ms
    for ticket in [*model.waiting, *model.runs]:
        scheduler.cancel(ticket, now_ms)
    for name in list(scheduler.workers):
        scheduler.worker_stands(name, WorkerState.READY, now_ms)
    slots = sum(offer.slots for offer, _, _ in scheduler.workers.values())
    free = [granted(scheduler.ask(want(f"last {number}"), now_ms)) for number in range(slots)]
    assert all(free)


def test_a_request_gets_only_a_worker_that_its_owner_reaches() -> None:
    reached = {"a": {"w"}, "b": {"v", "w"}}
    scheduler = Scheduler(reached=lambda ticket: reached[ticket])
    for worker in ("v", "w"):
        scheduler.worker_up(WorkerCapacity(worker, "1"), 0)
    assert granted(scheduler.ask(want("a"), 1)) == [("a", "w")]
    scheduler.release("a", 2, well=True)
    reached["a"] = set()
    assert scheduler.ask(want("a"), 3) == []
    # The head is not overtaken.
    assert scheduler.ask(want("b"), 4) == []
    reached["a"] = {"v"}
    assert granted(scheduler.reach_changed(5)) == [("a", "v"), ("b", "w")]


def test_restored_requests_and_leases_are_one_change() -> None:
    scheduler = pool("w", slots=2)
    scheduler.hold()
    scheduler.restore_request(Waiter(want("late"), 7, 0, 0))
    scheduler.restore_request(Waiter(want("early"), 5, 0, 0))
    scheduler.restore_request(Waiter(want("resumed"), 9, 0, 0, is_resumed=True))
    lease = Lease("session of held", "w", "1", 0)
    assert scheduler.restore_lease(Runs(want("held"), 1, 0, 0, lease))
    assert not scheduler.restore_lease(Runs(want("other"), 2, 0, 0, replace(lease, incarnation="0")))
    assert scheduler.release("unknown", 1, well=True) == []
    assert granted(scheduler.settle(1)) == [("resumed", "w")]
    assert [place.ticket_id for place in scheduler.places(1)] == ["early", "late"]
    with pytest.raises(ValueError, match="in use"):
        scheduler.restore_request(Waiter(want("held"), 1, 0, 0))
    with pytest.raises(ValueError, match="in use"):
        scheduler.restore_lease(Runs(want("early"), 1, 0, 0, lease))
