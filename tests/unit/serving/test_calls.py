"""Lines of a process: who may hold one without a word."""

import pytest

from core.errors import CapacityError
from core.grants import ClientIdentity
from serving.gateway.calls import CallTasks
from serving.gateway.limits import ShareError
from serving.scheduler.admission import Admitted


def tasks(max_calls: int) -> CallTasks:
    async def never(_arguments: object) -> None:
        raise AssertionError

    return CallTasks(never, max_calls=max_calls, drain_s=0, hang_up_s=0.1)


def test_one_address_holds_a_quarter_of_the_lines_without_a_word():
    calls = tasks(32)
    places = [calls.take_silent(ClientIdentity(address="192.0.2.1")) for _ in range(8)]
    with pytest.raises(ShareError):
        calls.take_silent(ClientIdentity(address="192.0.2.1"))
    # One that speaks is one that holds its line for something.
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


def test_silent_clients_share_what_the_machine_can_answer_and_not_the_lines_on_paper():
    calls = tasks(32)
    calls.admitted = lambda: Admitted(4, "the recogniser is busy")
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
    calls.admitted = lambda: Admitted(0, "answers are late")
    with pytest.raises(CapacityError, match="answers are late"):
        calls.check_room()
    calls.check_room(is_promised=True)


def test_a_server_with_one_line_gives_it_to_a_silent_client():
    tasks(1).take_silent(ClientIdentity(address="192.0.2.1"))
