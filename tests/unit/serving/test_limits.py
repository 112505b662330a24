import asyncio

import pytest

from parley.core.errors import CapacityError
from parley.serving.gateway.limits import ConcurrencyLimit, Rate, ShareError
from tests.virtual_time import run


def test_a_place_is_free_again_when_it_is_given_back():
    places = ConcurrencyLimit(1, "full")
    place = places.take()
    with pytest.raises(CapacityError, match="full") as refused:
        places.take()
    assert not isinstance(refused.value, ShareError)
    place.give_back()
    assert places.taken == 0
    places.take()
    assert places.taken == 1


def test_a_place_that_is_given_back_twice_is_one():
    places = ConcurrencyLimit(2, "full")
    place = places.take()
    places.take()
    place.give_back()
    place.give_back()
    assert places.taken == 1


def test_a_place_is_given_back_when_its_block_fails():
    places = ConcurrencyLimit(1, "full")
    with pytest.raises(ZeroDivisionError), places.take("a"):
        1 / 0  # noqa: B018
    with places.take("a"):
        assert places.taken == 1
    assert places.taken == 0


def test_one_key_has_a_share_and_leaves_room_for_others():
    places = ConcurrencyLimit(3, "full", each=2, each_full="your share")
    mine = [places.take("mine") for _ in range(2)]
    with pytest.raises(ShareError, match="your share"):
        places.check("mine")
    places.take("other")
    with pytest.raises(CapacityError, match="full"):
        places.take("third")
    mine[0].give_back()
    places.take("third")
    assert places.taken == 3


@pytest.mark.parametrize(
    ("owed_s", "retry_s"), [(1e-6, 0.001), (0.0004, 0.001), (0.001, 0.001), (4.0001, 4.001), (0.1 + 0.2, 0.3)]
)
def test_the_wait_of_a_refusal_is_rounded_up_so_that_it_suffices(owed_s: float, retry_s: float):
    assert ShareError("wait", limit=1, retry_s=owed_s).retry_s == retry_s


def test_a_client_has_a_minutes_worth_at_once_and_then_what_comes_back():
    async def scenario() -> None:
        rate = Rate(6, "too fast", clients=10)
        for _ in range(6):
            rate.take("a")
        with pytest.raises(ShareError, match="too fast") as refused:
            rate.take("a")
        assert refused.value.retry_s == pytest.approx(10)
        rate.take("b")
        await asyncio.sleep(9)
        with pytest.raises(ShareError) as refused:
            rate.take("a")
        assert refused.value.retry_s == pytest.approx(1)
        await asyncio.sleep(1)
        rate.take("a")
        with pytest.raises(ShareError):
            rate.take("a")

    run(scenario())


def test_a_quiet_hour_saves_up_no_more_than_a_minute():
    async def scenario() -> None:
        rate = Rate(2, "too fast", clients=10)
        rate.take("a")
        await asyncio.sleep(3_600)
        rate.take("a")
        rate.take("a")
        with pytest.raises(ShareError):
            rate.take("a")

    run(scenario())


def test_refused_attempts_do_not_put_the_next_token_off():
    async def scenario() -> None:
        rate = Rate(1, "too fast", clients=10)
        rate.take("a")
        for _ in range(59):
            await asyncio.sleep(1)
            with pytest.raises(ShareError):
                rate.take("a")
        await asyncio.sleep(1)
        rate.take("a")

    run(scenario())


def test_a_flood_of_addresses_is_forgotten_and_one_that_comes_again_is_not():
    async def scenario() -> None:
        rate = Rate(1, "too fast", clients=3)
        rate.take("busy")
        for number in range(100):
            rate.take(f"flood {number}")
            with pytest.raises(ShareError):
                rate.take("busy")
            assert len(rate) <= 3
        # The rate of this key was dropped, so it begins again.
        rate.take("flood 0")

    run(scenario())


def test_looking_takes_nothing_and_remembers_nobody():
    async def scenario() -> None:
        rate = Rate(1, "too fast", clients=10)
        for _ in range(3):
            rate.check("a")
        assert len(rate) == 0
        rate.take("a")
        for _ in range(2):
            with pytest.raises(ShareError) as refused:
                rate.check("a")
            assert refused.value.retry_s == pytest.approx(60)
        rate.check("b")
        await asyncio.sleep(60)
        rate.check("a")

    run(scenario())
