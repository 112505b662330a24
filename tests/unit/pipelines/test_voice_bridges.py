"""Audio between a human and a caller, without a pipeline."""

import asyncio

from parley.pipelines.voice_bridges import VoiceBridge


async def test_each_call_of_a_human_begins_with_a_first_piece_and_has_none_of_the_last_one():
    bridge = VoiceBridge()
    played: list[tuple[bytes, bool]] = []

    async def play() -> None:
        while True:
            played.append(await bridge.to_play())

    async def until_played(count: int) -> None:
        async with asyncio.timeout(5):
            while len(played) < count:
                await asyncio.sleep(0)

    # As in a call: one reader for all humans who come.
    playing = asyncio.create_task(play())
    for name in (b"a", b"b"):
        with bridge.used():
            for number in (b"1", b"2"):
                bridge.to_caller.put(name + number)
            await until_played(2 if name == b"a" else 4)
        bridge.to_caller.put(b"late")
        await asyncio.sleep(0.01)
    playing.cancel()
    assert played == [(b"a1", True), (b"a2", False), (b"b1", True), (b"b2", False)]
