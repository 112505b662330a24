"""Calls that wait for a line, on virtual time: their order, their notifications, the end of the wait."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pipecat.runner.types import RunnerArguments

from parley.core.errors import CapacityError
from parley.core.grants import ClientIdentity
from parley.protocols.client_protocol import QueueUpdate
from parley.serving.gateway.auth.usage import CallShares
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.line_request import Queueing
from parley.serving.gateway.settings import ServerTuning
from parley.serving.scheduler.admission import Admitted
from parley.serving.scheduler.call_queue import CallQueue, CallQueueSettings
from tests import virtual_time


def now_s() -> float:
    """Return the seconds since the beginning of the test."""
    return asyncio.get_running_loop().time() - virtual_time.START_S


@dataclass(kw_only=True)
class Caller(Queueing, RunnerArguments):
    """A caller that records its notifications.

    Attributes:
        leaves: set when they hang up.
        received: positions in the queue, each with its time.
        began_s: time of the beginning of their conversation.
        refused: reason for which they may not wait any longer.
        stalls: they read none of the messages.
    """

    leaves: asyncio.Event = field(default_factory=asyncio.Event)
    received: list[tuple[float, QueueUpdate]] = field(default_factory=list)
    began_s: float | None = None
    refused: str = ""
    stalls: bool = False

    async def report_place(self, place: QueueUpdate) -> None:
        self.received.append((now_s(), place))
        if self.stalls:
            await asyncio.Event().wait()

    @property
    def positions(self) -> list[int]:
        """Positions of which the caller was notified, repeated ones once."""
        received = [place.position for _, place in self.received]
        return [each for at, each in enumerate(received) if at == 0 or received[at - 1] != each]


async def hold(caller: Any) -> None:
    """Wait for a line as conversations of the product do, and hold it."""
    assert caller.line is not None
    waiting = asyncio.ensure_future(caller.line.granted(caller.report_place))
    leaving = asyncio.ensure_future(caller.leaves.wait())
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            return
        await waiting
        caller.began_s = now_s()
        await leaving
    except (CapacityError, TimeoutError) as error:
        caller.refused = str(error) or "gone"
    finally:
        waiting.cancel()
        leaving.cancel()


async def nothing() -> None:
    return None


class House:
    """A server with a number of lines, and its callers."""

    def __init__(self, *, lines: int, max_calls: int = 8, shares: bool = False, **bounds: Any) -> None:
        self.queue = CallQueue(CallQueueSettings(**bounds), now_s)
        self.calls = CallTasks(
            hold,
            max_calls=max_calls,
            drain_s=20,
            hang_up_s=1,
            queue=self.queue,
            shares=CallShares(ServerTuning(max_calls=8)) if shares else None,
        )
        self.admitted = Admitted(lines, f"this machine can recognise {lines} at once")
        self.calls.admitted = lambda uses_recogniser: (
            self.admitted if uses_recogniser else Admitted(8, "every line is taken")
        )

    def call(self, *, uses_recogniser: bool = True, may_wait: bool = True, **more: Any) -> Caller:
        caller = Caller(stalls=more.pop("stalls", False))
        identity = ClientIdentity(address=more.pop("address", ""))
        self.calls.start(
            caller,
            call_id=f"call.{id(caller)}",
            hang_up=nothing,
            uses_recogniser=uses_recogniser,
            may_wait=may_wait,
            identity=identity,
            **more,
        )
        return caller


@asynccontextmanager
async def house(*, lines: int = 1, max_calls: int = 8, **bounds: Any) -> AsyncIterator[House]:
    opened = House(lines=lines, max_calls=max_calls, **bounds)
    try:
        yield opened
    finally:
        opened.calls._drain_s = 0
        await opened.calls.close(nothing)


def scenario(run: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on virtual time."""

    def test() -> None:
        virtual_time.run(run())

    test.__name__ = run.__name__
    return test


@scenario
async def test_callers_have_the_lines_in_the_order_in_which_they_came():
    async with house() as server:
        first, second, third = (server.call() for _ in range(3))
        await asyncio.sleep(5)
        assert (first.began_s, second.began_s, third.began_s) == (0, None, None)
        assert (server.calls.active, server.calls.waiting) == (1, 2)
        first.leaves.set()
        await asyncio.sleep(0.1)
        assert (second.began_s, third.began_s) == (5, None)
        second.leaves.set()
        await asyncio.sleep(0.1)
        assert third.began_s == pytest.approx(5.1)
        assert (first.positions, second.positions, third.positions) == ([], [1], [2, 1])
        assert second.received[0][1].ticket_id and second.received[0][1].length == 2


