"""Lines of a process, and the callers that may hold one silently."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pipecat.runner.types import RunnerArguments
from starlette.testclient import TestClient, WebSocketDenialResponse

from parley.core.errors import CapacityError
from parley.core.grants import ClientIdentity
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.usage import CallShares
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.limits import ShareError
from parley.serving.gateway.settings import ServerTuning
from parley.serving.scheduler.admission import Admitted
from parley.transports.webrtc.signaling import Signaling

HEARD, IN_ALL = Admitted(2, "this machine hears 2 at once"), Admitted(8, "lines are in use")


def recogniser_hears_two(uses_recogniser: bool) -> Admitted:
    return HEARD if uses_recogniser else IN_ALL


async def nothing() -> None:
    return None


@asynccontextmanager
async def holding(**more: Any) -> AsyncIterator[CallTasks]:
    """Hold calls that go on until the test has ended."""

    async def hold(_arguments: RunnerArguments) -> None:
        await asyncio.Event().wait()

    calls = CallTasks(hold, max_calls=8, drain_s=0, hang_up_s=1, **more)
    calls.admitted = recogniser_hears_two
    try:
        yield calls
    finally:
        await calls.close(nothing)


def begin(calls: CallTasks, call_id: str, *, uses_recogniser: bool, address: str = "") -> None:
    identity = ClientIdentity(address=address)
    calls.start(
        RunnerArguments(),
        call_id=call_id,
        hang_up=nothing,
        uses_recogniser=uses_recogniser,
        identity=identity,
    )


def tasks(max_calls: int) -> CallTasks:
    async def never(_arguments: object) -> None:
        raise AssertionError

    return CallTasks(never, max_calls=max_calls, drain_s=0, hang_up_s=0.1)


def test_one_address_holds_a_quarter_of_the_lines_without_a_word():
    calls = tasks(32)
    places = [calls.take_silent(ClientIdentity(address="192.0.2.1")) for _ in range(8)]
    with pytest.raises(ShareError):
        calls.take_silent(ClientIdentity(address="192.0.2.1"))
    # A call that has spoken no longer counts as silent.
    places[0].give_back()
    places[0].give_back()
    calls.take_silent(ClientIdentity(address="192.0.2.1"))
    with pytest.raises(ShareError):
        calls.take_silent(ClientIdentity(address="192.0.2.1"))


def test_a_quarter_of_the_lines_is_left_to_clients_that_are_known():
    calls = tasks(32)
    for number in range(24):
        calls.take_silent(ClientIdentity(address=f"192.0.2.{number}"))
    with pytest.raises(CapacityError):
        calls.take_silent(ClientIdentity(address="198.51.100.7"))
    for _ in range(8):
        calls.take_silent(ClientIdentity(owner="4d1f", address="198.51.100.7"))


def test_three_addresses_with_many_silent_clients_keep_no_newcomer_out():
    calls = tasks(32)
    refused = 0
    for number in range(24):
        try:
            calls.take_silent(ClientIdentity(address=f"192.0.2.{number % 3}"))
        except CapacityError:
            refused += 1
    assert refused == 6
    for number in range(6):
        calls.take_silent(ClientIdentity(address=f"198.51.100.{number}"))
    with pytest.raises(CapacityError):
        calls.take_silent(ClientIdentity(address="203.0.113.8"))


def test_silent_clients_share_what_the_machine_can_answer_and_not_the_lines_on_paper():
    calls = tasks(32)
    calls.admitted = lambda _uses_recogniser: Admitted(4, "the recogniser is busy")
    for _ in range(2):
        calls.take_silent(ClientIdentity(address="192.0.2.1"))
    with pytest.raises(ShareError):
        calls.take_silent(ClientIdentity(address="192.0.2.1"))
    calls.take_silent(ClientIdentity(address="198.51.100.7"))
    with pytest.raises(CapacityError):
        calls.take_silent(ClientIdentity(address="203.0.113.8"))
    calls.take_silent(ClientIdentity(owner="4d1f", address="203.0.113.8"))


def test_a_caller_who_was_promised_a_line_has_it_when_the_machine_can_answer_fewer():
    calls = tasks(32)
    calls.admitted = lambda _uses_recogniser: Admitted(0, "answers are late")
    with pytest.raises(CapacityError, match="answers are late"):
        calls.check_room()
    calls.check_room(is_promised=True)


def test_a_server_with_one_line_gives_it_to_a_silent_client():
    tasks(1).take_silent(ClientIdentity(address="192.0.2.1"))


async def test_a_call_that_the_recogniser_does_not_hear_is_not_bounded_by_it():
    async with holding() as calls:
        for number in range(2):
            begin(calls, f"voice.{number}", uses_recogniser=True)
        with pytest.raises(CapacityError, match="hears 2 at once"):
            calls.check_room()
        for number in range(6):
            begin(calls, f"typed.{number}", uses_recogniser=False)
        assert (calls.active, calls.heard) == (8, 2)
        with pytest.raises(CapacityError, match="lines are in use"):
            calls.check_room(uses_recogniser=False)


async def test_calls_that_the_recogniser_does_not_hear_take_none_of_its_room():
    async with holding() as calls:
        for number in range(3):
            begin(calls, f"typed.{number}", uses_recogniser=False)
        for number in range(2):
            begin(calls, f"voice.{number}", uses_recogniser=True)
        with pytest.raises(CapacityError, match="hears 2 at once"):
            calls.check_room()


async def test_typed_conversations_of_an_address_leave_it_its_share_of_what_is_heard():
    async with holding(shares=CallShares(ServerTuning(max_calls=8))) as calls:
        calls.admitted = lambda uses_recogniser: Admitted(
            3 if uses_recogniser else 8, "the recogniser is busy"
        )
        for number in range(3):
            begin(calls, f"typed.{number}", uses_recogniser=False, address="192.0.2.1")
        for number in range(2):
            begin(calls, f"voice.{number}", uses_recogniser=True, address="192.0.2.1")
        with pytest.raises(ShareError):
            calls.check_room(identity=ClientIdentity(address="192.0.2.1"))
        calls.check_room(identity=ClientIdentity(address="192.0.2.1"), uses_recogniser=False)
        calls.check_room(identity=ClientIdentity(address="192.0.2.2"))


def test_silent_typed_clients_do_not_keep_callers_out():
    calls = tasks(32)
    calls.admitted = lambda uses_recogniser: Admitted(4 if uses_recogniser else 32, "the recogniser is busy")
    for number in range(12):
        calls.take_silent(ClientIdentity(address=f"192.0.2.{number}"), uses_recogniser=False)
    calls.take_silent(ClientIdentity(address="198.51.100.7"))


@pytest.mark.parametrize(
    ("path", "is_heard"),
    [("/ws/chat", False), ("/v1/realtime?model=parley-cascade", True), ("/ws/duplex/adx_1", False)],
)
def test_a_client_is_counted_by_what_hears_it(path: str, is_heard: bool):
    """A client is counted by the engine that receives its audio.

    Full duplex by a realtime service has its own recogniser.
    """

    async def hold(arguments: Any) -> None:
        await arguments.websocket.receive()

    def admitted(uses_recogniser: bool) -> Admitted:
        return (
            Admitted(1, "this machine hears 1 at once")
            if uses_recogniser
            else Admitted(32, "lines are in use")
        )

    url = f"ws://localhost{path}"
    settings = ServerTuning(max_calls=32, drain_s=0, hang_up_s=0.2)
    app = create_app(
        settings,
        run_call=hold,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=32, hang_up_s=0.2),
        modes=("cascade", "duplex"),
        admitted=admitted,
        uses_recogniser=lambda mode: mode != "duplex",
    )
    with TestClient(app) as client, client.websocket_connect(url):
        assert app.state.calls.heard == is_heard
        if is_heard:
            with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(url):
                pass
            assert refused.value.status_code == 503 and "hears 1 at once" in refused.value.text
        else:
            with client.websocket_connect(url):
                assert app.state.calls.active == 2
