"""Request of one call for a line: granted when the call begins, or after a wait in the queue.

Decides when a waiting call tries again to take a line, and when its caller is notified of a new place.
Inputs: calls that ended or callers who left (``wake``), and the clock, because a rising bound and the expiry
of a phone caller are not announced. Outputs: places in the queue (``QueueUpdate``), then the line.

The order is not decided here: whichever request tries first, ``take`` counts the callers ahead of it
(``serving.scheduler.call_queue``). The conversation of the call waits in its own task, which ``CallTasks``
owns. Slow: a caller that does not receive a message within ``REPORT_TIMEOUT_S`` is given up. Refused (too
long a wait, removed from the queue, a server that stops): ``granted`` raises. Cancelled or gone: the task
ends, and its place in the queue with it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from parley.core.errors import CapacityError
from parley.protocols.client_protocol import QueueUpdate
from parley.serving.gateway.limits import Slot

# Seconds until a request tries again on its own, and until an unchanged place is reported with a new estimate
# (as often as the MiniCPM-o server does).
LOOK_S, REPEAT_S = 1.0, 3.0
REPORT_TIMEOUT_S = 3.0

ReportPlace = Callable[[QueueUpdate], Awaitable[None]]


class LineRequest:
    """Request of one call for a line.

    Args:
        ticket: of the call in the queue; unguessable.
        take: takes the line, or raises CapacityError while there is none.
        locate: returns the place in the queue, or raises CapacityError when the call may wait no longer.

    Attributes:
        ticket: as given.
        places: held by the call, to be released at its end.
        silent: place among the silent clients that hold a line; None: not counted.
        counts_silence: ``silent`` is to be taken with the line.
        held_back_by: reason why it could not take a free line, because silent clients have their whole share;
            None: it could.
        held_back_s: loop time since when.
        is_granted: true when the call has its line.
        since_s: loop time since when.
    """

    def __init__(
        self,
        ticket: str,
        *,
        take: Callable[["LineRequest"], None],
        locate: Callable[["LineRequest"], QueueUpdate],
        silent: Slot | None = None,
        counts_silence: bool = False,
    ) -> None:
        self.ticket = ticket
        self.places: list[Slot] = []
        self.silent = silent
        self.counts_silence = counts_silence
        self.held_back_by: CapacityError | None = None
        self.held_back_s = 0.0
        self.is_granted = False
        self.since_s = 0.0
        self._take_line = take
        self._locate = locate
        self._refusal = ""
        self._changed = asyncio.Event()
        self._on_granted: Callable[[], None] | None = None

    def when_granted(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the call has its line, or at once if it has one."""
        if self.is_granted:
            then()
        else:
            self._on_granted = then

    def grant(self, at_s: float) -> None:
        """Record that the call has its line, since ``at_s`` of the loop."""
        self.is_granted, self.since_s = True, at_s
        then, self._on_granted = self._on_granted, None
        if then is not None:
            then()

    def take(self) -> None:
        """Take the line.

        Raises:
            CapacityError: there is none.
        """
        self._take_line(self)

    def wake(self) -> None:
        """Try again to take the line, and report a new place."""
        self._changed.set()

    def refuse(self, reason: str) -> None:
        """End the wait of a call that has no line; its caller receives the reason."""
        self._refusal = reason
        self._changed.set()

    def hold_back(self, reason: CapacityError | None, at_s: float) -> None:
        """Record whether the call could take a line that came free, and since when not."""
        if self.held_back_by is None:
            self.held_back_s = at_s
        self.held_back_by = reason

    def count_silent(self, place: Slot) -> None:
        """Count the client as silent."""
        self.silent = place

    def spoke(self) -> None:
        """Stop counting the client as silent."""
        self.counts_silence = False
        if self.silent is not None:
            self.silent.give_back()

    def give_back(self) -> None:
        """Release all places that the call holds."""
        self.spoke()
        for place in self.places:
            place.give_back()

    async def granted(self, report: ReportPlace) -> None:
        """Wait for the line.

        Args:
            report: reports the place in the queue to the caller: at the beginning, when it has changed, and
                every ``REPEAT_S``. Not called for a call that has its line.

        Raises:
            CapacityError: the call may not wait any longer.
            TimeoutError: the caller does not receive the reports.
        """
        loop = asyncio.get_running_loop()
        reported_position, reported_s = 0, 0.0
        while not self._try_take():
            place = self._locate(self)
            if place.position != reported_position or loop.time() - reported_s >= REPEAT_S:
                reported_position, reported_s = place.position, loop.time()
                async with asyncio.timeout(REPORT_TIMEOUT_S):
                    await report(place)
                # The report may have taken a while.
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            self._changed.clear()

    def _try_take(self) -> bool:
        if self._refusal and not self.is_granted:
            raise CapacityError(self._refusal, limit=0)
        if not self.is_granted:
            with suppress(CapacityError):
                self.take()
        return self.is_granted


@dataclass(kw_only=True)
class Queueing:
    """Arguments of a conversation that may have to wait for its line before it begins.

    Attributes:
        line: request to be awaited; None: the conversation has its line.
    """

    line: LineRequest | None = None

    def wait_for(self, line: LineRequest) -> None:
        """Make the conversation wait for its line."""
        self.line = line
