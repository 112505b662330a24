"""Clients like Unmute's front end and its load test, rebuilt from their protocol."""

import asyncio
import base64
import json
import time
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection

from parley.audio.resample import Resampler
from parley.transports.websocket.opus import OpusDecoder, OpusEncoder
from tests.peers.foreign.player import Player

# All events that its front end knows; any other stops it.
KNOWN = {
    "error",
    "session.updated",
    "response.created",
    "unmute.response.text.delta.ready",
    "response.text.delta",
    "response.text.done",
    "response.audio.delta",
    "response.audio.done",
    "unmute.response.audio.delta.ready",
    "conversation.item.input_audio_transcription.delta",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "unmute.interrupted_by_vad",
    "unmute.additional_outputs",
}
PACKET = 24_000 // 50 * 2


class FrontEnd:
    """Client that sends two packets in a message, as its recorder does, and plays the bot's audio.

    Args:
        socket: to the server.
        player: plays the answers.
    """

    def __init__(self, socket: ClientConnection, player: Player | None = None) -> None:
        self.socket = socket
        self.got: list[dict[str, Any]] = []
        self._player = player or Player()
        self._answers = 0
        self.heard = np.zeros(0, np.float32)
        self._encoder = OpusEncoder(24_000)
        self._decoder = OpusDecoder()
        self._speech = b""

    async def update(self, **session: Any) -> None:
        given = {"instructions": {"type": "constant", "text": "Be brief."}, "voice": "parley", **session}
        await self.socket.send(json.dumps({"type": "session.update", "session": given}))

    def speak(self, pcm_16k: bytes) -> None:
        samples = np.frombuffer(pcm_16k, "<i2").astype(np.float32) / 32_768
        heard = Resampler(16_000, 24_000).feed(samples)
        self.append((np.clip(heard, -1, 1) * 32_767).astype("<i2").tobytes())

    def append(self, pcm: bytes) -> None:
        """Send 16-bit PCM of 24 kHz after the speech that is queued already."""
        self._speech += pcm

    async def microphone(self) -> None:
        due_s = time.monotonic()
        while True:
            piece, self._speech = self._speech[: 2 * PACKET], self._speech[2 * PACKET :]
            pages = self._encoder.encode(piece.ljust(2 * PACKET, b"\0"))
            audio = base64.b64encode(pages).decode()
            await self.socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            due_s += 0.04
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def until(
        self, type_: str, text: str = "", within_s: float = 60, *, any_type: bool = False
    ) -> dict[str, Any]:
        async with asyncio.timeout(within_s):
            while True:
                event = json.loads(await self.socket.recv())
                assert event["type"] in KNOWN and event["event_id"]
                self.got.append(event)
                if event["type"] == "response.created":
                    self._answers += 1
                elif event["type"] == "response.audio.delta":
                    audio = self._decoder.decode(self._decoder.packets(base64.b64decode(event["delta"])))
                    self._player.take(str(self._answers), len(audio) / 24_000)
                    self.heard = np.concatenate([self.heard, audio])
                if any_type or (event["type"] == type_ and text in json.dumps(event)):
                    return event

    def types(self) -> list[str]:
        return [event["type"] for event in self.got]


class LoadTest(FrontEnd):
    """Client like Unmute's load test, which reads the conversation at the moments of its own turns.

    Attributes:
        turns: role and words of each turn, as it would report them.
        order: phases of the present reply that it times.
        history: the conversation as the server has sent it last.
    """

    def __init__(self, socket: ClientConnection, player: Player | None = None) -> None:
        super().__init__(socket, player)
        self.turns: list[tuple[str, str]] = []
        self.order: list[str] = []
        self.history: list[dict[str, str]] = []

    async def until_spoken(self) -> None:
        """Take events up to the end of the next reply."""
        while True:
            before = len(self.got)
            await self.until("", any_type=True)
            event = self.got[before]
            match event["type"]:
                case "unmute.additional_outputs":
                    self.history = event["args"]["chat_history"]
                case "response.created":
                    self.order = ["response_created"]
                    said = [each["content"] for each in self.history if each["role"] == "user"]
                    if said:
                        self.turns.append(("user", said[-1]))
                case "unmute.response.text.delta.ready":
                    self._phase("text_start")
                case "response.audio.delta":
                    self._phase("audio_start")
                case "response.audio.done":
                    last = self.history[-1]
                    self.turns.append((last["role"], last["content"]))
                    return

    def _phase(self, name: str) -> None:
        if name not in self.order:
            self.order.append(name)
