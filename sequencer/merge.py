"""Merge the reports of many specialists into the order in which the events happened.

Specialists report late, each by its own latency. ``Sequencer`` subtracts it from the arrival, holds each
report until every active stream has reported about that moment (the watermark) and then commits in event-time
order: a k-way merge on a heap. The order is total: event time, then the order in which the streams joined,
then the order of reporting. Committed order is final.

All waits are bounded. A report that has waited for ``deadline_us`` since its arrival is committed regardless
of the other streams, with all that happened before it. A stalled stream gates no other
(``sequencer.watermark``). Beyond ``max_waiting`` reports the earliest are committed. A report that comes
after its place has been passed is *late*: it is kept, marked and committed at the next ``advance``, after
reports that it should have preceded.

A newer revision of a waiting report takes over its place and its deadline. Where the revision happened later
(the words of an utterance end with its last one), it has a later place and a deadline of its own. A
newer revision of a committed report is committed in its own place and names the statement that it revises.
Exact duplicates, revisions older than the newest and revisions of a final are dropped and counted. Identities
are remembered for the last ``remembered`` statements of a stream, so memory stays flat.

Inputs: the operations of ``sequencer.operations``, by call or by ``apply``. Output: ``Committed``. The
calling code owns the time.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.sequencer.calibration import CalibrationSettings
from parley.sequencer.operations import Advance, Heartbeat, Join, Learn, Operation, Report, StreamEnded
from parley.sequencer.watermark import StreamState, UnknownStreamError, Watermarks

T = TypeVar("T")


class SequencerSettings(StrictModel):
    """Limits on how long reports wait, and on memory."""

    deadline_us: int = Field(
        500_000, ge=0, le=60_000_000, description="longest wait of a report, from its arrival to its commit"
    )
    stall_us: int = Field(
        1_000_000,
        ge=1,
        le=600_000_000,
        description="silence after which a stream no longer delays the others",
    )
    max_waiting: int = Field(
        10_000,
        ge=1,
        description="reports that may wait after an advance; beyond it the earliest are committed",
    )
    remembered: int = Field(
        1_024, ge=1, description="statements per stream kept to detect duplicates and revisions"
    )
    remembered_streams: int = Field(64, ge=1, description="closed streams that are kept")
    calibration: CalibrationSettings = CalibrationSettings()


class Committed(NamedTuple, Generic[T]):
    """A report in its final place.

    Attributes:
        seq: counts from 0 without a gap.
        statement: ``seq`` of the first committed revision of the same identity; its own when it is the first.
            Of several with one ``statement`` the newest holds.
        stream: name of the reporting stream.
        event_us: when it happened.
        arrival_us: when it arrived.
        payload: its content.
        identity: as reported.
        revision: as reported; 0 without an identity.
        final: as reported; True without an identity, because no report can revise it.
        late: True when a report that belongs after it had been committed already.
    """

    seq: int
    statement: int
    stream: str
    event_us: int
    arrival_us: int
    payload: T
    identity: str | None
    revision: int
    final: bool
    late: bool


class _Statement(Generic[T]):
    """The newest revision of one identity.

    Attributes:
        first_seq: ``seq`` of its first committed revision; None before.
        waiting: True when it has an entry in the heap that takes its content from here.
        event_us: event time of the newest revision that waits. The entry has the first one's, and moves when
            it is reached.
        accepted: number of that entry.
        waits_from_us: arrival of the revision that gave the present place.
    """

    __slots__ = (
        "accepted",
        "arrival_us",
        "event_us",
        "final",
        "first_seq",
        "identity",
        "payload",
        "revision",
        "waiting",
        "waits_from_us",
    )

    def __init__(self, identity: str, arrival_us: int, payload: T, revision: int, final: bool) -> None:
        self.identity = identity
        self.event_us = self.accepted = self.waits_from_us = 0
        self.arrival_us = arrival_us
        self.payload: T | None = payload
        self.revision = revision
        self.final = final
        self.waiting = True
        self.first_seq: int | None = None


# (event, order of the stream, order of reporting, stream, arrival, payload, statement). The first three are
# the place; the third is unique, so a comparison never reaches a payload. A plain tuple: it is compared
# several times per report, and a class with its own __lt__ costs ten times as much.
_Entry = tuple[int, int, int, str, int, T | None, _Statement[T] | None]
_Place = tuple[int, int, int]
# After every moment of a session clock in microseconds: 146,000 years.
_NO_LIMIT = (1 << 62,)


def _arrival_us(entry: _Entry[T]) -> int:
    return entry[4]


def _place(entry: _Entry[T]) -> _Place:
    """Return the present place of an entry, which a revision may have moved."""
    statement = entry[6]
    if statement is not None and statement.waiting and statement.accepted == entry[2]:
        return statement.event_us, entry[1], entry[2]
    return entry[:3]


@dataclass(slots=True)
class MergeCounts:
    """Counts of what became of the reports.

    Attributes:
        committed: given a place, late ones included.
        late: given a place after it had been passed.
        overdue: given a place on their deadline or with one that was, before the watermark.
        crowded: given a place before the watermark because too many waited.
        superseded: replaced by a newer revision while they waited.
        duplicates: dropped because the revision is known.
        outdated: dropped because a newer revision is known.
        after_final: dropped because a final is not revised.
    """

    committed: int = 0
    late: int = 0
    overdue: int = 0
    crowded: int = 0
    superseded: int = 0
    duplicates: int = 0
    outdated: int = 0
    after_final: int = 0


class Sequencer(Generic[T]):
    """Merge of the streams of one session.

    Args:
        settings: limits on waits and memory; None for the defaults.
    """

    __slots__ = (
        "_accepted",
        "_by_arrival",
        "_counts",
        "_deadline_us",
        "_frontier",
        "_max_waiting",
        "_remembered",
        "_seq",
        "_streams",
        "_waiting",
        "_watermarks",
    )

    def __init__(self, settings: SequencerSettings | None = None) -> None:
        chosen = settings or SequencerSettings()
        self._deadline_us = chosen.deadline_us
        self._max_waiting = chosen.max_waiting
        self._remembered = chosen.remembered
        self._watermarks: Watermarks[_Statement[T]] = Watermarks(
            stall_us=chosen.stall_us, remembered=chosen.remembered_streams, calibration=chosen.calibration
        )
        # A direct reference, because every report looks its stream up.
        self._streams = self._watermarks.streams
        self._waiting: list[_Entry[T]] = []
        # The same entries by arrival, for the deadlines; committed ones leave when their deadline passes.
        self._by_arrival: deque[_Entry[T]] = deque()
        self._accepted = 0
        self._frontier: _Place | None = None
        self._seq = 0
        self._counts = MergeCounts()

    @property
    def waiting(self) -> int:
        """Number of reports that have no place yet."""
        return len(self._waiting)

    @property
    def counts(self) -> MergeCounts:
        """Counts of what became of the reports so far."""
        return replace(self._counts, committed=self._seq)

    def state(self, stream: str, now_us: int) -> StreamState:
        """Return the state of a stream; the order waits for an active one only."""
        return self._watermarks.state(stream, now_us)

    def latency_us(self, stream: str) -> int:
        """Return the present latency estimate of a stream.

        Raises:
            UnknownStreamError: it has not joined.
        """
        return self._watermarks[stream].latency_us

    def passed_us(self, streams: Iterable[str], now_us: int) -> int | None:
        """Return the moment up to which everything from the active ones of ``streams`` is committed.

        None when none of them is active: there is nothing to wait for.
        """
        passed_us = self._watermarks.passed_us(streams, now_us)
        lowest = self._watermarks.lowest(now_us)
        if passed_us is None or lowest is None:
            return None
        committed_us = lowest[0] if self._frontier is None else max(lowest[0], self._frontier[0])
        return min(passed_us, committed_us)

    def apply(self, operation: Operation[T]) -> list[Committed[T]]:
        """Make the call that an operation describes; return its output, which only an ``Advance`` has."""
        match operation:
            case Report(stream, arrival_us, payload, event_us, identity, revision, final):
                self.report(
                    stream,
                    arrival_us,
                    payload,
                    event_us=event_us,
                    identity=identity,
                    revision=revision,
                    final=final,
                )
            case Advance(now_us):
                return self.advance(now_us)
            case Heartbeat(stream, at_us, passed_us):
                self.heartbeat(stream, at_us, passed_us=passed_us)
            case Learn(stream, observed_us):
                self.learn(stream, observed_us)
            case Join(stream, latency_us, at_us, prior_us):
                self.join(stream, latency_us=latency_us, at_us=at_us, prior_us=prior_us)
            case StreamEnded(stream):
                self.leave(stream)
        return []

    def join(self, stream: str, *, latency_us: int, at_us: int, prior_us: int | None = None) -> None:
        """Add a specialist, or add it again: it keeps its identities and its rank in ties.

        ``prior_us`` takes effect from its first ``learn`` on.

        Raises:
            ValueError: a latency is negative or absurd.
        """
        self._watermarks.join(stream, latency_us, at_us, prior_us)

    def leave(self, stream: str) -> None:
        """Remove a specialist, which gates no other from here on.

        Its reports so far, and those still in transit, keep their places.
        """
        self._watermarks.leave(stream)

    def heartbeat(self, stream: str, at_us: int, *, passed_us: int | None = None) -> None:
        """Record that a specialist is alive and has nothing more to report up to ``passed_us``.

        None stands for ``at_us`` minus its latency. A specialist that still works on something older states
        an earlier moment: it is not stalled, and the others wait for it, until their deadline. For a stream
        that has left a heartbeat has no effect on the order.

        Raises:
            UnknownStreamError: it has not joined.
        """
        source = self._streams.get(stream)
        if source is None:
            raise UnknownStreamError(stream)
        source.hear(at_us, at_us - source.latency_us if passed_us is None else passed_us)

    def learn(self, stream: str, observed_us: int) -> int:
        """Add a latency sample of a stream, arrival minus true event time; return its new latency.

        Earlier reports keep their event time.

        Raises:
            UnknownStreamError: it has not joined.
        """
        return self._watermarks[stream].learn(observed_us)

    def report(
        self,
        stream: str,
        arrival_us: int,
        payload: T,
        *,
        event_us: int | None = None,
        identity: str | None = None,
        revision: int = 0,
        final: bool = True,
    ) -> None:
        """Add a report of a specialist; see ``sequencer.operations.Report``.

        Raises:
            UnknownStreamError: it has not joined.
        """
        source = self._streams.get(stream)
        if source is None:
            raise UnknownStreamError(stream)
        # A report promises no more than a heartbeat at its arrival would: the next one of a stream that knows
        # its event times may be about something older.
        passed_us = arrival_us - source.latency_us
        if event_us is None:
            event_us = passed_us
        else:
            if event_us > arrival_us:
                event_us = arrival_us
            if event_us < passed_us:
                passed_us = event_us
        source.hear(arrival_us, passed_us)
        statement: _Statement[T] | None = None
        if identity is not None:
            statements = source.statements
            statement = statements.get(identity)
            if statement is None:
                statement = _Statement(identity, arrival_us, payload, revision, final)
                statements[identity] = statement
                if len(statements) > self._remembered:
                    statements.popitem(last=False)
            else:
                if not self._is_news(statement, revision, final):
                    return
                statements.move_to_end(identity)
                statement.arrival_us = arrival_us
                statement.payload = payload
                statement.revision = revision
                statement.final = final
                if statement.waiting:
                    self._counts.superseded += 1
                    if event_us > statement.event_us:
                        statement.event_us = event_us
                        statement.waits_from_us = arrival_us
                    return
                statement.waiting = True
            statement.event_us = event_us
            statement.waits_from_us = arrival_us
        self._accepted = accepted = self._accepted + 1
        if statement is not None:
            statement.accepted = accepted
        entry: _Entry[T] = (
            event_us,
            source.order,
            accepted,
            stream,
            arrival_us,
            payload if statement is None else None,
            statement,
        )
        heappush(self._waiting, entry)
        by_arrival = self._by_arrival
        if not by_arrival or arrival_us >= by_arrival[-1][4]:
            by_arrival.append(entry)
        else:
            insort(by_arrival, entry, key=_arrival_us)

    def advance(self, now_us: int) -> list[Committed[T]]:
        """Commit and return every report whose place is certain at ``now_us``, in its final order."""
        committed: list[Committed[T]] = []
        waiting = self._waiting
        if not waiting:
            self._by_arrival.clear()
            return committed
        frontier = self._frontier
        if frontier is not None and waiting[0] < frontier:
            self._counts.late += self._commit_below(frontier, committed, late=True)
        lowest = self._watermarks.lowest(now_us)
        # The stream that sets the watermark may report again about that very moment: those that joined before
        # it, and itself, may be committed at that moment, the others may not.
        limit: tuple[int, ...] = _NO_LIMIT if lowest is None else (lowest[0], lowest[1] + 1)
        if waiting and waiting[0] < limit:
            self._commit_below(limit, committed)
        overdue = self._overdue(now_us)
        if overdue is not None:
            self._counts.overdue += self._commit_below((overdue[0], overdue[1], overdue[2] + 1), committed)
        if len(waiting) > self._max_waiting:
            kept = sorted(map(_place, waiting))[-self._max_waiting]
            self._counts.crowded += self._commit_below(kept, committed)
        return committed

    def _is_news(self, statement: _Statement[T], revision: int, final: bool) -> bool:
        """Return whether a report is newer than its statement; count it when it is not."""
        if revision < statement.revision:
            self._counts.outdated += 1
        elif revision == statement.revision and (statement.final or not final):
            self._counts.duplicates += 1
        elif statement.final:
            self._counts.after_final += 1
        else:
            # The same revision repeated as final is news: recognisers confirm their last partial in this way.
            return True
        return False

    def _overdue(self, now_us: int) -> _Place | None:
        """Return the last place in order of the waiting reports whose deadline has passed."""
        by_arrival = self._by_arrival
        arrived_us = now_us - self._deadline_us
        frontier_us = None if self._frontier is None else self._frontier[0]
        overdue: _Place | None = None
        while by_arrival and by_arrival[0][4] <= arrived_us:
            entry = by_arrival.popleft()
            statement = entry[6]
            if statement is not None and statement.waiting and statement.accepted == entry[2]:
                if statement.waits_from_us > arrived_us:
                    moved = (*entry[:4], statement.waits_from_us, *entry[5:])
                    insort(by_arrival, moved, key=_arrival_us)
                    continue
                entry = (statement.event_us, *entry[1:])
            # Most are committed by now: the moment alone rules them out, at a quarter of the cost.
            if frontier_us is None or entry[0] >= frontier_us:
                place = entry[:3]
                if overdue is None or place > overdue:
                    overdue = place
        return overdue

    def _commit_below(
        self, limit: tuple[int, ...], committed: list[Committed[T]], *, late: bool = False
    ) -> int:
        """Commit in order all entries below ``limit``; return their number."""
        waiting = self._waiting
        before = seq = self._seq
        new = tuple.__new__  # the constructor of a NamedTuple costs twice as much
        append = committed.append
        last: _Entry[T] | None = None
        fields: tuple[object, ...]
        while waiting and waiting[0] < limit:
            entry = heappop(waiting)
            event_us, _, _, stream, arrival_us, payload, statement = entry
            if statement is not None and statement.event_us > event_us:
                heappush(waiting, (statement.event_us, *entry[1:]))
                continue
            if statement is None:
                fields = (seq, seq, stream, event_us, arrival_us, payload, None, 0, True, late)
            else:
                if statement.first_seq is None:
                    statement.first_seq = seq
                fields = (
                    seq,
                    statement.first_seq,
                    stream,
                    event_us,
                    statement.arrival_us,
                    statement.payload,
                    statement.identity,
                    statement.revision,
                    statement.final,
                    late,
                )
                statement.waiting = False
                statement.payload = None
            append(new(Committed, fields))
            seq += 1
            last = entry
        if last is not None and not late:
            self._frontier = last[:3]
        self._seq = seq
        return seq - before
