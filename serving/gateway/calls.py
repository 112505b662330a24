"""Conversations of one process: how many there may be, and how each one ends.

Input: arguments of a conversation and a function that hangs up its peer. Output: one named task per
conversation, run by ``run_call``. However a conversation ends, its peer is hung up. A failure is logged once
and ends that conversation only. A process that stops refuses new conversations and lets running ones continue
for ``drain_s``. In the remaining ones the bot says goodbye, within ``goodbye_s``. Then all are hung up at
once (those of sockets by cancelling them, because they notify their client of the reason), and those that do
not end are cancelled.

Full: a conversation that may wait begins without a line (``start(may_wait=True)``). Its task waits for one
(``LineRequest.granted``) before anything else is created for it. There is one queue, which phone callers
share; each caller in it counts as a taken line for those that come after. A waiting conversation uses its
client's share of concurrent calls, and releases it when the client leaves. When the process stops, waiting
conversations are refused first.
"""

import asyncio
import gc
import secrets
from collections.abc import Awaitable, Callable
from typing import cast

from loguru import logger
from pipecat.runner.types import RunnerArguments

from parley.core.errors import CapacityError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.protocols.client_protocol import QueueUpdate
from parley.runtime.shutdown import Shutdown
from parley.serving.gateway.auth.tenants import TenantLimitError, Tenants
from parley.serving.gateway.auth.usage import CallShares, share_of
from parley.serving.gateway.limits import ConcurrencyLimit, ShareError, Slot
from parley.serving.gateway.line_request import LineRequest, Queueing
from parley.serving.scheduler.admission import Admitted
from parley.serving.scheduler.call_queue import CallQueue, QueuedCaller
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.types import Task
from parley.session_store.faults import log_failure

RunCall = Callable[[RunnerArguments], Awaitable[None]]
# Shares of the lines that silent clients may hold: three quarters in all, and a quarter for one address. The
# rest is for clients with a credential, and for those that speak. A quarter of the silent places is for
# addresses that hold none: a few addresses with many silent clients each keep no newcomer out.
SILENT_SHARE, ADDRESS_SHARE, NEWCOMER_SHARE = 0.75, 0.25, 0.25
# A client opens the next socket before the first word of the previous one has arrived.
LEAST_SILENT = 2
# Longest wait in the queue of a client that silent clients leave no line. A client that is going to speak has
# spoken by then.
LONGEST_HELD_BACK_S = 10.0
STOPPING = "the server is stopping, try another or later"
# Kind of conversation from whose length a caller's wait is estimated: speech by turns, like most calls.
KIND = Task.HALF_DUPLEX