@scenario
async def test_a_caller_who_is_removed_from_the_queue_is_refused_and_the_next_one_moves_up():
    async with house() as server:
        first, second, third = (server.call(transport="webrtc") for _ in range(3))
        await asyncio.sleep(5)
        [one, other] = server.calls.queued()
        assert [one.position, other.position] == [1, 2] and one.waited_s == 5
        assert one.transport == "webrtc" and one.ticket == second.received[0][1].ticket_id
        # A line is freed at the same moment: it is not for the caller who was removed.
        first.leaves.set()
        assert server.calls.remove_queued(one.ticket, "an operator removed you from the queue")
        await asyncio.sleep(0.1)
        assert (second.refused, second.began_s) == ("an operator removed you from the queue", None)
        assert third.began_s == 5 and server.calls.waiting == 0
        assert not server.calls.remove_queued(one.ticket, "again")


@scenario
async def test_a_newcomer_does_not_overtake_callers_who_wait():
    async with house() as server:
        first, second = server.call(), server.call()
        await asyncio.sleep(1)
        # Both happen before any task of a caller runs again.
        first.leaves.set()
        await asyncio.sleep(0)
        third = server.call()
        await asyncio.sleep(0.1)
        assert second.began_s == 1 and third.began_s is None
        with pytest.raises(CapacityError, match="can recognise 1 at once"):
            server.call(may_wait=False)


@scenario
async def test_a_newcomer_does_not_take_the_last_of_all_lines_from_callers_who_wait_for_it():
    async with house(lines=8, max_calls=1) as server:
        first, second = server.call(), server.call()
        await asyncio.sleep(1)
        first.leaves.set()
        await asyncio.sleep(0)
        typed = server.call(uses_recogniser=False)
        await asyncio.sleep(0.1)
        assert second.began_s == 1 and typed.began_s is None


@scenario
async def test_a_telephone_caller_keeps_their_place_among_the_others():
    async with house() as server:
        first = server.call()
        server.queue.join("CA1", expires_s=30)
        second = server.call()
        await asyncio.sleep(1)
        assert second.positions == [2]
        first.leaves.set()
        await asyncio.sleep(5)
        # The line is the phone caller's until their next poll.
        assert second.began_s is None
        server.calls.check_room(promised=0, ticket="CA1")
        with pytest.raises(CapacityError):
            server.calls.check_room(promised=0, ticket="CA2")
        await asyncio.sleep(26)
        # The phone caller did not come back.
        assert second.began_s is not None and 30 <= second.began_s <= 31.1


@scenario
async def test_a_caller_who_leaves_is_removed_at_once():
    async with house() as server:
        first, second, third = (server.call() for _ in range(3))
        await asyncio.sleep(1)
        second.leaves.set()
        await asyncio.sleep(0.05)
        assert server.calls.waiting == 1
        assert third.positions == [2, 1] and third.received[-1][0] == pytest.approx(1, abs=0.05)
        first.leaves.set()
        await asyncio.sleep(0.05)
        assert third.began_s is not None and second.began_s is None


@scenario
async def test_a_full_queue_refuses_with_what_the_machine_is_full_of():
    async with house(most=1) as server:
        server.call()
        server.call()
        server.calls.check_room(identity=ClientIdentity(), uses_recogniser=False)
        for attempt in (lambda: server.calls.check_room(may_wait=True), server.call):
            with pytest.raises(CapacityError, match="can recognise 1 at once; try again later"):
                attempt()


@scenario
async def test_a_caller_who_has_waited_as_long_as_one_may_is_refused():
    async with house(longest_s=60) as server:
        server.call()
        second = server.call()
        await asyncio.sleep(62)
        assert second.refused == "no line became free within 60 s, try again later"
        assert server.calls.waiting == 0


@scenario
async def test_a_place_that_stays_is_told_again_with_a_new_estimate():
    async with house() as server:
        server.call()
        second = server.call()
        await asyncio.sleep(10)
        assert [round(at_s) for at_s, _ in second.received] == [0, 3, 6, 9]
        waits_s = [place.wait_s for _, place in second.received]
        # A call by turns is taken to last 180 s.
        assert waits_s == [180, 177, 174, 171]


@scenario
async def test_a_bound_that_rises_lets_the_next_caller_in_within_a_second():
    async with house() as server:
        server.call()
        second, third = server.call(), server.call()
        await asyncio.sleep(10.5)
        server.admitted = Admitted(2, "this machine can recognise 2 at once")
        await asyncio.sleep(1.1)
        assert second.began_s is not None and third.began_s is None


@scenario
async def test_a_bound_below_the_calls_that_are_held_keeps_waiting_callers_out_until_enough_have_ended():
    async with house(lines=3) as server:
        held = [server.call() for _ in range(3)]
        waits = server.call()
        await asyncio.sleep(1)
        server.admitted = Admitted(2, "answers are late")
        held[0].leaves.set()
        await asyncio.sleep(5)
        assert waits.began_s is None
        held[1].leaves.set()
        await asyncio.sleep(0.1)
        assert waits.began_s == 6


