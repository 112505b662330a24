"""A caller on OpenAI's official client: a microphone that never stops, a loudspeaker, a list of events.

The client is ``openai``'s own, over a real socket. The loudspeaker plays an item's audio from the moment at
which it arrived, in real time. When the server reports that the caller speaks, playback stops. The client
then reports how much of the item was played, as the protocol requires.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from openai import AsyncOpenAI

from parley.audio import g711
from parley.audio.resample import Resampler
from parley.core.media import float_to_pcm16, pcm16_to_float
from tests.realtime_order import Order
from tests.voices import RATE_HZ, say

PIECE_MS = 40
# Rates of the protocol's PCM, and of both companding laws.
PCM_HZ, LAW_HZ = 24_000, 8_000


def at_rate(pcm: bytes, rate_hz: int) -> bytes:
    """Resample speech of ``tests.voices`` to another rate."""
    resampler = Resampler(RATE_HZ, rate_hz)
    return float_to_pcm16(resampler.feed(pcm16_to_float(pcm + bytes(RATE_HZ // 50 * 2))))


@dataclass
class Speaker:
    """Playback state of each item.

    Attributes:
        came_s, length_ms: arrival time and length of each item's audio.
        stopped_ms: played length of the items that were stopped.
        arrived: items whose audio is complete.
    """

    came_s: dict[str, float] = field(default_factory=dict)
    length_ms: dict[str, float] = field(default_factory=dict)
    stopped_ms: dict[str, int] = field(default_factory=dict)
    audio: dict[str, bytes] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)

    def take(self, item_id: str, data: bytes, duration_ms: float) -> None:
        self.came_s.setdefault(item_id, time.monotonic())
        self.length_ms[item_id] = self.length_ms.get(item_id, 0.0) + duration_ms
        self.audio[item_id] = self.audio.get(item_id, b"") + data

    def played_ms(self, item_id: str) -> int:
        passed_ms = (time.monotonic() - self.came_s[item_id]) * 1000
        return int(min(passed_ms, self.length_ms[item_id]))

    def on_air(self) -> str | None:
        """Return the item that is being played, or that continues when more of its audio arrives."""
        for item_id, length_ms in self.length_ms.items():
            is_whole = item_id in self.arrived and self.played_ms(item_id) >= length_ms
            if item_id not in self.stopped_ms and not is_whole:
                return item_id
        return None


class RealtimeCaller:
    """Connection of the official client; ``calling`` makes it.

    Attributes:
        events: all received events, as the client returned them, with their arrival time in seconds.
        speaker: record of what was played.
        answers: answers of the client to tool calls, by the tool's name; None leaves a call unanswered.
    """

    def __init__(self, connection: Any, *, law: g711.Law | None = None) -> None:
        self.connection = connection
        self.events: list[Any] = []
        self.times_s: list[float] = []
        self.speaker = Speaker()
        self.order = Order()
        self.answers: dict[str, Callable[[str], str] | None] = {}
        self.truncates = True
        self.spoke_until_s = 0.0
        self._law = law
        self._news = asyncio.Condition()
        self._speech = bytearray()
        self._rate_hz = LAW_HZ if law else PCM_HZ
        self.appended_ms = 0
        self.closed = ""

    # Actions of the caller.

    def say(self, text: str, *, behind_ms: int = 0) -> None:
        """Queue speech for the microphone, after the speech that is queued already."""
        self._speech += bytes(self._rate_hz * behind_ms // 1000 * 2) + at_rate(say(text), self._rate_hz)

    def play(self, pcm: bytes) -> None:
        """Send 16-bit mono PCM at 16 kHz by the microphone, after the speech that is queued already."""
        self._speech += at_rate(pcm, self._rate_hz)

    def append(self, pcm: bytes) -> None:
        """Send 16-bit mono PCM at the rate of the connection, after the speech that is queued already."""
        self._speech += pcm

    def encoded(self, pcm: bytes) -> str:
        data = g711.encode(np.frombuffer(pcm, "<i2").astype(np.int16), self._law) if self._law else pcm
        return base64.b64encode(data).decode()

    async def speak(self) -> None:
        """Send the microphone's audio in real time, silence included."""
        loop = asyncio.get_running_loop()
        due_s, piece = loop.time(), self._rate_hz * PIECE_MS // 1000 * 2
        while True:
            data, self._speech = bytes(self._speech[:piece]), self._speech[piece:]
            if data:
                self.spoke_until_s = time.monotonic()
            self.appended_ms += PIECE_MS
            await self.connection.input_audio_buffer.append(audio=self.encoded(data.ljust(piece, b"\0")))
            due_s += PIECE_MS / 1000
            await asyncio.sleep(max(0.0, due_s - loop.time()))

    async def send(self, **event: Any) -> None:
        """Send any event, as JSON."""
        await self.connection.send(event)

    # Received events.

    async def listen(self) -> None:
        try:
            async for event in self.connection:
                await self._take(event)
        except Exception as error:
            self.closed = f"{type(error).__name__}: {error}"
        async with self._news:
            self.closed = self.closed or "closed"
            self._news.notify_all()

    async def _take(self, event: Any) -> None:
        self.order.take(event.to_dict())
        async with self._news:
            self.events.append(event)
            self.times_s.append(time.monotonic())
            self._news.notify_all()
        match event.type:
            case "response.output_audio.delta":
                data = base64.b64decode(event.delta)
                width = 1 if self._law else 2
                self.speaker.take(event.item_id, data, len(data) * 1000 / (width * self._rate_hz))
            case "response.output_audio.done":
                self.speaker.arrived.add(event.item_id)
            case "input_audio_buffer.speech_started":
                await self._stop_playing()
            case "response.function_call_arguments.done":
                answer = self.answers.get(event.name)
                if answer is not None:
                    item = {
                        "type": "function_call_output",
                        "call_id": event.call_id,
                        "output": answer(event.arguments),
                    }
                    await self.connection.conversation.item.create(item=item)

    async def _stop_playing(self) -> None:
        item_id = self.speaker.on_air()
        if item_id is None or not self.truncates:
            return
        self.speaker.stopped_ms[item_id] = played_ms = self.speaker.played_ms(item_id)
        await self.connection.conversation.item.truncate(
            item_id=item_id, content_index=0, audio_end_ms=played_ms
        )

    async def until(self, type_: str, *, count: int = 1, within_s: float = 60) -> Any:
        """Wait for the ``count``-th event of a type."""
        async with asyncio.timeout(within_s), self._news:
            while len(found := self.of(type_)) < count:
                assert not self.closed, f"{self.closed}; no {type_} in {self.types()}"
                await self._news.wait()
            return found[count - 1]

    async def until_true(self, is_true: Callable[[], bool], *, within_s: float = 60) -> None:
        async with asyncio.timeout(within_s), self._news:
            while not is_true():
                assert not self.closed, self.closed
                await self._news.wait()

    def of(self, type_: str) -> list[Any]:
        return [event for event in self.events if event.type == type_]

    def at_s(self, event: Any) -> float:
        return self.times_s[next(place for place, each in enumerate(self.events) if each is event)]

    def types(self) -> list[str]:
        """Return the types in order, repeated ones once."""
        types: list[str] = []
        for event in self.events:
            if not types or types[-1] != event.type:
                types.append(event.type)
        return types

    def said(self, number: int = -1) -> str:
        """Return the words of a response."""
        return self.of("response.output_audio_transcript.done")[number].transcript

    def understood(self) -> list[str]:
        return [
            event.transcript for event in self.of("conversation.item.input_audio_transcription.completed")
        ]