class CallTasks:
    """Conversations of this process, each a named task.

    Args:
        run_call: runs one conversation to its end.
        max_calls: maximum number of concurrent conversations.
        drain_s: time for which running conversations may continue when the server stops.
        hang_up_s: time limit of a conversation's end after its peer was hung up.
        shares: concurrent calls of each client; None: every client may have every line.
        shutdown: watched by conversations; None: there is no goodbye.
        goodbye_s: time limit of a goodbye.
        queue: of callers without a line; None: they are refused.
        tenants: whose calls are counted over all processes; None: there are none.

    Attributes:
        queue: as given.
        admitted: returns how many calls the machine can answer now, and the reason. Called before a call
            begins with whether it uses the recogniser. None: as many as there are lines.
        uses_recogniser: returns whether a call of a mode uses the recogniser; the mode is as its
            client named it, or None.
    """

    def __init__(
        self,
        run_call: RunCall,
        *,
        max_calls: int,
        drain_s: float,
        hang_up_s: float,
        shares: CallShares | None = None,
        shutdown: Shutdown | None = None,
        goodbye_s: float = 0,
        queue: CallQueue | None = None,
        tenants: Tenants | None = None,
    ) -> None:
        self._run_call = run_call
        self._tenants = tenants or Tenants()
        self.queue = queue
        # Calls that wait for their line.
        self._waiting: dict[str, LineRequest] = {}
        self._holding: dict[str, LineRequest] = {}
        self._eta = Eta()
        self._shares = shares
        self._max_calls = max_calls
        # Loop time since which every line is taken.
        self._full_since_s: float | None = None
        self._lines = ConcurrencyLimit(max_calls, f"all {max_calls} lines are in use, try again later")
        # Silent clients of any kind, and those among them that would use the recogniser.
        self._silent, self._silent_heard = (
            ConcurrencyLimit(
                max_calls,
                "too many lines are held by clients that have not spoken, try again in a moment",
                each_full="too many clients of this address have not spoken: speak on one of them, or end it",
            )
            for _ in range(2)
        )
        self._heard = ConcurrencyLimit(max_calls, "")
        self._promised: Callable[[], int] = lambda: 0
        self.admitted: Callable[[bool], Admitted | None] = lambda _uses_recogniser: None
        self.uses_recogniser: Callable[[object], bool] = lambda _mode: True
        self._drain_s = drain_s
        self._hang_up_s = hang_up_s
        self._shutdown = shutdown
        self._goodbye_s = goodbye_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._say_goodbye: set[asyncio.Task[None]] = set()
        self._stopping = False

    def count_promised(self, promised: Callable[[], int]) -> None:
        """Count lines that are promised to callers on their way as taken, for later callers."""
        self._promised = promised

    @property
    def active(self) -> int:
        """Number of running conversations."""
        return self._lines.taken

    @property
    def heard(self) -> int:
        """Number of running conversations that use the recogniser."""
        return self._heard.taken

    @property
    def waiting(self) -> int:
        """Number of callers in the queue, by phone or not."""
        return 0 if self.queue is None else len(self.queue)

    def lines(self, *, uses_recogniser: bool = True) -> int:
        """Return how many calls there may be now: the lines, or fewer where the machine can answer no more.

        Args:
            uses_recogniser: the bound of those that use the recogniser.
        """
        admitted = self.admitted(uses_recogniser)
        return self._max_calls if admitted is None else min(self._max_calls, admitted.calls)

    @property
    def is_stopping(self) -> bool:
        """True when no conversation may start any more."""
        return self._stopping

    @property
    def full_for_s(self) -> float:
        """Time since the last line was taken; 0 while one is free."""
        if self._full_since_s is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._full_since_s

    def get(self, call_id: str) -> asyncio.Task[None] | None:
        """Return the running conversation that was started under this id, or None."""
        return self._tasks.get(call_id)

    def check_room(
        self,
        *,
        promised: int | None = None,
        is_promised: bool = False,
        identity: ClientIdentity = ANONYMOUS,
        uses_recogniser: bool = True,
        ticket: str = "",
        may_wait: bool = False,
    ) -> None:
        """Check that a conversation may start, in addition to those that are promised a line.

        Args:
            promised: number of promised lines; None: all of ``count_promised``.
            is_promised: this conversation was promised a line itself. Its caller was answered, and is not
                refused because the machine can answer fewer calls since.
            identity: client that would begin it.
            uses_recogniser: true when it would use the recogniser.
            ticket: of this conversation in the queue; empty: it comes after those that wait.
            may_wait: a place in the queue is enough.

        Raises:
            CapacityError: it may not; as a ShareError, its client has its whole share.
        """
        if self._stopping:
            raise CapacityError(STOPPING, limit=0)
        full = None
        try:
            self._check_lines(
                promised=promised, is_promised=is_promised, uses_recogniser=uses_recogniser, ticket=ticket
            )
        except CapacityError as error:
            if not may_wait or self.queue is None or self.queue.is_full:
                raise
            full = error
        if self._shares is None:
            return
        try:
            self._shares.check(
                identity,
                lines=self.lines(uses_recogniser=False),
                heard_lines=self.lines() if uses_recogniser else None,
            )
        except ShareError:
            if full is None:
                raise
            # It would wait, and its client has no share left for that. The full server is the more useful
            # reason.
            raise full from None

    def has_room(self, *, uses_recogniser: bool = True) -> bool:
        """Return whether a conversation that begins now gets a line at once."""
        try:
            self._check_lines(uses_recogniser=uses_recogniser)
        except CapacityError:
            return False
        return True

    def _check_lines(
        self,
        *,
        promised: int | None = None,
        is_promised: bool = False,
        uses_recogniser: bool,
        ticket: str = "",
    ) -> None:
        promised = self._promised() if promised is None else promised
        ahead = ahead_heard = 0
        if self.queue is not None and not is_promised:
            ahead = self.queue.ahead_of(ticket, for_line=True)
            ahead_heard = self.queue.ahead_of(ticket, heard_only=True, for_line=True)
        self._lines.check(promised=promised + ahead)
        if is_promised:
            return
        self._check_admitted(self.admitted(False), self._lines.taken + promised + ahead)
        if uses_recogniser:
            self._check_admitted(self.admitted(True), self._heard.taken + promised + ahead_heard)

    def _check_admitted(self, admitted: Admitted | None, held: int) -> None:
        if admitted is not None and held >= admitted.calls:
            raise CapacityError(f"{admitted.why}; try again later", limit=admitted.calls)

    def take_silent(self, identity: ClientIdentity, *, uses_recogniser: bool = True) -> Slot:
        """Count a client that may stay silent; its place is released when it speaks or leaves.

        Args:
            identity: of the client; one that has presented a key or a token is not counted.
            uses_recogniser: true when it is to use the recogniser.

        Raises:
            ShareError: this address has its whole share.
            CapacityError: silent clients hold as many lines as they may.
        """
        if identity.owner or identity.is_operator:
            return Slot(lambda: None)
        place = self._take_silent(self._silent, identity, self.lines(uses_recogniser=False))
        if not uses_recogniser:
            return place
        try:
            heard = self._take_silent(self._silent_heard, identity, self.lines())
        except CapacityError:
            place.give_back()
            raise

        def give_back() -> None:
            place.give_back()
            heard.give_back()

        return Slot(give_back)

    def _take_silent(self, places: ConcurrencyLimit, identity: ClientIdentity, lines: int) -> Slot:
        limit = share_of(lines, SILENT_SHARE, least=LEAST_SILENT)
        return places.take(
            identity.address,
            limit=limit,
            each=share_of(lines, ADDRESS_SHARE, least=LEAST_SILENT),
            for_newcomers=int(limit * NEWCOMER_SHARE),
        )

    def start(
        self,
        arguments: RunnerArguments,
        *,
        call_id: str,
        hang_up: Callable[[], Awaitable[None]],
        says_goodbye: bool = False,
        promised: int | None = None,
        is_promised: bool = False,
        identity: ClientIdentity = ANONYMOUS,
        uses_recogniser: bool = True,
        may_wait: bool = False,
        transport: str = "",
        silent: Slot | None = None,
        counts_silence: bool = False,
        goes_on: bool = False,
        is_counted: bool = False,
    ) -> asyncio.Task[None]:
        """Run a conversation in its own task.

        Args:
            arguments: for ``run_call``.
            call_id: names the task; not that of a running conversation.
            hang_up: called however the conversation ends; must have a deadline and not raise.
            says_goodbye: it notifies its peer of the reason when it is cancelled.
            promised, is_promised: as for ``check_room``.
            identity: client that begins it.
            uses_recogniser: true when it uses the recogniser.
            may_wait: without a line it begins in the queue; ``arguments`` receive the request (``Queueing``).
            transport: of the caller, as an operator sees it in the queue.
            silent: place with which the client was counted (``take_silent``).
            counts_silence: the client may stay silent, and is to be counted when it has its line.
            goes_on: it has begun before, maybe in another process: its tenant's limits do not refuse it.
            is_counted: its client says so: the limits of calls in an hour or a day do not refuse it.

        Raises:
            CapacityError: every line is taken and the queue is full or not for this conversation, or the
                server is stopping; as a ShareError, its client has its whole share.
        """

        def take(request: LineRequest) -> None:
            if self._stopping:
                raise CapacityError(STOPPING, limit=0)
            self._hold_back(request, identity, uses_recogniser=uses_recogniser)
            self._check_lines(
                promised=promised,
                is_promised=is_promised,
                uses_recogniser=uses_recogniser,
                ticket=request.ticket,
            )
            if request.held_back_by is not None:
                raise request.held_back_by
            if request.counts_silence:
                request.count_silent(self.take_silent(identity, uses_recogniser=uses_recogniser))
            request.places.append(self._lines.take())
            if uses_recogniser:
                request.places.append(self._heard.take())
            if self._lines.taken >= self._max_calls:
                self._full_since_s = asyncio.get_running_loop().time()
            self._granted(call_id, request)

        def locate(request: LineRequest) -> QueueUpdate:
            return self._place_of(request, uses_recogniser=uses_recogniser)

        line = LineRequest(
            f"l_{secrets.token_hex(18)}",
            take=take,
            locate=locate,
            silent=silent,
            counts_silence=counts_silence,
        )
        self.check_room(
            promised=promised,
            is_promised=is_promised,
            identity=identity,
            uses_recogniser=uses_recogniser,
            may_wait=may_wait,
        )
        if self._shares is not None:
            heard_lines = self.lines() if uses_recogniser else None
            line.places.append(
                self._shares.take(identity, lines=self.lines(uses_recogniser=False), heard_lines=heard_lines)
            )
        try:
            self._take_or_queue(
                line, call_id, uses_recogniser=uses_recogniser, may_wait=may_wait, transport=transport
            )
        except CapacityError:
            line.give_back()
            raise
        if may_wait:
            cast(Queueing, arguments).wait_for(line)
        task = asyncio.create_task(
            self._run(arguments, hang_up, line, identity, goes_on=goes_on, is_counted=is_counted),
            name=f"call.{call_id}",
        )
        self._tasks[call_id] = task
        if says_goodbye:
            self._say_goodbye.add(task)
            task.add_done_callback(self._say_goodbye.discard)
        task.add_done_callback(lambda _task: self._ended(call_id, line))
        return task

    def _hold_back(self, request: LineRequest, identity: ClientIdentity, *, uses_recogniser: bool) -> None:
        """Record whether a request could take a line that came free."""
        held_back = None
        if request.counts_silence:
            try:
                self.take_silent(identity, uses_recogniser=uses_recogniser).give_back()
            except CapacityError as error:
                held_back = error
        request.hold_back(held_back, asyncio.get_running_loop().time())
        if self.queue is not None:
            self.queue.hold_back(request.ticket, held_back is not None)

    def _take_or_queue(
        self, line: LineRequest, call_id: str, *, uses_recogniser: bool, may_wait: bool, transport: str
    ) -> None:
        if not may_wait or self.queue is None:
            line.take()
            return
        try:
            line.take()
        except CapacityError as full:
            try:
                self.queue.join(
                    line.ticket,
                    transport=transport,
                    uses_recogniser=uses_recogniser,
                    is_held_back=line.held_back_by is not None,
                )
            except CapacityError:
                # The reason for the wait says more than a full queue.
                raise full from None
            self._waiting[call_id] = line

    def _granted(self, call_id: str, line: LineRequest) -> None:
        line.grant(asyncio.get_running_loop().time())
        self._holding[call_id] = line
        if self._waiting.pop(call_id, None) is not None:
            self._leave_queue(line.ticket)

    def _leave_queue(self, ticket: str) -> None:
        if self.queue is not None:
            self.queue.leave(ticket)
        self.wake()

    def queued(self) -> list[QueuedCaller]:
        """Return the callers in the queue for a line, by phone or not; the next one first."""
        return [] if self.queue is None else self.queue.callers()

    def remove_queued(self, ticket: str, reason: str) -> bool:
        """Remove a caller from the queue for a line; return whether one with this ticket was in it.

        Args:
            ticket: of the caller.
            reason: sent to the caller in their protocol; by phone, the next poll ends the call with
                ``phone.busy``.
        """
        if self.queue is None or not self.queue.remove(ticket):
            return False
        for line in self._waiting.values():
            if line.ticket == ticket:
                line.refuse(reason)
        self.wake()
        return True

    def wake(self) -> None:
        """Notify waiting conversations that a line may be free, or that another caller has left the queue."""
        for line in self._waiting.values():
            line.wake()

    def _place_of(self, line: LineRequest, *, uses_recogniser: bool) -> QueueUpdate:
        """Return the place of a conversation that waits.

        Raises:
            CapacityError: it may not wait any longer.
        """
        if self.queue is None or self._stopping:
            raise CapacityError(STOPPING, limit=0)
        if self.queue.is_overdue(line.ticket):
            longest_s = self.queue.settings.longest_s
            raise CapacityError(f"no line became free within {longest_s:g} s, try again later", limit=0)
        now_s = asyncio.get_running_loop().time()
        if line.held_back_by is not None and now_s - line.held_back_s >= LONGEST_HELD_BACK_S:
            raise line.held_back_by
        position = self.queue.ahead_of(line.ticket) + 1
        # Calls beyond the present bound, which must end before another one begins.
        excess = max(
            0,
            self._lines.taken - self.lines(uses_recogniser=False),
            self._heard.taken - self.lines() if uses_recogniser else 0,
        )
        held_s = [now_s - held.since_s for held in self._holding.values()]
        wait_s = self._eta.wait_s(KIND, held_s, position + excess)
        wait_s = None if wait_s is None else round(wait_s, 1)
        return QueueUpdate(position, wait_s, ticket_id=line.ticket, length=len(self.queue))

    def _ended(self, call_id: str, line: LineRequest) -> None:
        del self._tasks[call_id]
        line.give_back()
        if self._waiting.pop(call_id, None) is not None:
            self._leave_queue(line.ticket)
        if self._holding.pop(call_id, None) is not None:
            self._full_since_s = None
            self.wake()
        if not self._tasks:
            # Frees what calls may have left in reference cycles. No call is running, so a pause is harmless.
            gc.collect()

    async def _run(
        self,
        arguments: RunnerArguments,
        hang_up: Callable[[], Awaitable[None]],
        line: LineRequest,
        identity: ClientIdentity,
        *,
        goes_on: bool,
        is_counted: bool,
    ) -> None:
        try:
            async with self._tenants.call(
                identity, lambda: line.is_granted, goes_on=goes_on, is_counted=is_counted
            ):
                await self._run_call(arguments)
            if line.is_granted:
                self._eta.ended_well(KIND, asyncio.get_running_loop().time() - line.since_s)
        except TenantLimitError as error:
            # Another process has begun a call of the tenant since this one was admitted.
            logger.warning(f"a call ends before it has begun: {error}")
        except Exception as error:
            # Outermost level of one conversation: it ends, the others continue.
            log_failure("a conversation failed", error)
        finally:
            # Otherwise the peer of an ended conversation would stay connected in silence and hold its line.
            await hang_up()

    async def close(self, hang_up_all: Callable[[], Awaitable[None]]) -> None:
        """Refuse new conversations, let running ones end within ``drain_s``, say goodbye, hang up, cancel.

        Returns at once when there is none.

        Args:
            hang_up_all: hangs up every peer; must have a deadline and not raise.
        """
        if self._stopping:
            # The server has been stopped already.
            return
        self._stopping = True
        # Waiting conversations are refused.
        self.wake()
        if self._shutdown is not None:
            self._shutdown.stopping.set()
        await self._wait(self._drain_s)
        if self._tasks and self._shutdown is not None and self._goodbye_s:
            self._shutdown.closing.set()
            await self._wait(self._goodbye_s)
        for task in self._say_goodbye:
            task.cancel()
        await hang_up_all()
        await self._wait(self._hang_up_s)
        for task in self._tasks.values():
            task.cancel()
        await self._wait(self._hang_up_s)

    async def _wait(self, timeout_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_s)
