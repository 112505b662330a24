"""A WebRTC server of known timing: it answers speech with a tone a fixed time after the last audible sample.

It speaks Pipecat's signalling and sends the turn message of a server that reports its marks. Everything
between the caller's microphone and the figures can therefore be checked against the true times.
"""

import asyncio
import fractions
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamTrack
from av import AudioFrame

RATE_HZ = 48_000
SLOT = 960


class ToneTrack(MediaStreamTrack):
    """Track of silence and, on demand, a tone, paced by its own 20 ms clock."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._start: float | None = None
        self._slot = 0
        self._tone_slots = 0
        self._begun: asyncio.Future[int] | None = None

    def play(self, duration_ms: int) -> asyncio.Future[int]:
        """Start the tone with the next slot; return the wall-clock time at which it was sent."""
        self._tone_slots = duration_ms // 20
        self._begun = asyncio.get_running_loop().create_future()
        return self._begun

    async def recv(self) -> AudioFrame:
        if self._start is None:
            self._start = time.monotonic()
        await asyncio.sleep(max(0.0, self._start + self._slot * 0.02 - time.monotonic()))
        pcm = np.zeros(SLOT, dtype=np.int16)
        if self._tone_slots:
            self._tone_slots -= 1
            pcm = (8000 * np.cos(2 * np.pi * 500 * np.arange(SLOT) / RATE_HZ)).astype(np.int16)
            if self._begun is not None and not self._begun.done():
                self._begun.set_result(time.time_ns() // 1000)
        frame = AudioFrame.from_ndarray(pcm[None, :], layout="mono")
        frame.sample_rate = RATE_HZ
        frame.pts = self._slot * SLOT
        frame.time_base = fractions.Fraction(1, RATE_HZ)
        self._slot += 1
        return frame


@dataclass
class LatencyPeer:
    """Behaviour of the server, and a record of what it received.

    Attributes:
        wait_ms: silence in ms after which it answers; None for never.
        tone_ms: length of an answer in ms.
        offers: number of calls that are accepted in all; later ones are refused.
        crowded_from: call, counted from 1, from which on the server is crowded; None for never.
        crowded_wait_ms: silence before an answer, in every call, once the server is crowded.
        received: messages of the client, without pings.
    """

    wait_ms: int | None = 300
    tone_ms: int = 400
    offers: int = 100
    crowded_from: int | None = None
    crowded_wait_ms: int = 1_500
    received: list[dict[str, Any]] = field(default_factory=list)
    pings: int = 0
    _connections: list[RTCPeerConnection] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def offer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if len(self._connections) >= self.offers:
            return web.json_response({"error": "every line is taken"}, status=503)
        connection = RTCPeerConnection()
        self._connections.append(connection)
        track = ToneTrack()
        channels: list[Any] = []

        @connection.on("datachannel")
        def on_channel(channel: Any) -> None:
            channels.append(channel)

            @channel.on("message")
            def on_message(text: str) -> None:
                if text == "ping":
                    self.pings += 1
                else:
                    self.received.append(json.loads(text))

        @connection.on("track")
        def on_track(remote: MediaStreamTrack) -> None:
            self._tasks.append(asyncio.create_task(self._answer(remote, track, channels)))

        await connection.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))
        connection.addTrack(track)
        await connection.setLocalDescription(await connection.createAnswer())
        local = connection.localDescription
        return web.json_response({"sdp": local.sdp, "type": local.type, "pc_id": "peer-1"})

    async def _answer(self, remote: MediaStreamTrack, track: ToneTrack, channels: list[Any]) -> None:
        await track.play(self.tone_ms)
        spoken_us: int | None = None
        while True:
            frame = await remote.recv()
            now_us = time.time_ns() // 1000
            if np.abs(frame.to_ndarray()).max() > 1000:
                spoken_us = now_us
            wait_ms = self.wait_ms
            if self.crowded_from is not None and len(self._connections) >= self.crowded_from:
                wait_ms = self.crowded_wait_ms
            due = spoken_us is not None and wait_ms is not None and now_us - spoken_us >= wait_ms * 1000
            if due:
                playout_us = await track.play(self.tone_ms)
                marks = {"speech_end": spoken_us, "endpoint": now_us, "playout": playout_us}
                data = {
                    "kind": "turn",
                    "turn": 1,
                    "user_text": "words",
                    "bot_text": "tone",
                    "marks_us": marks,
                }
                channels[0].send(json.dumps({"label": "rtvi-ai", "type": "server-message", "data": data}))
                spoken_us = None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._connections))


@asynccontextmanager
async def serving(peer: LatencyPeer) -> AsyncIterator[str]:
    """Serve a peer on a free port; yield its URL."""

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/api/offer", peer.offer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await peer.close()
        await runner.cleanup()
