"""Video track of a caller who shows something now and then: a picture with noise, or nothing at all."""

import asyncio
import fractions

import numpy as np
from aiortc.mediastreams import MediaStreamTrack
from av import VideoFrame

WIDTH, HEIGHT, FRAMES_PER_S = 160, 120, 5


class SwitchedPicture(MediaStreamTrack):
    """Track that sends while it is on, and nothing otherwise.

    Args:
        seed: of the noise, with which no two pictures are the same.
    """

    kind = "video"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = np.random.default_rng(seed)
        self._on = asyncio.Event()
        self._sent = 0

    def turn(self, *, on: bool) -> None:
        """Begin to send, or stop."""
        if on:
            self._on.set()
        else:
            self._on.clear()

    async def recv(self) -> VideoFrame:
        await asyncio.sleep(1 / FRAMES_PER_S)
        await self._on.wait()
        pixels = self._chance.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        frame = VideoFrame.from_ndarray(pixels, format="rgb24")
        frame.pts, frame.time_base = self._sent, fractions.Fraction(1, FRAMES_PER_S)
        self._sent += 1
        return frame
