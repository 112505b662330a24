"""Clients with the messages of the MiniCPM-o server's pages: their field names, and no others."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from parley.core.media import pcm16_to_float

# Half a second at 16 kHz.
CHUNK_SAMPLES = 8_000
MOST_BYTES = 32_000_000
# Of the half-duplex page.
PREPARE: dict[str, Any] = {
    "type": "prepare",
    "system_content": [{"type": "text", "text": "Be brief."}, {"type": "audio", "data": None, "name": ""}],
    "config": {
        "vad": {
            "threshold": 0.8,
            "min_speech_duration_ms": 128,
            "min_silence_duration_ms": 800,
            "speech_pad_ms": 30,
        },
        "generation": {"max_new_tokens": 256, "length_penalty": 1.1, "temperature": 0.7},
        "tts": {"enabled": True},
        "session": {"timeout_s": 180},
    },
}


def float32_base64(pcm: bytes) -> str:
    """Return audio as pages write it: float32, little-endian."""
    return base64.b64encode(pcm16_to_float(pcm).astype("<f4").tobytes()).decode()


def samples_in(message: dict[str, Any]) -> np.ndarray:
    """Return the audio of a message."""
    return np.frombuffer(base64.b64decode(message.get("audio_data") or ""), "<f4")


class Page:
    """Socket of a page.

    Attributes:
        received: all received messages, in order.
        times_s: when each of them came.
        closed: code and reason of the close frame after it was received; 1006 for none.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.received: list[dict[str, Any]] = []
        self.times_s: list[float] = []
        self.closed: tuple[int, str] | None = None
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read(), name="page.reader")

    async def _read(self) -> None:
        try:
            async for text in self.socket:
                self.received.append(json.loads(text))
                self.times_s.append(time.monotonic())
                async with self._news:
                    self._news.notify_all()
        except ConnectionClosed:
            pass
        self.closed = (self.socket.close_code or 1006, self.socket.close_reason or "")
        async with self._news:
            self._news.notify_all()

    async def send(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.received if message["type"] == kind]

    @property
    def kinds(self) -> list[str]:
        """Types in order, each run of one type once."""
        types = [message["type"] for message in self.received]
        return [each for at, each in enumerate(types) if at == 0 or types[at - 1] != each]

    async def until(self, kind: str, count: int = 1, *, within_s: float = 60) -> dict[str, Any]:
        """Return the ``count``-th message of this type."""
        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(lambda: len(self.of(kind)) >= count or self.closed is not None)
        assert len(self.of(kind)) >= count, (self.closed, self.received[-3:])
        return self.of(kind)[count - 1]

    async def until_closed(self, *, within_s: float = 60) -> tuple[int, str]:
        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(lambda: self.closed is not None)
        assert self.closed is not None
        return self.closed

    async def speak(self, pcm: bytes, *, hushed_by: str = "") -> None:
        """Send speech as the page's microphone does: half a second at a time, in real time.

        ``hushed_by`` is the type of message that mutes it.
        """
        samples = len(pcm) // 2
        for start in range(0, samples, CHUNK_SAMPLES):
            if hushed_by and self.of(hushed_by):
                return
            piece = pcm[2 * start : 2 * (start + CHUNK_SAMPLES)]
            await self.send(type="audio_chunk", audio_base64=float32_base64(piece))
            await asyncio.sleep(CHUNK_SAMPLES / 16_000)

    def vanish(self) -> None:
        """Drop the connection without a close frame."""
        self.socket.transport.abort()

    async def end(self) -> None:
        self._reader.cancel()
        await self.socket.close()


@asynccontextmanager
async def page(url: str, path: str, *, address: str | None = None) -> AsyncIterator[Page]:
    """A page's socket to a server at an ``http`` address; ``address``: the page's own, if not the usual."""
    there, local = f"ws{url.removeprefix('http')}{path}", None if address is None else (address, 0)
    async with connect(there, max_size=MOST_BYTES, local_addr=local) as socket:
        opened = Page(socket)
        try:
            yield opened
        finally:
            await opened.end()
