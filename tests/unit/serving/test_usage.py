"""Usage of clients: model requests and sessions per minute, concurrent calls."""

import asyncio
from contextlib import nullcontext

import pytest
from fastapi import HTTPException

from parley.core.errors import CapacityError, KeyReusedError, PeerError, StoreUnavailableError
from parley.core.grants import ClientIdentity, Grants
from parley.serving.gateway.auth.request_budgets import BUDGET_S, RequestBudgets
from parley.serving.gateway.auth.usage import CallShares, UsageLimits, unless_refused
from parley.serving.gateway.http.requests import BodyError
from parley.serving.gateway.limits import ShareError
from parley.serving.gateway.settings import ServerTuning
from tests.virtual_time import run

STRANGER = ClientIdentity(address="203.0.113.7")
NEIGHBOUR = ClientIdentity(address="203.0.113.8")
KEY = ClientIdentity(owner="k" * 32, address="203.0.113.7")
USER = ClientIdentity(owner=f"{'k' * 32}:ann", address="203.0.113.7")
OPERATOR = ClientIdentity(is_operator=True, address="203.0.113.7")


async def taken(usage: UsageLimits, identity: ClientIdentity, *, most: int = 10_000) -> int:
    for number in range(most):
        try:
            await usage.take(identity)
        except ShareError:
            return number
    return most


def test_an_address_makes_a_quarter_of_its_requests_at_once_and_the_rest_over_a_minute():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        assert await taken(usage, STRANGER) == 60
        assert await taken(usage, NEIGHBOUR) == 60
        await asyncio.sleep(10)
        # Without a limit 338 were possible in ten seconds.
        assert await taken(usage, STRANGER) == 40

    run(scenario())


def test_a_grant_replaces_the_limit_of_the_deployment():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        narrow = ClientIdentity(owner=USER.owner, grants=Grants(turns_per_minute=8))
        assert await taken(usage, narrow) == 2

    run(scenario())


def test_users_of_a_key_have_limits_of_their_own_within_that_of_the_key():
    async def scenario() -> None:
        usage = UsageLimits(
            ServerTuning.model_validate(
                {"clients": {"key": {"turns_per_minute": 80}, "user": {"turns_per_minute": 60}}}
            )
        )
        other = ClientIdentity(owner=f"{KEY.owner}:bob")
        assert await taken(usage, USER) == 15
        assert await taken(usage, other) == 5

    run(scenario())


def test_what_the_limit_of_a_key_refuses_is_taken_from_none_of_its_users():
    async def scenario() -> None:
        usage = UsageLimits(
            ServerTuning.model_validate(
                {"clients": {"key": {"turns_per_minute": 60}, "user": {"turns_per_minute": 4}}}
            )
        )
        assert await taken(usage, KEY) == 15
        with pytest.raises(ShareError, match="over 60"):
            await usage.take(USER)
        # One turn of the key has come back; the user's own was not spent by the refusal.
        await asyncio.sleep(1)
        await usage.take(USER)

    run(scenario())


def test_a_turn_that_is_given_back_is_not_counted():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        for _ in range(1_000):
            (await usage.take(USER)).give_back()
        assert await taken(usage, USER) == 15

    run(scenario())


def test_the_operator_and_a_call_on_this_machine_are_not_counted():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        for identity in (OPERATOR, ClientIdentity()):
            assert await taken(usage, identity, most=1_000) == 1_000

    run(scenario())


def test_a_key_begins_more_sessions_than_a_stranger():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning(sessions_per_minute=2))
        for _ in range(100):
            usage.take_session(KEY)
        for identity in (STRANGER, NEIGHBOUR):
            usage.take_session(identity)
            usage.take_session(identity)
            with pytest.raises(ShareError, match="over 2 new sessions a minute"):
                usage.take_session(identity)
        # A user of the key also counts by its address.
        with pytest.raises(ShareError):
            usage.take_session(USER)

    run(scenario())


@pytest.mark.parametrize(
    ("error", "is_counted"),
    [
        (HTTPException(401, "the token has been used"), False),
        (CapacityError("all lines are in use", limit=1), False),
        (ShareError("too many of this address", limit=1), False),
        (StoreUnavailableError("silent"), False),
        (BodyError("the sender disconnected before the answer", status=400), False),
        # The client's own: each attempt makes work.
        (PeerError("the offer cannot be negotiated"), True),
        (KeyReusedError("yours"), True),
    ],
)
def test_a_conversation_that_is_refused_is_no_session(error: Exception, is_counted: bool):
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning(sessions_per_minute=1))
        with pytest.raises(type(error)), unless_refused(usage.take_session(STRANGER)):
            raise error
        with pytest.raises(ShareError) if is_counted else nullcontext():
            usage.take_session(STRANGER)

    run(scenario())


