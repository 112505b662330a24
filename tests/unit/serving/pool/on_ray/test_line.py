"""Line of several gateways over one scheduler, in virtual time."""

from functools import partial
from itertools import count

import pytest

from parley.models.llm.kv.segments import CacheHandle
from parley.serving.pool.on_ray.line import SETTLE_MS, RayLine
from parley.serving.pool.on_ray.messages import Attention, Exchange, HeldSession, HostReport, LineAnswer
from parley.serving.pool.shared.scheduler import LineChanges
from parley.serving.pool.shared.tables import LeaseRow, RequestRow
from parley.serving.scheduler.types import Lease, RefusalReason, Task, WorkerCapacity, WorkerRequest

LEASE_MS = 6_000
# Of the line's clock at the beginning.
EPOCH_US = 1_800_000_000_000_000


class Site:
    """Line and its time."""

    def __init__(self, *, is_restored: bool = False, life: str = "one") -> None:
        self.now_ms = 10_000
        self.line = RayLine(life, LEASE_MS, kind="omni", is_restored=is_restored, now_ms=self.now_ms)

    @property
    def clock_us(self) -> int:
        return EPOCH_US + self.now_ms * 1_000

    def restart(self) -> None:
        self.line = RayLine("two", LEASE_MS, kind="omni", is_restored=True, now_ms=self.now_ms)

    def wait(self, ms: int, *alive: "Member") -> None:
        """Let time pass, in which these gateways give signs of life."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms += min(500, until_ms - self.now_ms)
            due_ms = self.line.next_due_ms()
            if due_ms is not None and due_ms <= self.now_ms:
                self.line.on_time(self.now_ms, self.clock_us)
            for member in alive:
                member.send()

    def report(self, worker: str, incarnation: str | None, *sessions: str, kind: str = "omni") -> None:
        held = tuple(HeldSession(session, 0) for session in sessions)
        report = HostReport(worker, "life", 1, "", incarnation=incarnation, held=held, kind=kind)
        self.line.on_host_report(report, self.now_ms, self.clock_us)


class Member:
    """Gateway: what it has, and what it was granted."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        self.life, self.after, self._counter = "", 0, count(1)
        self.granted: list[tuple[str, str]] = []
        self.refused: list[tuple[str, RefusalReason]] = []
        self.numbers: dict[str, int] = {}
        self.leases: dict[str, LeaseRow] = {}
        self.send()

    def send(self, *, most: int = 1_000, **changes: object) -> LineAnswer:
        sent = Exchange(
            self.name,
            next(self._counter),
            self.life,
            bool(self.life),
            self.after,
            most,
            LineChanges(**changes),  # type: ignore[arg-type]
        )
        answer = self.site.line.exchange(sent, self.site.now_ms, self.site.clock_us)
        if not answer.is_joined:
            self.life, self.after = answer.life, 0
            return answer
        self.numbers |= answer.numbers
        for row in answer.granted:
            self.granted.append((row.ticket, row.lease.worker))
            want = WorkerRequest(row.ticket, row.lease.session_id, Task.OMNI_DUPLEX)
            self.leases[row.ticket] = LeaseRow(want, row.number, row.granted, row.lease, 0, 0)
            self.after = row.granted
        for refused in answer.refused:
            self.refused.append((refused.ticket, refused.reason))
            self.after = max(self.after, refused.number)
        return answer

    def reach(self, *workers: str, life: str = "1", slots: int = 1) -> None:
        self.send(reached=tuple(WorkerCapacity(worker, life, slots) for worker in workers))

    def row(self, ticket: str, task: Task = Task.OMNI_DUPLEX, **more: object) -> RequestRow:
        want = WorkerRequest(ticket, f"session of {ticket}", task, handle=more.pop("handle", None))  # type: ignore[arg-type]
        number = self.numbers.get(ticket)
        return RequestRow(want, self.site.clock_us if number is None else number, number is None, **more)  # type: ignore[arg-type]

    def ask(self, ticket: str, task: Task = Task.OMNI_DUPLEX, **more: object) -> None:
        self.send(requests=(self.row(ticket, task, **more),))

    def release(self, ticket: str) -> None:
        del self.leases[ticket]
        self.send(over=(ticket,))

    @property
    def line(self) -> list[str]:
        seen = self.site.line.seen_requests(self.name, self.site.now_ms)
        return [each.ticket for each in seen]


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_slot_goes_to_the_first_request_whichever_gateway_it_is_on(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    assert here.granted == [("a", "w")]
    for number, each in enumerate((there, here, there)):
        site.now_ms += 10
        each.ask(f"b{number}")
    here.ask("text", Task.CHAT)
    there.ask("b3")
    assert here.line == there.line == ["b0", "b1", "b2", "b3", "text"]
    here.release("a")
    there.send()
    assert there.granted == [("b0", "w")]
    there.release("b0")
    here.send()
    assert here.granted[1:] == [("b1", "w")]
    # One that lost its worker comes before all others, also when all of it is one message.
    granted = here.leases["b1"].granted
    here.send(requests=(here.row("b1", is_resumed=True, lost=granted),), unreached=("w",))
    there.send()
    assert there.granted[1:] == [("b2", "w")] and there.line == ["b1", "b3", "text"]


def test_a_request_keeps_its_place_when_the_line_was_restarted(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    for number, each in enumerate((there, here, there)):
        site.now_ms += 10
        each.ask(f"b{number}")
    before = {**here.numbers, **there.numbers}
    site.now_ms += 10
    site.restart()
    # They come back in the other order, and one that the old line did not have is the last.
    there.send()
    late = there.row("late")
    there.send(reached=(WorkerCapacity("w", "1"),), requests=(late, there.row("b2"), there.row("b0")))
    assert there.granted == []
    here.send()
    here.send(
        reached=(WorkerCapacity("w", "1"),), requests=(here.row("b1"),), leases=tuple(here.leases.values())
    )
    assert here.line == ["b0", "b1", "b2", "late"]
    assert before.items() <= {**here.numbers, **there.numbers}.items()
    site.wait(LEASE_MS, here, there)
    assert (here.granted, there.granted) == ([("a", "w")], [])
    here.release("a")
    there.send()
    assert there.granted == [("b0", "w")]


def test_a_restarted_line_grants_nothing_before_every_lease_may_be_back(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    here.ask("a")
    site.restart()
    there.send()
    there.reach("w")
    there.ask("b")
    assert there.granted == []
    here.send()
    site.wait(LEASE_MS - 500, here, there)
    here.send(leases=tuple(here.leases.values()))
    site.wait(LEASE_MS, here, there)
    assert there.granted == []
    here.release("a")
    there.send()
    assert there.granted == [("b", "w")]


def test_a_line_that_was_made_anew_waits_for_leases_too(site: Site) -> None:
    here = Member(site, "here")
    here.reach("w")
    # Not a restart that the actor knows of: the cluster forgot the line, and the gateway did not.
    site.line = RayLine("two", LEASE_MS, kind="omni", is_restored=False, now_ms=site.now_ms)
    here.send()
    here.reach("w")
    here.ask("a")
    assert here.granted == []
    site.wait(LEASE_MS, here)
    assert here.granted == [("a", "w")]


def test_a_session_that_only_its_worker_knows_keeps_its_slot(site: Site) -> None:
    site.restart()
    site.report("w", "1", "session of a")
    there = Member(site, "there")
    there.reach("w")
    there.ask("b")
    assert site.line.has_unclaimed
    site.wait(2 * LEASE_MS, there)
    # Its gateway may be cut off from the line; the worker says that the session is there.
    assert there.granted == [] and site.line.has_unclaimed
    site.report("w", "1")
    there.send()
    assert there.granted == [("b", "w")] and not site.line.has_unclaimed


def test_a_gateway_claims_the_lease_that_its_worker_reported(site: Site) -> None:
    here = Member(site, "here")
    here.reach("w", slots=2)
    here.ask("a")
    site.restart()
    site.report("w", "1", "session of a")
    here.send()
    here.send(reached=(WorkerCapacity("w", "1", 2),), leases=tuple(here.leases.values()))
    # Before the line opens, others may still come.
    assert site.line.has_unclaimed
    site.wait(LEASE_MS, here)
    assert not site.line.has_unclaimed
    here.ask("b")
    here.ask("c")
    assert here.granted == [("a", "w"), ("b", "w")]


def test_a_gateway_gets_only_workers_that_it_reaches(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("v")
    there.reach("w")
    there.ask("a")
    here.ask("b")
    assert (there.granted, here.granted) == ([("a", "w")], [("b", "v")])
    site.now_ms += 10
    here.ask("c")
    there.ask("d")
    here.reach("w")
    there.release("a")
    here.send()
    assert here.granted[1:] == [("c", "w")]


def test_a_gateway_that_reaches_no_worker_delays_no_other(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.ask("a")
    there.reach("w")
    there.ask("b")
    # A worker that has just come may be about to be reported by the other too.
    assert there.granted == []
    site.wait(SETTLE_MS, here, there)
    assert there.granted == [("b", "w")]
    there.ask("c")
    # It kept its place.
    here.reach("w")
    assert here.line == ["a", "c"]
    there.release("b")
    here.send()
    assert here.granted == [("a", "w")]


def test_a_gateway_that_has_ended_leaves_its_slots_to_the_others(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    there.ask("b")
    site.wait(LEASE_MS - 500, there)
    assert there.granted == []
    site.wait(1_000, there)
    assert there.granted == [("b", "w")]
    # Back, it joins as if it were new.
    assert not here.send().is_joined


def test_time_without_any_gateway_ends_none_of_them(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    there.ask("b")
    # The machine of the line was stopped, or they could not reach it.
    site.now_ms += 10 * LEASE_MS
    there.send()
    assert there.granted == [] and here.send().is_joined


def test_a_grant_is_repeated_until_it_was_read(site: Site) -> None:
    here = Member(site, "here")
    here.reach("w")
    here.ask("a")
    here.after = 0
    assert site.line.has_news(Attention("here", here.life, 0, None, 1.0))
    assert [row.ticket for row in here.send().granted] == ["a"]
    assert here.send().granted == ()
    assert not site.line.has_news(Attention("here", here.life, here.after, None, 1.0))
    assert site.line.has_news(Attention("here", "another life", here.after, None, 1.0))


def test_changes_of_an_overtaken_message_are_not_used(site: Site) -> None:
    here = Member(site, "here")
    late = Exchange("here", 2, here.life, changes=LineChanges(requests=(here.row("a"),)))
    here.send()
    here.send(over=("a",))
    site.line.exchange(late, site.now_ms, site.clock_us)
    assert here.line == []


def test_an_overtaken_message_from_before_the_gateway_joined_changes_nothing(site: Site) -> None:
    here = Member(site, "here")
    here.reach("w")
    here.ask("a")
    here.ask("b")
    late = Exchange("here", 2, "the line before", has_joined=True)
    answer = site.line.exchange(late, site.now_ms, site.clock_us)
    assert not answer.is_joined and here.line == ["b"]
    here.release("a")
    assert here.granted == [("a", "w"), ("b", "w")]


def test_a_process_with_the_name_of_an_earlier_one_comes_back(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    # Each gateway counts the processes of a worker without leases from 0.
    here.reach("w", life="w.1")
    there.reach("w", life="w.0")
    assert here.send().is_joined
    here.send(unreached=("w",))
    there.ask("a")
    site.wait(SETTLE_MS, here, there)
    assert there.granted == [("a", "w")] and there.leases["a"].lease.incarnation == "w.0"


@pytest.mark.parametrize("ends", ["unreached", "left", "other process", "no process"])
def test_a_process_that_was_taken_for_an_earlier_one_is_granted_when_no_other_is_reported(
    site: Site, ends: str
) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w", life="2")
    # A late report makes an earlier process the present one.
    there.reach("w", life="1")
    here.ask("a")
    if ends == "unreached":
        there.send(unreached=("w",))
    elif ends == "left":
        site.line.leave("there", site.now_ms, site.clock_us)
    else:
        site.report("w", "1")
        there.send(unreached=("w",))
        site.wait(SETTLE_MS, here)
        # The worker's own actor counts more than the reports of gateways.
        assert here.granted == []
        site.report("w", "2" if ends == "other process" else None)
    site.wait(SETTLE_MS, here)
    assert [each.lease.incarnation for each in here.leases.values()] == ["2"]


def test_a_lease_is_kept_while_its_process_is_taken_for_an_earlier_one(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w", life="2")
    here.ask("a")
    here.ask("b")
    there.reach("w", life="1")
    there.send(unreached=("w",))
    site.wait(2 * SETTLE_MS, here, there)
    assert here.granted == [("a", "w")] and here.line == ["b"]
    here.release("a")
    assert here.granted == [("a", "w"), ("b", "w")]


def test_a_report_of_a_silent_worker_does_not_end_the_leases_of_its_process(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    there.reach("w", life="1")
    here.reach("w", life="2")
    here.ask("a")
    # The gateway with the conversation hears nothing for a while, and the other has not noticed the new one.
    here.send(unreached=("w",))
    there.ask("b")
    site.wait(2 * SETTLE_MS, here, there)
    assert there.granted == []
    here.reach("w", life="2")
    there.reach("w", life="2")
    here.release("a")
    there.send()
    assert there.granted == [("b", "w")]


def test_a_sign_of_life_does_not_change_the_places(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    seen = [site.line.version]
    for change in (partial(here.ask, "a"), partial(there.ask, "b"), partial(here.release, "a")):
        change()
        seen.append(site.line.version)
        site.wait(2_000, here, there)
        assert site.line.version == seen[-1]
    site.line.leave("there", site.now_ms, site.clock_us)
    assert site.line.version > seen[-1] and len(set(seen)) == 4


def test_a_line_counts_no_sessions_of_workers_of_other_kinds(site: Site) -> None:
    site.restart()
    site.report("ears", "1", "session of a", kind="stt")
    here = Member(site, "here")
    assert site.line.seen_leases("here", site.now_ms) == ()
    site.wait(LEASE_MS, here)
    assert not site.line.has_unclaimed


def test_a_process_of_a_worker_ends_with_its_leases(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    there.ask("b")
    there.reach("w", life="2")
    there.send()
    # The gateway that had it has not noticed yet, and its report does not bring the process back.
    here.reach("w", life="1")
    assert there.granted == []
    here.send(requests=(here.row("a", is_resumed=True, lost=here.leases["a"].granted),))
    assert here.granted == [("a", "w")]
    here.reach("w", life="2")
    assert here.granted == [("a", "w")] * 2
    here.release("a")
    there.send()
    assert there.granted == [("b", "w")]


def test_a_gateway_that_has_not_noticed_a_new_process_delays_others_for_a_bounded_time(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    here.ask("b")
    there.ask("c")
    there.reach("w", life="2")
    assert there.granted == []
    site.wait(SETTLE_MS, here, there)
    assert there.granted == [("c", "w")] and here.line == ["b"]


def test_a_conversation_that_lost_its_worker_comes_first_for_a_bounded_time(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    there.ask("b")
    # Both notice the end, and the other gateway is the first to see the new process.
    there.send(unreached=("w",))
    here.send(unreached=("w",), requests=(here.row("a", is_resumed=True, lost=here.leases["a"].granted),))
    there.reach("w", life="2")
    site.wait(SETTLE_MS - 500, here, there)
    assert there.granted == [] and here.line == ["a", "b"]
    site.wait(500, here, there)
    # It does not reach the process at all.
    assert there.granted == [("b", "w")] and here.line == ["a"]


def test_an_operator_removes_a_caller_of_another_gateway(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    there.ask("a")
    here.send(evicted={"a": RefusalReason.WITHDRAWN})
    there.send()
    assert there.refused == [("a", RefusalReason.WITHDRAWN)] and here.line == []


def test_a_full_line_refuses_the_last_of_the_new_requests(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.ask("a")
    there.send(requests=(there.row("b"), there.row("text", Task.CHAT)), most=2)
    there.send()
    assert there.refused == [("text", RefusalReason.QUEUE_FULL)] and here.line == ["a", "b"]


def test_a_conversation_returns_to_the_worker_of_its_handle(site: Site) -> None:
    here = Member(site, "here")
    here.reach("v", "w", slots=2)
    here.ask("a", handle=CacheHandle("w", "1", "digest", 100))
    here.ask("b", handle=CacheHandle("w", "other process", "digest", 100))
    assert here.granted == [("a", "w"), ("b", "v")]


def test_a_late_request_is_put_before_others_by_a_bounded_time(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.ask("a")
    site.now_ms += 60_000
    here.ask("b")
    there.ask("c")
    stale = RequestRow(WorkerRequest("d", "d", Task.OMNI_DUPLEX), number=1, is_new=True)
    there.send(requests=(stale,))
    assert here.line == ["a", "d", "b", "c"]
    assert [each.is_own for each in site.line.seen_requests("there", site.now_ms)] == [
        False,
        True,
        False,
        True,
    ]
    assert site.line.seen_leases("there", site.now_ms) == ()


def test_a_gateway_that_leaves_frees_everything_at_once(site: Site) -> None:
    here, there = Member(site, "here"), Member(site, "there")
    here.reach("w")
    there.reach("w")
    here.ask("a")
    here.ask("b")
    there.ask("c")
    site.line.leave("here", site.now_ms, site.clock_us)
    there.send()
    assert there.granted == [("c", "w")] and there.line == []
    assert there.leases["c"].lease == Lease("session of c", "w", "1", 0)