@scenario
async def test_a_caller_whom_the_recogniser_does_not_hear_is_not_kept_out_by_those_it_has_no_room_for():
    async with house() as server:
        server.call()
        spoken = server.call()
        typed = server.call(uses_recogniser=False)
        await asyncio.sleep(0.1)
        assert typed.began_s == 0 and spoken.began_s is None


@scenario
async def test_a_caller_in_the_queue_has_a_part_of_the_share_of_their_address():
    async with house(lines=3, shares=True) as server:
        for _ in range(2):
            server.call(address="192.0.2.1")
        server.call(address="192.0.2.9")
        with pytest.raises(CapacityError, match="can recognise 3 at once"):
            server.call(address="192.0.2.1")
        other = server.call(address="192.0.2.2")
        server.call(address="192.0.2.2")
        with pytest.raises(CapacityError, match="can recognise 3 at once"):
            server.call(address="192.0.2.2")
        await asyncio.sleep(1)
        other.leaves.set()
        await asyncio.sleep(0.1)
        server.call(address="192.0.2.2")


@scenario
async def test_a_stopping_server_refuses_callers_who_wait_and_lets_calls_go_on():
    async with house() as server:
        first, second = server.call(), server.call()
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(server.calls.close(nothing))
        await asyncio.sleep(0.1)
        assert "the server is stopping" in second.refused
        assert first.began_s == 0 and not first.refused and not stopping.done()
        assert (server.calls.active, server.calls.waiting) == (1, 0)
        first.leaves.set()
        await stopping


@scenario
async def test_a_caller_who_takes_in_nothing_does_not_hold_up_the_others_for_long():
    async with house() as server:
        first = server.call()
        stalled = server.call(stalls=True)
        third = server.call()
        await asyncio.sleep(1)
        first.leaves.set()
        await asyncio.sleep(3)
        assert stalled.began_s is None and stalled.refused == "gone"
        assert third.began_s is not None and third.began_s <= 3.1


@scenario
async def test_silent_clients_from_the_queue_hold_no_more_lines_than_others():
    async with house(lines=4) as server:
        held = [server.call() for _ in range(4)]
        # Of four lines an address may hold two silently.
        waits = [server.call(address="192.0.2.1", counts_silence=True) for _ in range(3)]
        await asyncio.sleep(1)
        for each in held:
            each.leaves.set()
        await asyncio.sleep(2)
        assert [each.began_s is not None for each in waits] == [True, True, False]
        assert waits[0].line is not None
        waits[0].line.spoke()
        await asyncio.sleep(1.1)
        assert waits[2].began_s is not None


@scenario
async def test_no_one_waits_after_clients_whose_address_holds_all_that_it_may_without_a_word():
    async with house(lines=8, most=3) as server:
        silent = [server.call(address="192.0.2.1", counts_silence=True) for _ in range(5)]
        await asyncio.sleep(2)
        assert [each.began_s is not None for each in silent] == [True, True, False, False, False]
        assert [each.positions for each in silent[2:]] == [[1], [2], [3]]
        with pytest.raises(CapacityError):
            server.call(address="192.0.2.1", counts_silence=True)
        # Six lines are free. Three more callers find room in the queue when these are taken.
        others = [server.call(address=f"192.0.2.{number}", counts_silence=False) for number in range(2, 11)]
        await asyncio.sleep(2)
        assert [each.began_s == 2 for each in others] == 6 * [True] + 3 * [False]
        assert [each.positions for each in others[6:]] == [[1], [2], [3]]
        # A caller whose share comes back has the place of their arrival.
        silent[0].leaves.set()
        await asyncio.sleep(1.1)
        assert [each.began_s is not None for each in silent[2:]] == [True, False, False]
        assert not any(each.began_s is not None for each in others[6:])
        # It waits ten seconds for silent callers, in which they could have spoken.
        await asyncio.sleep(9)
        assert ["have not spoken" in each.refused for each in silent] == 3 * [False] + 2 * [True]
        assert not any(each.refused for each in others)


@scenario
async def test_a_caller_in_the_queue_is_watched_for_a_first_word_when_they_have_their_line():
    async with house() as server:
        first, second = server.call(), server.call()
        watched_s: list[float] = []
        for caller in (first, second):
            assert caller.line is not None
            caller.line.when_granted(lambda: watched_s.append(now_s()))
        await asyncio.sleep(40)
        assert watched_s == [0]
        first.leaves.set()
        await asyncio.sleep(0.1)
        assert watched_s == [0, 40]