def test_one_address_never_holds_every_line():
    shares = CallShares(ServerTuning(max_calls=8))
    held = [shares.take(STRANGER) for _ in range(6)]
    with pytest.raises(ShareError, match="this client has 6 concurrent calls"):
        shares.take(STRANGER)
    # Users with a token count with their address, a key does not.
    with pytest.raises(ShareError):
        shares.take(USER)
    for identity in (NEIGHBOUR, KEY, OPERATOR):
        shares.take(identity)
    held[0].give_back()
    shares.take(STRANGER)


@pytest.mark.parametrize(("lines", "of_one_address"), [(1, 1), (2, 2), (3, 2), (4, 3), (6, 4), (32, 24)])
def test_one_address_has_its_share_of_the_calls_that_there_may_be_now(lines: int, of_one_address: int):
    shares = CallShares(ServerTuning(max_calls=32))
    for _ in range(of_one_address):
        shares.take(STRANGER, lines=lines)
    with pytest.raises(ShareError):
        shares.check(STRANGER, lines=lines)
    for identity in (NEIGHBOUR, KEY, OPERATOR):
        shares.check(identity, lines=lines)


def test_the_calls_of_users_are_calls_of_their_key():
    shares = CallShares(ServerTuning.model_validate({"clients": {"key": {"max_calls": 2}}}))
    shares.take(USER)
    shares.take(KEY)
    for identity in (USER, KEY):
        with pytest.raises(ShareError, match="has 2 concurrent calls"):
            shares.check(identity)


def test_a_token_may_allow_fewer_calls_than_its_key():
    shares = CallShares(ServerTuning())
    narrow = ClientIdentity(owner=USER.owner, address="203.0.113.7", grants=Grants(max_calls=1))
    place = shares.take(narrow)
    with pytest.raises(ShareError):
        shares.take(narrow)
    place.give_back()
    shares.take(narrow)


def test_a_server_with_one_line_gives_it_to_any_address():
    CallShares(ServerTuning(max_calls=1)).take(STRANGER)


def test_looking_counts_nothing_and_what_is_refused_is_not_counted():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        assert all(usage.has_request(STRANGER) for _ in range(1_000))
        assert sum([await usage.try_take(STRANGER) for _ in range(1_000)]) == 60
        assert not usage.has_request(STRANGER) and usage.has_request(NEIGHBOUR)
        await asyncio.sleep(0.25)
        assert await usage.try_take(STRANGER)

    run(scenario())


def test_grants_end_in_a_call_too():
    async def scenario() -> None:
        now_s = 1_000.0
        usage = UsageLimits(ServerTuning(), wall_s=lambda: now_s)
        identity = ClientIdentity(owner=USER.owner, grants=Grants(expires_s=1_001.0))
        await usage.take(identity)
        now_s = 1_001.0
        with pytest.raises(ShareError, match="have expired"):
            await usage.take(identity)

    run(scenario())


def spender(budget: str, total: int) -> ClientIdentity:
    return ClientIdentity(owner=USER.owner, grants=Grants(max_requests=total, budget=budget))


def test_a_total_ends_the_turns_of_its_token_and_of_no_other():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        assert await taken(usage, spender("a", 5)) == 5
        assert not usage.has_request(spender("a", 5))
        # The rate has returned all of them by now; the total returns none.
        await asyncio.sleep(3_600)
        assert await taken(usage, spender("a", 5)) == 0
        assert await usage.try_take(spender("b", 5))

    run(scenario())


def test_requests_after_tool_results_are_part_of_a_total_and_of_no_rate():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        client = spender("a", 3)
        await usage.take(client)
        assert [await usage.try_take_further(client) for _ in range(3)] == [True, True, False]
        with pytest.raises(ShareError, match="has used its 3 model requests"):
            await usage.take(client)
        assert all([await usage.try_take_further(USER) for _ in range(1_000)])

    run(scenario())


def test_a_turn_that_no_model_was_asked_for_is_given_back_to_its_total():
    async def scenario() -> None:
        usage = UsageLimits(ServerTuning())
        (await usage.take(spender("a", 1))).give_back()
        assert usage.has_request(spender("a", 1))
        # Requests that the rate refuses are taken from no total.
        assert await taken(usage, spender("b", 1_000)) == 15
        assert await usage.try_take_further(spender("b", 16)) and not await usage.try_take_further(
            spender("b", 16)
        )

    run(scenario())


async def test_a_total_that_is_counted_is_not_forgotten_for_others():
    now = [0.0]
    budgets = RequestBudgets(most=2, wall_s=lambda: now[0])
    for budget in "ab":
        await budgets.take(spender(budget, 1).grants)
    with pytest.raises(ShareError, match="too many tokens"):
        await budgets.take(spender("c", 1).grants)
    with pytest.raises(ShareError):
        await budgets.take(spender("a", 1).grants)
    # No token of that time is valid any more.
    now[0] = BUDGET_S + 1
    await budgets.take(spender("c", 1).grants)
