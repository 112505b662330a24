"""The first audio or message of a WebRTC peer is reported, once."""

import asyncio
import fractions

import numpy as np
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from tests import virtual_time
from tests.fakes.browser_connection import RATE_HZ, connected_client

FRAME_SAMPLES = 320


class SilentMicrophone:
    """Track that sends frames of silence, then ends."""

    def __init__(self, frames: int) -> None:
        self._left = frames

    async def recv(self) -> AudioFrame:
        if not self._left:
            raise MediaStreamError
        self._left -= 1
        await asyncio.sleep(0.02)
        frame = AudioFrame.from_ndarray(np.zeros((1, FRAME_SAMPLES), "<i2"), format="s16", layout="mono")
        frame.sample_rate = RATE_HZ
        frame.pts = 0
        frame.time_base = fractions.Fraction(1, RATE_HZ)
        return frame


async def words_of(track: SilentMicrophone, *, messages: int = 0) -> int:
    """Count the reports of a first word of a peer with this track and that many messages."""
    words: list[None] = []
    client = await connected_client(microphone=track, on_first_word=lambda: words.append(None))

    async def read() -> None:
        async for _ in client.read_audio_frame():
            pass

    reading = asyncio.create_task(read())
    await asyncio.sleep(1)
    for _ in range(messages):
        client.note_message()
    reading.cancel()
    await asyncio.wait({reading})
    return len(words)


def test_media_are_a_first_word_silence_too():
    async def scenario() -> None:
        assert await words_of(SilentMicrophone(frames=0)) == 0
        assert await words_of(SilentMicrophone(frames=10)) == 1

    virtual_time.run(scenario())


def test_a_message_is_a_first_word_without_media():
    async def scenario() -> None:
        assert await words_of(SilentMicrophone(frames=0), messages=3) == 1
        assert await words_of(SilentMicrophone(frames=10), messages=3) == 1

    virtual_time.run(scenario())
