"""Request of one call for a line: granted when the call begins, or after a wait in the queue.

Decides when a call that waits looks for its line again, and when its caller gets a new place. In: a
call that ended or a caller who left (``wake``), and the clock, because a bound that rises and a telephone
caller who was given up announce nothing. Out: places in the queue (``InQueue``), then the line.

The order is not decided here: whichever request looks first, ``take`` counts the callers ahead of it
(``serving.scheduler.call_queue``). The conversation of the call waits in its own task, which
``CallTasks`` owns. Slow: a caller who does not take in a message within ``TELL_S`` is given up. Refused (too
long a wait, removed from the queue, a server that stops): ``granted`` raises. Cancelled or gone: the task
ends, and its place in the queue with it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from core.errors import CapacityError
from protocols.surface import InQueue
from serving.gateway.limits import Place

# Seconds until a request looks again by itself, and until an unchanged place is told with a new estimate (as
# often as the MiniCPM-o server does).
LOOK_S, REPEAT_S = 1.0, 3.0
TELL_S = 3.0

Tell = Callable[[InQueue], Awaitable[None]]


class LineRequest:
    """Request of one call.

    Args:
        ticket: of the call in the queue; unguessable.
        take: takes the line, or raises CapacityError while there is none.
        locate: returns the place in the queue, or raises CapacityError when the call may wait no longer.

    Attributes:
        ticket: as given.
        places: what the call holds, to be given back at its end.
        silent: counted among the clients that hold a line and have said nothing; None: not counted.
        counts_silence: ``silent`` is to be taken with the line.
        held_back_by: why it could take no line that came free, where clients that have said nothing have all
            that they may; None: it could.
        held_back_s: loop time since when.
        is_granted: the call has its line.
        since_s: loop time since when.
    """

    def __init__(
        self,
        ticket: str,
        *,
        take: Callable[["LineRequest"], None],
        locate: Callable[["LineRequest"], InQueue],
        silent: Place | None = None,
        counts_silence: bool = False,
    ) -> None:
        self.ticket = ticket
        self.places: list[Place] = []
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
        """Call ``then`` when the call has its line: now, where it has one."""
        if self.is_granted:
            then()
        else:
            self._on_granted = then

    def grant(self, at_s: float) -> None:
        """Note that the call has its line, since ``at_s`` of the loop."""
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
        """Look for the line again, and tell of a new place."""
        self._changed.set()

    def refuse(self, reason: str) -> None:
        """End the wait of a call that has no line; its caller is given the reason."""
        self._refusal = reason
        self._changed.set()

    def hold_back(self, reason: CapacityError | None, at_s: float) -> None:
        """Note whether the call could take a line that came free, and since when not."""
        if self.held_back_by is None:
            self.held_back_s = at_s
        self.held_back_by = reason

    def count_silent(self, place: Place) -> None:
        """Count the client as one that has said nothing."""
        self.silent = place

    def spoke(self) -> None:
        """Count the client no longer as one that has said nothing."""
        self.counts_silence = False
        if self.silent is not None:
            self.silent.give_back()

    def give_back(self) -> None:
        """Give back everything that the call holds."""
        self.spoke()
        for place in self.places:
            place.give_back()

    async def granted(self, tell: Tell) -> None:
        """Wait for the line.

        Args:
            tell: reports the place in the queue to the caller: at the beginning, when it has changed, and
                every ``REPEAT_S``. Not called for a call that has its line.

        Raises:
            CapacityError: the call may not wait any longer.
            TimeoutError: the caller does not take in what they are told.
        """
        loop = asyncio.get_running_loop()
        told_position, told_s = 0, 0.0
        while not self._try_take():
            place = self._locate(self)
            if place.position != told_position or loop.time() - told_s >= REPEAT_S:
                told_position, told_s = place.position, loop.time()
                async with asyncio.timeout(TELL_S):
                    await tell(place)
                # It may have taken a while.
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
        line: to be waited for; None: the conversation has it.
    """

    line: LineRequest | None = None

    def wait_for(self, line: LineRequest) -> None:
        """Have the conversation wait for its line."""
        self.line = line
