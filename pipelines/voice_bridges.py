"""Audio between a human at the desk and the calls of this process, both ways.

A call of the cascade has a bridge from the beginning of its pipeline to its end, under the id of its session.
A human who speaks in it has a call of their own (``pipelines.voice.desk_call``), whose audio goes over the
bridge.

The audio is live. A delay between two people makes them talk over each other, and nothing ever shortens it:
what waits is played in the time in which it was spoken. So audio that is late, because the host has stopped
the process or a network was silent, is dropped, the oldest first, and the drops are counted and logged.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from loguru import logger

from parley.core.errors import PeerError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from parley.pipelines.engines.plan import INPUT_RATE_HZ

# More than this never waits. ITU-T G.114 (05/2003) has 400 ms as the most for any conversation.
MOST_MS = 400
# This much may wait for good: it covers the jitter of a network, and is hardly noticed (G.114: 150 ms).
KEPT_MS = 100
# Audio that has waited for all of this time is a delay and no jitter.
LATE_MS = 500


def _bytes(ms: int) -> int:
    return ms_to_samples(ms, INPUT_RATE_HZ) * PCM_BYTES_PER_SAMPLE


class LiveAudio:
    """Audio in one direction, for one reader: 16-bit mono PCM at the rate of the pipeline's input.

    Args:
        speaker: the person who is heard, for the log.

    Attributes:
        dropped_ms: length of the audio that was dropped because it was late.
    """

    def __init__(self, speaker: str) -> None:
        self._speaker = speaker
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._waiting_bytes = 0
        # Least that has waited, and what was taken, since the last look for a delay.
        self._least_bytes = self._taken_bytes = 0
        self.dropped_ms = self._logged_ms = 0

    def put(self, pcm: bytes) -> None:
        """Append a piece."""
        self._pieces.append(pcm)
        self._waiting_bytes += len(pcm)
        if self._waiting_bytes > _bytes(MOST_MS):
            self._drop(self._waiting_bytes - _bytes(KEPT_MS))
        self._news.set()

    async def get(self) -> bytes:
        """Return the oldest piece; wait for one when there is none."""
        while not self._pieces:
            self._news.clear()
            await self._news.wait()
        pcm = self._pieces.popleft()
        self._waiting_bytes -= len(pcm)
        self._least_bytes = min(self._least_bytes, self._waiting_bytes)
        self._taken_bytes += len(pcm)
        if self._taken_bytes >= _bytes(LATE_MS):
            self._catch_up()
        return pcm

    def clear(self) -> None:
        """Drop all pieces: the human's call is over."""
        self._pieces.clear()
        self._waiting_bytes = 0
        self._log()

    def _catch_up(self) -> None:
        """Drop what has waited all the time."""
        self._drop(self._least_bytes - _bytes(KEPT_MS))
        self._taken_bytes, self._least_bytes = 0, self._waiting_bytes
        self._log()

    def _drop(self, count: int) -> None:
        dropped = 0
        while self._pieces and dropped < count:
            dropped += len(self._pieces.popleft())
        self._waiting_bytes -= dropped
        self.dropped_ms += samples_to_ms(dropped // PCM_BYTES_PER_SAMPLE, INPUT_RATE_HZ)

    def _log(self) -> None:
        # Twice in a second of a call at most.
        dropped_ms, self._logged_ms = self.dropped_ms - self._logged_ms, self.dropped_ms
        if dropped_ms:
            logger.warning(f"dropped {dropped_ms} ms of the voice of {self._speaker}: the audio was late")


class VoiceBridge:
    """Bridge of one call. Its audio is 16-bit mono PCM at the rate of the pipeline's input.

    Attributes:
        to_caller: audio of the human.
        to_human: audio of the caller.
        begun: set while a human speaks over it.
        ended: set when the call is over.
    """

    def __init__(self) -> None:
        self.to_caller = LiveAudio("a human at the desk")
        self.to_human = LiveAudio("a caller")
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
