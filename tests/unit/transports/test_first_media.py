"""The first audio or message of a WebRTC peer is reported, once."""

import asyncio

from tests import virtual_time
from tests.fakes.browser_connection import connected_client
from tests.fakes.caller_line import CallerLine, rtp


async def words_of(*, packets: int, messages: int = 0) -> int:
    """Count the reports of a first word of a peer that sends so many packets of silence, then messages."""
    words: list[None] = []
    line = CallerLine()
    client = await connected_client(microphone=line.track, on_first_word=lambda: words.append(None))

    async def read() -> None:
        async for _ in client.read_audio_frame():
            pass

    reading = asyncio.create_task(read())
    for number in range(packets):
        await asyncio.sleep(0.02)
        line.send(rtp(number))
    await asyncio.sleep(1)
    for _ in range(messages):
        client.note_message()
    reading.cancel()
    await asyncio.wait({reading})
    return len(words)


def test_media_are_a_first_word_silence_too():
    async def scenario() -> None:
        assert await words_of(packets=0) == 0
        assert await words_of(packets=10) == 1

    virtual_time.run(scenario())


def test_a_message_is_a_first_word_without_media():
    async def scenario() -> None:
        assert await words_of(packets=0, messages=3) == 1
        assert await words_of(packets=10, messages=3) == 1

    virtual_time.run(scenario())