@asynccontextmanager
async def calling(
    url: str,
    *,
    model: str = "parley-cascade",
    query: dict[str, str] | None = None,
    law: g711.Law | None = None,
    microphone: bool = True,
    address: str | None = None,
    **session: Any,
) -> AsyncIterator[RealtimeCaller]:
    """Hold a connection of the official client; ``session`` is its ``session.update``.

    Args:
        url: http URL of the server.
        query: query of the address.
        law: companding law of a telephone's speech; None for PCM.
        microphone: whether the microphone is on.
        address: of the caller, on this machine; None: which the machine takes.
    """
    client = AsyncOpenAI(api_key="x", base_url=f"{url}/v1")
    if law is not None:
        kind = {"type": f"audio/pcm{'u' if law is g711.Law.MU else 'a'}"}
        audio = session.setdefault("audio", {})
        for side in ("input", "output"):
            audio.setdefault(side, {})["format"] = kind
    connecting = client.realtime.connect(
        model=model,
        extra_query=query or {},
        websocket_connection_options={} if address is None else {"local_addr": (address, 0)},
    )
    async with connecting as connection:
        caller = RealtimeCaller(connection, law=law)
        listening = asyncio.create_task(caller.listen())
        await caller.until("session.created")
        if session:
            await connection.session.update(session={"type": "realtime", **session})
            await caller.until_true(lambda: bool(caller.of("session.updated") or caller.of("error")))
        speaking = asyncio.create_task(caller.speak()) if microphone else None
        try:
            yield caller
        finally:
            for task in (speaking, listening):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(task for task in (speaking, listening) if task), return_exceptions=True)
    await client.close()
