"""Line of several gateways over one ``serving.scheduler``. Pure: time comes in.

It does for gateways on Ray what the tables do for those on PostgreSQL (``serving.pool.shared.tables``): a
gateway brings the state that the line should have of it, and reads what it was granted. The policy is that
of one gateway. Its numbers are times of the line's clock, so that a request keeps its place when the line
was restarted and has forgotten it.

A worker is granted while a gateway reports that it reaches it and that it takes conversations, and to the
requests of such gateways only. Requests of a gateway that reaches none are kept apart and delay no other.
One that has just come is granted when each gateway with callers who wait has reported it, or after
``SETTLE_MS``: a conversation that lost its process comes first, although its gateway may notice that last.

A line that was restarted grants nothing for ``lease_ms``. Meanwhile the gateways bring their requests and
leases back, and the workers report the sessions that they hold. A held session that no gateway claims keeps
its slot for as long as the worker reports it. A gateway that is silent for ``lease_ms`` has ended.
"""

from collections import deque
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from parley.serving.pool.on_ray.messages import (
    Attention,
    Exchange,
    HostReport,
    LineAnswer,
    RefusedRow,
)
from parley.serving.pool.shared.tables import (
    LATE_US,
    GrantedRow,
    LeaseRow,
    RequestRow,
    SeenLease,
    SeenRequest,
)
from parley.serving.scheduler.request_queue import Waiter
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    Lease,
    LeaseGranted,
    Rank,
    RefusalReason,
    RequestRefused,
    Task,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)
from parley.serving.scheduler.worker_index import Runs

# Gateways decide about the bounds of their requests themselves, by what they know of the workers.
_UNBOUNDED = SchedulerSettings(max_waiting=1_000_000, no_worker_ms=3_600_000)
# Longest wait of a worker that has just come for the reports of all gateways.
SETTLE_MS = 1_000
# Earlier processes of a worker whose late reports are recognised.
PAST_LIVES = 8


@dataclass(slots=True)
class _Waiting:
    """Request in the line; ``is_queued``: the scheduler has it."""

    member: str
    want: WorkerRequest
    number: int
    asked_ms: int
    is_resumed: bool
    is_queued: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return Rank.of(self.want.task, is_resumed=self.is_resumed).value, self.number


@dataclass(slots=True)
class _Leased:
    """Lease in the line; ``member`` is empty where only the worker has reported it."""

    member: str
    want: WorkerRequest
    number: int
    granted: int
    lease: Lease
    asked_ms: int
    since_ms: int
    # The scheduler knows of it: the process of the worker was reported.
    is_known: bool = True


@dataclass(slots=True)
class _Member:
    """Gateway.

    Attributes:
        id: of it.
        heard_ms: time of its last exchange.
        number: of that exchange.
        reached: workers that it reaches and that take conversations, as it reported them.
        usable: names of those that are of the present process of the worker.
        news: grants and refusals that it may not have read.
        tickets: of its requests and leases.
        lost: tickets whose process has ended, which it may not have noticed.
    """

    id: str
    heard_ms: int
    number: int
    reached: dict[str, WorkerCapacity] = field(default_factory=dict)
    usable: set[str] = field(default_factory=set)
    news: list[GrantedRow | RefusedRow] = field(default_factory=list)
    tickets: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)


class _Instant(NamedTuple):
    """Time of a call: that of a steady clock, and that of the line's clock."""

    now_ms: int
    clock_us: int


