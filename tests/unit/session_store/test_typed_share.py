"""Bound of the text that may be typed into a session, in virtual time."""

import asyncio

import pytest

from parley.core.errors import OversizedError
from parley.session_store.typed_share import LEAST_BYTES, TypedShares
from tests.virtual_time import run


def test_a_session_has_its_share_of_bytes_and_gets_it_back_with_time():
    async def scene() -> None:
        shares = TypedShares(60_000)
        emoji = "\U0001f600" * 8_000
        assert shares.take("a", emoji) == 0
        # 4,000 bytes are left, and 1,000 come back in a second.
        assert shares.take("a", emoji) == 4
        assert shares.take("b", emoji) == 0
        await asyncio.sleep(4)
        assert shares.take("a", emoji) == 0
        assert shares.take("a", "hello") > 0

    run(scene())


def test_short_turns_and_halves_of_characters_count_too():
    async def scene() -> None:
        shares = TypedShares(1_000)
        assert [bool(shares.take("a", "\ud83d")) for _ in range(6)] == [False] * 5 + [True]
        assert shares.take("a", "") * 1_000 / 60 <= LEAST_BYTES

    run(scene())


def test_a_text_larger_than_the_share_is_refused_for_good():
    async def scene() -> None:
        shares = TypedShares(1_000)
        for _ in range(2):
            with pytest.raises(OversizedError) as refused:
                shares.take("a", "x" * 1_001)
            assert (refused.value.size, refused.value.limit) == (1_001, 1_000)
            await asyncio.sleep(600)
        # It took nothing, and the largest that fits pays for all of itself.
        assert shares.take("a", "x" * 1_000) == 0
        assert shares.take("a", "x" * 1_000) == 60

    run(scene())
