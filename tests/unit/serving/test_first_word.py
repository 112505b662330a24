"""Calls by WebRTC whose peer sends nothing: counted with silent sockets, and ended."""

import asyncio

import pytest

from serving.gateway.first_word import FirstWord
from serving.gateway.limits import Places

COUNTED_S, ENDED_S = 10.0, 30.0

pytestmark = pytest.mark.virtual_time


def word_of(places: Places) -> FirstWord:
    return FirstWord(places.take, counted_s=COUNTED_S, ended_s=ENDED_S)


def call_for(seconds: float) -> asyncio.Task[None]:
    return asyncio.create_task(asyncio.sleep(seconds), name="call")


async def test_a_call_without_a_word_is_counted_and_then_ended() -> None:
    places, call = Places(1, "full"), call_for(100)
    word_of(places).watch(call)
    await asyncio.sleep(COUNTED_S - 1)
    assert places.taken == 0
    await asyncio.sleep(2)
    assert places.taken == 1 and not call.done()
    await asyncio.sleep(ENDED_S - COUNTED_S)
    assert call.cancelled() and places.taken == 0


async def test_a_call_without_a_word_ends_where_too_many_say_nothing() -> None:
    places, call = Places(1, "full"), call_for(100)
    places.take()
    word_of(places).watch(call)
    await asyncio.sleep(COUNTED_S + 1)
    assert call.cancelled() and places.taken == 1


@pytest.mark.parametrize("at_s", [1.0, COUNTED_S + 1])
async def test_a_word_gives_the_place_back_and_keeps_the_call(at_s: float) -> None:
    places, call = Places(1, "full"), call_for(100)
    word = word_of(places)
    word.watch(call)
    await asyncio.sleep(at_s)
    word.came()
    word.came()
    assert places.taken == 0
    await asyncio.sleep(2 * ENDED_S)
    assert not call.done()
    call.cancel()


async def test_a_call_that_ends_by_itself_gives_its_place_back() -> None:
    places, call = Places(1, "full"), call_for(COUNTED_S + 5)
    word_of(places).watch(call)
    await asyncio.sleep(COUNTED_S + 1)
    assert places.taken == 1
    await asyncio.sleep(5)
    assert places.taken == 0
