"""OpenAI's Live API on loopback: one stream of the model's audio with its silence, and fragments of words."""

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import WSMsgType, web

from tests.peers.http_peer import HttpPeer

RATE_HZ = 24_000
_LOUD = 1_000
_PIECE_MS = 80
_PIECE = RATE_HZ * _PIECE_MS // 1000
_TONE = (8_000 * np.sin(2 * np.pi * 400 * np.arange(_PIECE) / RATE_HZ)).astype("<i2").tobytes()


@dataclass
class LiveServer(HttpPeer):
    """Server of one conversation: an utterance that ends is transcribed and answered with a tone.

    Args:
        heard: fragments of the caller's transcript.
        says: fragments of the answer, one with each piece of its audio from the third on.
        answer_ms: length of the tone.
        silence_ms: silence in the caller's audio that ends an utterance.

    Attributes:
        events: all events of the client, without its audio.
        session: session that the client requested.
    """

    heard: Sequence[str] = ()
    says: Sequence[str] = ()
    answer_ms: int = 1_200
    silence_ms: int = 300
    events: list[dict[str, Any]] = field(default_factory=list)
    session: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/live/sessions"

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/live/sessions", self._serve)]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._tones = 0
        self._fragments: list[str] = []
        self._speaking, self._quiet_ms = False, 0.0
        speaking: asyncio.Task[None] | None = None
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    continue
                event = json.loads(message.data)
                if event["type"] == "session.input_audio.append":
                    await self._hear(socket, base64.b64decode(event["audio"]))
                    continue
                self.events.append(event)
                if event["type"] == "session.start":
                    self.session = event["session"]
                    await socket.send_json({"type": "session.started", "session": {"id": "sess_1"}})
                    speaking = asyncio.create_task(self._speak(socket))
                elif event["type"] == "session.close":
                    await socket.send_json({"type": "session.closed", "reason": "client"})
        finally:
            if speaking is not None:
                speaking.cancel()
        return socket

    async def _hear(self, socket: web.WebSocketResponse, pcm: bytes) -> None:
        audio = np.frombuffer(pcm, "<i2").astype(np.int32)
        if audio.size and int(np.abs(audio).max()) > _LOUD:
            self._speaking, self._quiet_ms = True, 0.0
        elif self._speaking:
            self._quiet_ms += audio.size * 1000 / RATE_HZ
            if self._quiet_ms >= self.silence_ms:
                self._speaking = False
                for fragment in self.heard:
                    await self._write(socket, "session.input_transcript.delta", fragment)
                self._tones, self._fragments = self.answer_ms // _PIECE_MS, list(self.says)

    async def _write(self, socket: web.WebSocketResponse, kind: str, fragment: str) -> None:
        await socket.send_json({"type": kind, "delta": fragment, "start_ms": 0, "end_ms": 0})

    async def _speak(self, socket: web.WebSocketResponse) -> None:
        loop = asyncio.get_running_loop()
        due_s, said = loop.time(), 0
        while not socket.closed:
            is_tone, self._tones = self._tones > 0, max(0, self._tones - 1)
            said = said + 1 if is_tone else 0
            piece = _TONE if is_tone else bytes(len(_TONE))
            delta = base64.b64encode(piece).decode()
            await socket.send_json({"type": "session.output_audio.delta", "delta": delta})
            if said > 2 and self._fragments:
                await self._write(socket, "session.output_transcript.delta", self._fragments.pop(0))
            due_s += _PIECE_MS / 1000
            await asyncio.sleep(max(0.0, due_s - loop.time()))
