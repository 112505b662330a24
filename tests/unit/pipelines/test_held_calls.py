"""Calls of one process by session: the old call ends before the new one goes on."""

import asyncio

from parley.pipelines.held_calls import HeldCalls


async def test_a_call_that_goes_on_waits_until_the_old_one_is_recorded():
    held, done = HeldCalls(), []
    hung_up = asyncio.Event()

    async def hang_up() -> None:
        hung_up.set()

    async def old_call() -> None:
        with held.holding("session", hang_up):
            await hung_up.wait()
            await asyncio.sleep(0)
            done.append("recorded")

    old = asyncio.create_task(old_call())
    await asyncio.sleep(0)
    await held.end("session")
    done.append("goes on")
    await old
    assert done == ["recorded", "goes on"]


async def test_a_session_without_a_call_here_has_nothing_to_wait_for():
    await HeldCalls().end("session")


async def test_a_socket_that_is_closed_already_does_not_keep_the_call_from_going_on():
    held, ending = HeldCalls(), asyncio.Event()

    async def hang_up() -> None:
        ending.set()
        raise RuntimeError("Cannot call send once a close message has been sent")

    async def old_call() -> None:
        with held.holding("session", hang_up):
            await ending.wait()

    old = asyncio.create_task(old_call())
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await held.end("session")
        await old


async def test_the_end_of_an_old_call_does_not_release_the_new_one():
    held, ended = HeldCalls(), []

    async def hang_up_old() -> None:
        raise AssertionError("the old call is over")

    async def hang_up_new() -> None:
        ended.append("new")

    old = held.holding("session", hang_up_old)
    old.__enter__()
    with held.holding("session", hang_up_new):
        old.__exit__(None, None, None)
        ending = asyncio.create_task(held.end("session"))
        await asyncio.sleep(0)
    await ending
    assert ended == ["new"]


async def test_a_call_that_does_not_end_keeps_the_new_one_waiting_for_a_bounded_time():
    held = HeldCalls(recorded_s=0.05)

    async def hang_up() -> None:
        await asyncio.Event().wait()

    with held.holding("session", hang_up):
        async with asyncio.timeout(5):
            await held.end("session")
