"""Queue of callers for a line, in order of arrival, for all transports. Pure: a clock is passed in.

Decides the order, how many callers may wait and for how long. Inputs: callers that join under a ticket of
their own, leave, or are removed by an operator. Output: how many are ahead of a caller. The owner grants
lines: it counts the callers ahead as taken lines, so a newcomer gets one only when there are more than the
waiting callers need. A caller who could not take a free line, because their address has its whole share, is
held back: no other caller waits for them, and they take no place of the others.

A caller on a connection leaves when the connection ends. A phone caller is polled for, and is removed
when the next poll is late (``expires_s``). When an operator removes a polled caller, the removal is
remembered until then, so that the poll does not put them at the end.

Each caller counts in four orders, one for each kind of count, so that a count does not visit the callers.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import Field

from parley.core.durations import DurationCounts
from parley.core.errors import CapacityError
from parley.core.strict_model import StrictModel
from parley.serving.scheduler.arrival_order import ArrivalOrder


class CallQueueSettings(StrictModel):
    """Bounds of the queue for a line."""

    most: int = Field(
        20,
        ge=1,
        le=10_000,
        description="waiting callers, by phone or otherwise; more are refused. As many again may wait "
        "while clients that have not spoken yet hold all the lines that they may hold",
    )
    longest_s: float = Field(
        600.0, ge=1, le=14_400, description="longest wait for a line; then the caller is refused"
    )


@dataclass(frozen=True, slots=True)
class QueuedCaller:
    """Caller in the queue, as an operator sees them.

    Attributes:
        ticket: of the caller.
        transport: of the caller.
        position: as reported to the caller; 1 is next.
        waited_s: time since they joined.
        is_polled: true for a caller who is polled for.
    """

    ticket: str
    transport: str
    position: int
    waited_s: float
    is_polled: bool


@dataclass(slots=True)
class _Queued:
    """Entry of one caller.

    Attributes:
        number: of the arrival.
        transport: of the caller.
        uses_recogniser: the call would use the recogniser.
        since_s: when they joined.
        expires_s: when they are removed unless ``refresh`` comes first; None: they leave on their own.
        is_held_back: they could not take a free line.
    """

    number: int
    transport: str
    uses_recogniser: bool
    since_s: float
    expires_s: float | None
    is_held_back: bool = False


class CallQueue:
    """Queue of one server.

    Args:
        settings: bounds.
        clock_s: monotonic.

    Attributes:
        waits: waits of the callers who have left the queue, with a line or without.
    """

    def __init__(self, settings: CallQueueSettings, clock_s: Callable[[], float]) -> None:
        self.settings = settings
        self.waits = DurationCounts()
        self._clock_s = clock_s
        # Arrivals come in ascending order, so this is in the order of the queue.
        self._queued: dict[str, _Queued] = {}
        self._numbers = itertools.count()
        # Numbers of the callers by (held back ones included, only those who would use the recogniser).
        self._orders = {key: ArrivalOrder() for key in itertools.product((False, True), repeat=2)}
        self._held_back = 0
        # Polled callers by the time at which they are removed, with lazy removal: a refreshed caller is put
        # back with the later time when the earlier one has come.
        self._expiries: list[tuple[float, int, str]] = []
        # Removed callers that are polled for, with the time at which the next poll is late.
        self._removed: dict[str, float] = {}
        self._removals: list[tuple[float, str]] = []

    def __contains__(self, ticket: object) -> bool:
        return ticket in self._queued

    def __len__(self) -> int:
        self._remove_expired()
        return len(self._queued)

    @property
    def is_full(self) -> bool:
        """True when no further caller may wait, except one who is held back."""
        return self._has_no_room(is_held_back=False)

    def _has_no_room(self, *, is_held_back: bool) -> bool:
        self._remove_expired()
        alike = self._held_back if is_held_back else len(self._queued) - self._held_back
        return alike >= self.settings.most

    def join(
        self,
        ticket: str,
        *,
        transport: str = "",
        uses_recogniser: bool = True,
        expires_s: float | None = None,
        is_held_back: bool = False,
    ) -> None:
        """Put a caller at the end.

        Args:
            ticket: of the caller; not one that is queued.
            transport: of the caller.
            uses_recogniser: the call would use the recogniser.
            expires_s: clock time of their removal without ``refresh``; None: never.
            is_held_back: they could not take a free line; as many of these may wait as of the others.

        Raises:
            CapacityError: the queue is full.
        """
        if self._has_no_room(is_held_back=is_held_back):
            raise CapacityError("the queue for a line is full, try again later", limit=self.settings.most)
        number, now_s = next(self._numbers), self._clock_s()
        queued = _Queued(number, transport, uses_recogniser, now_s, expires_s, is_held_back)
        self._queued[ticket] = queued
        self._held_back += is_held_back
        for order in self._orders_of(queued):
            order.add(number)
        if expires_s is not None:
            heapq.heappush(self._expiries, (expires_s, number, ticket))

    def hold_back(self, ticket: str, is_held_back: bool) -> None:
        """Set whether a caller could take a free line; has no effect on one that is not queued."""
        queued = self._queued.get(ticket)
        if queued is None or queued.is_held_back is is_held_back:
            return
        before = self._orders_of(queued)
        queued.is_held_back = is_held_back
        self._held_back += 1 if is_held_back else -1
        for order in before:
            order.discard(queued.number)
        for order in self._orders_of(queued):
            order.add(queued.number)

    def refresh(self, ticket: str, expires_s: float) -> None:
        """Postpone the removal of a caller; has no effect on one that is not queued."""
        queued = self._queued.get(ticket)
        if queued is None:
            return
        if queued.expires_s is None or expires_s < queued.expires_s:
            heapq.heappush(self._expiries, (expires_s, queued.number, ticket))
        queued.expires_s = expires_s

    def ahead_of(self, ticket: str, *, heard_only: bool = False, for_line: bool = False) -> int:
        """Return how many callers are ahead of this one, or of one who joins now if it is not queued.

        Callers who are held back are counted only for one who is held back.

        Args:
            ticket: of the caller.
            heard_only: count only calls that would use the recogniser.
            for_line: count only those who would take a free line.
        """
        self._remove_expired()
        mine = self._queued.get(ticket)
        counts_all = not for_line and mine is not None and mine.is_held_back
        order = self._orders[counts_all, heard_only]
        return len(order) if mine is None else order.before(mine.number)

    def is_overdue(self, ticket: str) -> bool:
        """Return whether a caller has waited as long as allowed."""
        queued = self._queued.get(ticket)
        return queued is not None and self._clock_s() - queued.since_s >= self.settings.longest_s

    def callers(self) -> list[QueuedCaller]:
        """Return all callers in order of arrival."""
        self._remove_expired()
        now_s = self._clock_s()
        return [
            QueuedCaller(
                ticket,
                each.transport,
                self.ahead_of(ticket) + 1,
                now_s - each.since_s,
                each.expires_s is not None,
            )
            for ticket, each in self._queued.items()
        ]

    def remove(self, ticket: str) -> bool:
        """Remove a caller on behalf of an operator; return whether they were queued."""
        self._remove_expired()
        queued = self._drop(ticket)
        if queued is not None and queued.expires_s is not None:
            self._removed[ticket] = queued.expires_s
            heapq.heappush(self._removals, (queued.expires_s, ticket))
        return queued is not None

    def was_removed(self, ticket: str) -> bool:
        """Return whether a polled caller was removed by an operator."""
        return ticket in self._removed

    def leave(self, ticket: str) -> float | None:
        """Remove a caller; return how long they waited, in seconds, or None when they are not queued."""
        queued = self._drop(ticket)
        if queued is None:
            return None
        waited_s = self._clock_s() - queued.since_s
        self.waits.add(waited_s)
        return waited_s

    def _orders_of(self, queued: _Queued) -> list[ArrivalOrder]:
        """Return the orders in which a caller counts."""
        return [
            order
            for (with_held_back, heard_only), order in self._orders.items()
            if (with_held_back or not queued.is_held_back) and (queued.uses_recogniser or not heard_only)
        ]

    def _drop(self, ticket: str) -> _Queued | None:
        queued = self._queued.pop(ticket, None)
        if queued is not None:
            self._held_back -= queued.is_held_back
            for order in self._orders_of(queued):
                order.discard(queued.number)
        return queued

    def _remove_expired(self) -> None:
        now_s = self._clock_s()
        while self._expiries and self._expiries[0][0] < now_s:
            _, number, ticket = heapq.heappop(self._expiries)
            queued = self._queued.get(ticket)
            if queued is None or queued.number != number or queued.expires_s is None:
                continue
            if queued.expires_s < now_s:
                self._drop(ticket)
            else:
                heapq.heappush(self._expiries, (queued.expires_s, number, ticket))
        while self._removals and self._removals[0][0] < now_s:
            expires_s, ticket = heapq.heappop(self._removals)
            if self._removed.get(ticket) == expires_s:
                del self._removed[ticket]
