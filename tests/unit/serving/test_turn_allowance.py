"""Turns of a client, on virtual time."""

import asyncio

import pytest

from core.client_rules import OPERATOR, ClientRules
from core.grants import ClientIdentity, Grants
from serving.gateway.limits import ShareError
from serving.gateway.turn_allowance import TurnAllowance
from tests.virtual_time import run


def rules(owner: str = "a", per_minute: int | None = None) -> ClientRules:
    return ClientRules(ClientIdentity(owner=owner, grants=Grants(turns_per_minute=per_minute)))


def taken(allowance: TurnAllowance, client: ClientRules, most: int = 1_000) -> int:
    return next((count for count in range(most) if not allowance.try_take(client)), most)


def test_a_quarter_of_a_minutes_turns_may_come_at_once_and_all_come_back_in_a_minute():
    async def scenario() -> None:
        allowance = TurnAllowance(per_minute=40)
        assert taken(allowance, rules()) == 10
        with pytest.raises(ShareError) as refused:
            allowance.take(rules())
        assert refused.value.retry_s == pytest.approx(1.5)
        await asyncio.sleep(refused.value.retry_s)
        assert taken(allowance, rules()) == 1
        await asyncio.sleep(60)
        assert taken(allowance, rules()) == 10

    run(scenario())


def test_every_call_of_an_owner_counts_and_no_other_clients():
    async def scenario() -> None:
        allowance = TurnAllowance(per_minute=8)
        assert [allowance.try_take(rules()) for _ in range(3)] == [True, True, False]
        assert not allowance.has(rules()) and allowance.has(rules("b"))

    run(scenario())


def test_the_clients_own_number_counts_and_the_operator_has_none():
    async def scenario() -> None:
        allowance = TurnAllowance(per_minute=8)
        assert taken(allowance, rules(per_minute=80)) == 20
        assert taken(allowance, rules("none", per_minute=0)) == 0
        assert taken(allowance, ClientRules(OPERATOR)) == 1_000

    run(scenario())


def test_looking_takes_nothing_and_many_clients_are_forgotten():
    async def scenario() -> None:
        allowance = TurnAllowance(per_minute=4, clients=10)
        for _ in range(5):
            allowance.check(rules())
        assert len(allowance) == 0
        for count in range(100):
            allowance.take(rules(str(count)))
        assert len(allowance) == 10

    run(scenario())
