"""Audio between a human at the desk and the calls of this process, both ways.

A call of the cascade has a bridge from the beginning of its pipeline to its end, under the id of its session.
A human who speaks in it has a call of their own (``pipelines.voice.desk_call``), whose audio goes over the
bridge. Audio that is not fetched in time is dropped, the oldest first: it is live.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from parley.core.errors import PeerError

# Pieces of 10 to 20 ms. A queue that holds more is a loop that stood still, whose past is of no use.
MOST_PIECES = 50


class LiveAudio:
    """Audio in one direction, for one reader."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque(maxlen=MOST_PIECES)
        self._news = asyncio.Event()

    def put(self, pcm: bytes) -> None:
        """Append a piece."""
        self._pieces.append(pcm)
        self._news.set()

    async def get(self) -> bytes:
        """Return the oldest piece; wait for one when there is none."""
        while not self._pieces:
            self._news.clear()
            await self._news.wait()
        return self._pieces.popleft()

    def clear(self) -> None:
        """Drop all pieces."""
        self._pieces.clear()


class VoiceBridge:
    """Bridge of one call. Its audio is 16-bit mono PCM at the rate of the pipeline's input.

    Attributes:
        to_caller: audio of the human.
        to_human: audio of the caller.
        begun: set while a human speaks over it.
        ended: set when the call is over.
    """

    def __init__(self) -> None:
        self.to_caller = LiveAudio()
        self.to_human = LiveAudio()
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        # A human has begun to speak, and no piece of theirs was fetched since.
        self._is_new = False

    def hear(self, pcm: bytes) -> None:
        """Pass on a piece of the caller's audio."""
        if self.begun.is_set():
            self.to_human.put(bytes(pcm))

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let one human speak while the block runs.

        Raises:
            PeerError: a human speaks over it already.
        """
        if self.begun.is_set():
            raise PeerError("a colleague speaks in this call already: end that call first")
        self._is_new = True
        self.begun.set()
        try:
            yield
        finally:
            self.begun.clear()
            self.to_human.clear()
            self.to_caller.clear()

    async def to_play(self) -> tuple[bytes, bool]:
        """Return the next piece of a human for the caller, and whether it is the first of their call."""
        while True:
            pcm = await self.to_caller.get()
            if self.begun.is_set():
                is_first, self._is_new = self._is_new, False
                return pcm, is_first


class VoiceBridges:
    """Bridges of one process, by session."""

    def __init__(self) -> None:
        self._bridges: dict[str, VoiceBridge] = {}

    def find(self, session_id: str) -> VoiceBridge | None:
        """Return the bridge of the live call of a session; None where this process holds none."""
        return self._bridges.get(session_id)

    @contextmanager
    def opened(self, session_id: str, bridge: VoiceBridge) -> Iterator[None]:
        """Offer the bridge of a call while the block runs."""
        self._bridges[session_id] = bridge
        try:
            yield
        finally:
            bridge.ended.set()
            if self._bridges.get(session_id) is bridge:
                del self._bridges[session_id]