class RayLine:
    """Line of the gateways that exchange with it.

    Args:
        life: id of this object; a restarted line has another.
        kind: of the workers that it grants.
        lease_ms: time of silence after which a gateway has ended.
        is_restored: the line was there before, and gateways have leases of which it does not know.
        now_ms: present time.
    """

    def __init__(self, life: str, lease_ms: int, *, kind: str, is_restored: bool, now_ms: int) -> None:
        self.life = life
        self._kind = kind
        self._lease_ms = lease_ms
        self._opens_ms: int | None = now_ms + lease_ms if is_restored else None
        self._members: dict[str, _Member] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._leases: dict[str, _Leased] = {}
        # Leases that only their worker has reported, by worker and session.
        self._unclaimed: dict[tuple[str, str], str] = {}
        self._scheduler = Scheduler(_UNBOUNDED, reached=self._reached)
        self._incarnations: dict[str, str] = {}
        self._past: dict[str, deque[str]] = {}
        # Processes that the actors of the workers reported last.
        self._hosted: dict[str, str | None] = {}
        # Workers that have just come, and since when.
        self._coming: dict[str, int] = {}
        self._newest = dict.fromkeys(Rank, 0)
        self._numbers: set[tuple[int, int]] = set()
        self._last_news = 0
        self._heard_ms = now_ms
        # The scheduler counts every settling, so each sign of life.
        self._version = 0

    # Gateways.

    def exchange(self, sent: Exchange, now_ms: int, clock_us: int) -> LineAnswer:
        """Take the changes of a gateway, grant what can be granted, and return its news."""
        member = self._members.get(sent.member)
        is_joined = member is not None and sent.life == self.life
        if member is not None and sent.number <= member.number:
            # Overtaken: its gateway waits for the answer to a later one.
            return LineAnswer(self.life, is_joined, clock_us, self._version)
        at = _Instant(now_ms, clock_us)
        self._scheduler.hold()
        self._expire(at)
        member = self._members.get(sent.member)
        is_joined = member is not None and sent.life == self.life
        numbers: dict[str, int] = {}
        if member is None or not is_joined:
            member = self._join(sent, at)
        else:
            numbers = self._put(member, sent, at)
        member.heard_ms, member.number = now_ms, sent.number
        self._settle(at)
        self._refuse_overflow(numbers, sent.most_waiting, at)
        if not is_joined:
            return LineAnswer(self.life, False, clock_us, self._version)
        member.news = [row for row in member.news if _number(row) > sent.after]
        return LineAnswer(
            self.life,
            True,
            clock_us,
            self._version,
            numbers,
            tuple(row for row in member.news if isinstance(row, GrantedRow)),
            tuple(row for row in member.news if isinstance(row, RefusedRow)),
        )

    def has_news(self, asked: Attention) -> bool:
        """Return whether a gateway that reads the news now finds any, or has to join anew."""
        member = self._members.get(asked.member)
        if member is None or asked.life != self.life:
            return True
        return any(_number(row) > asked.after for row in member.news)

    @property
    def version(self) -> int:
        """Number that changes whenever other requests wait, or other leases are held."""
        return self._version

    def seen_requests(self, member: str, now_ms: int) -> tuple[SeenRequest, ...]:
        """Return the line in order, as a gateway sees it."""
        return tuple(
            SeenRequest(
                each.want.ticket_id,
                each.member == member,
                each.want.session_id,
                each.want.task,
                now_ms - each.asked_ms,
            )
            for each in sorted(self._waiting.values(), key=lambda waiting: waiting.key)
        )

    def seen_leases(self, member: str, now_ms: int) -> tuple[SeenLease, ...]:
        """Return all leases, as a gateway sees them."""
        return tuple(
            SeenLease(ticket, each.member == member, each.lease, each.want.task, now_ms - each.since_ms)
            for ticket, each in self._leases.items()
        )

    def leave(self, member: str, now_ms: int, clock_us: int) -> None:
        """Remove a gateway with its requests, leases and reports."""
        found = self._members.get(member)
        if found is not None:
            at = _Instant(now_ms, clock_us)
            self._scheduler.hold()
            self._remove(found, at)
            self._settle(at)

    # Workers.

    @property
    def has_unclaimed(self) -> bool:
        """True while a worker holds a session that no gateway claims, or may come to."""
        return bool(self._unclaimed) or self._opens_ms is not None

    def on_host_report(self, report: HostReport, now_ms: int, clock_us: int) -> None:
        """Record the sessions that a worker holds, of which the line may not know."""
        if report.kind != self._kind:
            return
        at = _Instant(now_ms, clock_us)
        self._scheduler.hold()
        self._take_host_report(report, at)
        self._settle(at)

    def _take_host_report(self, report: HostReport, at: _Instant) -> None:
        worker, incarnation = report.name, report.incarnation
        held = {each.session_id: each.epoch for each in report.held}
        for (name, session), ticket in list(self._unclaimed.items()):
            is_same = self._leases[ticket].lease.incarnation == incarnation
            if name == worker and not (is_same and session in held):
                self._end_lease(ticket, at)
        self._hosted[worker] = incarnation
        if incarnation is not None and incarnation != self._incarnations.get(worker):
            # The gateways know what it offers in addition to its slots.
            self._is_present(WorkerCapacity(worker, incarnation, report.slots), at)
        self._reconsider(worker, at)
        if incarnation is None or incarnation != self._incarnations.get(worker):
            return
        known = {each.session_id for each in self._leases_on(worker)}
        for session, epoch in held.items():
            if session not in known:
                self._hold(Lease(session, worker, incarnation, epoch), at)

    def _hold(self, lease: Lease, at: _Instant) -> None:
        ticket = f"held {lease.worker} {lease.session_id}"
        want = WorkerRequest(ticket, lease.session_id, Task.OMNI_DUPLEX, lease.epoch)
        self._unclaimed[lease.worker, lease.session_id] = ticket
        self._add_lease(_Leased("", want, 0, 0, lease, at.now_ms, at.now_ms))

    # Time.

    def next_due_ms(self) -> int | None:
        """Return when ``on_time`` is due; None: not before the next call."""
        due = [each for each in (self._opens_ms, self._scheduler.next_deadline_ms()) if each is not None]
        return min((*due, *(since_ms + SETTLE_MS for since_ms in self._coming.values())), default=None)

    def on_time(self, now_ms: int, clock_us: int) -> None:
        """Perform everything that is due."""
        at = _Instant(now_ms, clock_us)
        self._scheduler.hold()
        if self._opens_ms is not None and now_ms >= self._opens_ms:
            self._opens_ms = None
            for worker in self._incarnations:
                self._stand(worker, at)
        self._settle(at)
        self._apply(self._scheduler.on_deadline(now_ms), at)

    # Internal: gateways.

    def _join(self, sent: Exchange, at: _Instant) -> _Member:
        before = self._members.get(sent.member)
        if before is not None:
            self._remove(before, at)
        if sent.has_joined and not self._members and self._opens_ms is None:
            # It was in a line of which this one knows nothing, and so may others have been.
            self._opens_ms = at.now_ms + self._lease_ms
            for worker in self._incarnations:
                self._stand(worker, at)
        self._members[sent.member] = member = _Member(sent.member, at.now_ms, sent.number)
        return member

    def _remove(self, member: _Member, at: _Instant) -> None:
        for ticket in list(member.tickets):
            self._drop(ticket, at)
        del self._members[member.id]
        self._version += 1
        for worker in member.reached:
            self._reconsider(worker, at)
            self._stand(worker, at)

    def _expire(self, at: _Instant) -> None:
        """Remove gateways that have ended. Time in which no gateway was heard does not count."""
        if at.now_ms - self._heard_ms > self._lease_ms // 2:
            for member in self._members.values():
                member.heard_ms = at.now_ms
        self._heard_ms = at.now_ms
        for member in list(self._members.values()):
            if at.now_ms - member.heard_ms >= self._lease_ms:
                self._remove(member, at)

    def _put(self, member: _Member, sent: Exchange, at: _Instant) -> dict[str, int]:
        """Take changes; return the numbers of the requests."""
        changes = sent.changes
        member.lost.difference_update(changes.over)
        for ticket in changes.over:
            if ticket in member.tickets:
                self._drop(ticket, at)
        for lease in changes.leases:
            self._restore_lease(member, lease, at)
        for ticket, reason in changes.evicted.items():
            self._refuse(ticket, reason, at)
        self._put_reports(member, changes.reached, changes.unreached, at)
        return {
            row.want.ticket_id: number
            for row in changes.requests
            if (number := self._put_request(member, row, at)) is not None
        }

    def _settle(self, at: _Instant) -> None:
        for worker, since_ms in list(self._coming.items()):
            waiting = [
                each
                for each in self._members.values()
                if each.lost or not each.tickets.isdisjoint(self._waiting)
            ]
            if at.now_ms - since_ms >= SETTLE_MS or all(worker in each.usable for each in waiting):
                del self._coming[worker]
                self._stand(worker, at)
        self._apply(self._scheduler.settle(at.now_ms), at)

    def _refuse_overflow(self, tickets: Collection[str], most: int, at: _Instant) -> None:
        """Refuse the last of these requests while more than ``most`` wait."""
        excess = len(self._waiting) - most
        if excess > 0:
            waiting = [self._waiting[ticket] for ticket in tickets if ticket in self._waiting]
            for each in sorted(waiting, key=lambda one: one.key)[-excess:]:
                self._refuse(each.want.ticket_id, RefusalReason.QUEUE_FULL, at)

    def _put_request(self, member: _Member, row: RequestRow, at: _Instant) -> int | None:
        """Queue a request; return its number, or None for one that has a lease."""
        ticket = row.want.ticket_id
        member.lost.discard(ticket)
        leased = self._leases.get(ticket)
        if leased is not None and leased.granted <= row.lost:
            self._drop(ticket, at)
        elif leased is not None:
            return None
        waiting = self._waiting.get(ticket)
        if waiting is None:
            number = self._free_number(row)
            asked_ms = at.now_ms - row.age_ms
            waiting = _Waiting(member.id, row.want, number, asked_ms, row.is_resumed)
            self._waiting[ticket] = waiting
            self._version += 1
            self._numbers.add(waiting.key)
            member.tickets.add(ticket)
            if member.usable:
                self._queue(waiting, at)
        return waiting.number

    def _free_number(self, row: RequestRow) -> int:
        number = row.number
        if row.is_new:
            # A request that comes late is put before others by no more than this.
            number = max(number, self._newest[row.rank] - LATE_US)
        while (row.rank.value, number) in self._numbers:
            number += 1
        self._newest[row.rank] = max(number, self._newest[row.rank])
        return number

    def _queue(self, waiting: _Waiting, at: _Instant) -> None:
        """Give a request to the scheduler, which is held."""
        waiting.is_queued = True
        want = waiting.want
        self._scheduler.found(want, at.now_ms)
        self._scheduler.restore_request(
            Waiter(want, waiting.number, waiting.asked_ms, at.now_ms, waiting.is_resumed)
        )

    def _refuse(self, ticket: str, reason: RefusalReason, at: _Instant) -> None:
        waiting = self._waiting.get(ticket)
        if waiting is not None:
            self._drop(ticket, at)
            self._last_news = max(self._last_news + 1, at.clock_us)
            self._members[waiting.member].news.append(RefusedRow(ticket, reason, self._last_news))

    def _drop(self, ticket: str, at: _Instant) -> None:
        """Forget a request or a lease."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is None:
            self._end_lease(ticket, at)
            return
        self._version += 1
        self._numbers.discard(waiting.key)
        self._members[waiting.member].tickets.discard(ticket)
        if waiting.is_queued:
            self._apply(self._scheduler.cancel(ticket, at.now_ms), at)

    # Internal: leases.

    def _restore_lease(self, member: _Member, row: LeaseRow, at: _Instant) -> None:
        ticket, lease = row.want.ticket_id, row.lease
        if ticket in self._leases:
            return
        held = self._unclaimed.get((lease.worker, lease.session_id))
        if held is not None:
            self._end_lease(held, at)
        if ticket in self._waiting:
            self._drop(ticket, at)
        asked_ms, since_ms = at.now_ms - row.asked_age_ms, at.now_ms - row.age_ms
        self._last_news = max(self._last_news, row.granted)
        self._add_lease(_Leased(member.id, row.want, row.number, row.granted, lease, asked_ms, since_ms))
        member.tickets.add(ticket)

    def _add_lease(self, leased: _Leased) -> None:
        self._leases[leased.want.ticket_id] = leased
        self._version += 1
        runs = Runs(leased.want, leased.number, leased.asked_ms, leased.since_ms, leased.lease)
        leased.is_known = self._scheduler.restore_lease(runs)

    def _end_lease(self, ticket: str, at: _Instant) -> None:
        leased = self._leases.pop(ticket, None)
        if leased is None:
            return
        self._version += 1
        if leased.member:
            self._members[leased.member].tickets.discard(ticket)
        else:
            del self._unclaimed[leased.lease.worker, leased.lease.session_id]
        if leased.is_known:
            self._apply(self._scheduler.release(ticket, at.now_ms, well=False), at)

    # Internal: workers.

    def _put_reports(
        self,
        member: _Member,
        reached: Collection[WorkerCapacity],
        unreached: Collection[str],
        at: _Instant,
    ) -> None:
        changed = [name for name in unreached if member.reached.pop(name, None) is not None]
        for offer in reached:
            if member.reached.get(offer.worker) != offer:
                member.reached[offer.worker] = offer
                changed.append(offer.worker)
                self._is_present(offer, at)
        self._use(member, at)
        for worker in changed:
            self._reconsider(worker, at)
            self._stand(worker, at)

    def _is_present(self, offer: WorkerCapacity, at: _Instant) -> None:
        """Make the process of an offer the present one of its worker, unless a later one is reported."""
        worker, incarnation = offer.worker, offer.incarnation
        past = self._past.setdefault(worker, deque(maxlen=PAST_LIVES))
        before = self._incarnations.get(worker)
        if incarnation in past:
            if self._is_reported(worker):
                return
            past.remove(incarnation)
        if before is not None and before != incarnation:
            past.append(before)
        self._incarnations[worker] = incarnation
        # Not available before the leases of it are known.
        self._apply(self._scheduler.worker_up(offer, at.now_ms, standing=self._standing(worker, at)), at)
        if before != incarnation:
            for leased in self._leases.values():
                if not leased.is_known and leased.lease.worker == worker:
                    self._add_lease(leased)
                    if leased.is_known and leased.member:
                        self._members[leased.member].lost.discard(leased.want.ticket_id)
            for member in self._members.values():
                self._use(member, at)
            if self._is_usable(worker):
                self._coming[worker] = at.now_ms

    def _is_reported(self, worker: str) -> bool:
        """Return whether a gateway or the worker's actor reports the present process, or a lease of it."""
        present = self._incarnations[worker]
        return (
            self._hosted.get(worker) == present
            or any(self._leases_on(worker))
            or any(
                offer is not None and offer.incarnation == present
                for offer in (member.reached.get(worker) for member in self._members.values())
            )
        )

    def _leases_on(self, worker: str) -> Iterator[Lease]:
        """Return the leases of the present process of a worker."""
        present = self._incarnations[worker]
        return (
            each.lease
            for each in self._leases.values()
            if (each.lease.worker, each.lease.incarnation) == (worker, present)
        )

    def _reconsider(self, worker: str, at: _Instant) -> None:
        """Make a process that was taken for an earlier one the present one where no other is reported."""
        for member in self._members.values():
            offer = member.reached.get(worker)
            if offer is None or offer.incarnation == self._incarnations[worker]:
                continue
            if not self._is_reported(worker):
                self._is_present(offer, at)
                return

    def _standing(self, worker: str, at: _Instant) -> WorkerState:
        known = self._scheduler.worker(worker)
        if known is None or known.offer.incarnation != self._incarnations[worker]:
            return WorkerState.SUSPECT
        is_usable = self._is_usable(worker) and worker not in self._coming
        return WorkerState.READY if is_usable and self._opens_ms is None else WorkerState.SUSPECT

    def _is_usable(self, worker: str) -> bool:
        return any(worker in member.usable for member in self._members.values())

    def _stand(self, worker: str, at: _Instant) -> None:
        self._apply(self._scheduler.worker_stands(worker, self._standing(worker, at), at.now_ms), at)

    def _use(self, member: _Member, at: _Instant) -> None:
        """Record the workers that requests of a gateway may get, and whether these are queued."""
        usable = {
            name
            for name, offer in member.reached.items()
            if offer.incarnation == self._incarnations.get(name)
        }
        if usable == member.usable:
            return
        for worker in usable - member.usable:
            if not self._is_usable(worker):
                self._coming[worker] = at.now_ms
        gone, member.usable = member.usable - usable, usable
        for worker in gone:
            if not self._is_usable(worker):
                self._coming.pop(worker, None)
        for ticket in list(member.tickets):
            waiting = self._waiting.get(ticket)
            if waiting is None or waiting.is_queued == bool(usable):
                continue
            if usable:
                self._queue(waiting, at)
            else:
                waiting.is_queued = False
                self._apply(self._scheduler.cancel(ticket, at.now_ms), at)
        self._apply(self._scheduler.reach_changed(at.now_ms), at)

    def _reached(self, ticket: str) -> Container[str]:
        waiting = self._waiting.get(ticket)
        return self._members[waiting.member].usable if waiting is not None else ()

    # Internal: effects and views.

    def _apply(self, effects: Sequence[Effect], at: _Instant) -> None:
        for effect in effects:
            ticket = effect.ticket_id
            if isinstance(effect, LeaseGranted) and ticket in self._waiting:
                self._grant(self._waiting.pop(ticket), effect.lease, at)
            elif isinstance(effect, RequestRefused):
                self._refuse(ticket, effect.reason, at)
            else:
                # The process of its worker has ended: the gateway that has the conversation notices that
                # itself, and requests again. It must not be granted before, and counts where the process
                # proves to be the present one.
                leased = self._leases.get(ticket)
                if leased is not None:
                    leased.is_known = False
                if leased is not None and leased.member:
                    self._members[leased.member].lost.add(ticket)
                elif leased is not None:
                    self._version += 1
                    del self._leases[ticket]
                    del self._unclaimed[leased.lease.worker, leased.lease.session_id]
                self._apply(self._scheduler.cancel(ticket, at.now_ms), at)

    def _grant(self, waiting: _Waiting, lease: Lease, at: _Instant) -> None:
        ticket = waiting.want.ticket_id
        self._version += 1
        self._numbers.discard(waiting.key)
        # Later than those of a line before this one.
        self._last_news = max(self._last_news + 1, at.clock_us)
        self._leases[ticket] = _Leased(
            waiting.member,
            waiting.want,
            waiting.number,
            self._last_news,
            lease,
            waiting.asked_ms,
            at.now_ms,
        )
        member = self._members[waiting.member]
        member.news.append(GrantedRow(ticket, lease, waiting.number, self._last_news))


def _number(row: GrantedRow | RefusedRow) -> int:
    return row.granted if isinstance(row, GrantedRow) else row.number
