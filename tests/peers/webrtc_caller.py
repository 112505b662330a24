"""A browser's side of a call, by aiortc: sends a microphone track, collects the bot's audio and messages."""

import asyncio
import fractions
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame, AudioResampler, VideoFrame


async def until_state(connection: RTCPeerConnection, state: str, *, within_s: float = 60) -> None:
    """Wait until a peer connection, of either end, is in a state."""
    reached = asyncio.Event()

    def look() -> None:
        if connection.connectionState == state:
            reached.set()

    connection.on("connectionstatechange", look)
    look()
    async with asyncio.timeout(within_s):
        await reached.wait()


class Microphone(MediaStreamTrack):
    """Track that plays 16 kHz mono PCM in real time, 20 ms at a time, then silence."""

    kind = "audio"

    def __init__(self, pcm: bytes = b"") -> None:
        super().__init__()
        self._pcm = pcm
        self._frames = 0
        self._origin_s: float | None = None
        # Set while there is nothing to say.
        self._said = asyncio.Event()

    def say(self, pcm: bytes) -> None:
        self._pcm += pcm
        self._said.clear()

    async def until_said(self) -> None:
        """Return when all has been said."""
        await self._said.wait()

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        if self._origin_s is None:
            self._origin_s = loop.time()
        await asyncio.sleep(max(0.0, self._origin_s + self._frames * 0.02 - loop.time()))
        if not self._pcm:
            self._said.set()
        piece, self._pcm = self._pcm[:640], self._pcm[640:]
        samples = np.frombuffer(piece.ljust(640, b"\0"), dtype="<i2")
        frame = AudioFrame.from_ndarray(samples[None, :], format="s16", layout="mono")
        frame.sample_rate = 16_000
        frame.pts = self._frames * 320
        frame.time_base = fractions.Fraction(1, 16_000)
        self._frames += 1
        return frame


class Camera(MediaStreamTrack):
    """Track of one picture with the noise of a sensor.

    Args:
        picture: uint8, (height, width, 3), RGB.
        every_s: interval of the frames.

    Attributes:
        picture: may be changed at any time.
        is_frozen: the last frame is repeated.
    """

    kind = "video"

    def __init__(self, picture: np.ndarray, *, every_s: float = 1 / 15) -> None:
        super().__init__()
        self.picture = picture
        self.is_frozen = False
        self._noise = np.random.default_rng(1)
        self._last = picture
        self._every_s = every_s
        self._frames = 0
        self._origin_s: float | None = None

    async def recv(self) -> VideoFrame:
        loop = asyncio.get_running_loop()
        if self._origin_s is None:
            self._origin_s = loop.time()
        await asyncio.sleep(max(0.0, self._origin_s + self._frames * self._every_s - loop.time()))
        if not self.is_frozen:
            noise = self._noise.integers(-6, 7, self.picture.shape)
            self._last = np.clip(self.picture + noise, 0, 255).astype(np.uint8)
        frame = VideoFrame.from_ndarray(self._last, format="rgb24")
        frame.pts = round(self._frames * self._every_s * 90_000)
        frame.time_base = fractions.Fraction(1, 90_000)
        self._frames += 1
        return frame


class Caller:
    """The caller's side of one call.

    Args:
        pcm: what the caller says at once.
        camera: of the caller; None without one.
        channel: name of the data channel.

    Attributes:
        heard: 16 kHz mono PCM from the bot, silence included.
        messages: messages from the bot: RTVI's, or those of another protocol.
    """

    def __init__(self, pcm: bytes = b"", *, camera: Camera | None = None, channel: str = "rtvi") -> None:
        # Both ends are on this machine: no public STUN server is used.
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.microphone = Microphone(pcm)
        self.connection.addTrack(self.microphone)
        if camera is not None:
            self.connection.addTrack(camera)
        self.heard = bytearray()
        self.messages: list[dict[str, Any]] = []
        self.pc_id = ""
        self._listener: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.open_channel(channel)

        @self.connection.on("track")
        def on_track(track: MediaStreamTrack) -> None:
            self._listener = asyncio.create_task(self._listen(track))

    def open_channel(self, name: str) -> None:
        """Make the data channel."""
        self.channel = self.connection.createDataChannel(name)

        @self.channel.on("open")
        def on_open() -> None:
            self.greet()

        @self.channel.on("message")
        def on_message(message: str) -> None:
            self.messages.append(json.loads(message))
            self._news.set()

    def greet(self) -> None:
        """Send the first message, once the channel is open."""
        self.send({"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "1.0.0"}})

    def send(self, message: dict[str, Any]) -> None:
        self.channel.send(json.dumps(message))

    def type(self, text: str, *, id_: str = "2") -> None:
        """Send a typed question, which is answered at once."""
        typed = {"content": text, "options": {"run_immediately": True}}
        self.send({"label": "rtvi-ai", "type": "send-text", "id": id_, "data": typed})

    async def offer(self) -> dict[str, str]:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        description = self.connection.localDescription
        return {"sdp": description.sdp, "type": description.type}

    async def accept(self, answer: dict[str, str]) -> None:
        self.pc_id = answer["pc_id"]
        await self.connection.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))

    async def _listen(self, track: MediaStreamTrack) -> None:
        resampler = AudioResampler("s16", "mono", 16_000)
        while True:
            frame = await track.recv()
            for piece in resampler.resample(frame):
                self.heard += piece.to_ndarray().astype("<i2").tobytes()
            self._news.set()

    async def until(self, condition: Any, *, within_s: float = 60) -> None:
        """Wait until ``condition()`` holds; it is evaluated whenever something arrives."""
        async with asyncio.timeout(within_s):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message.get("type") == kind]

    async def hang_up(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        await self.connection.close()

    def vanish(self) -> None:
        """Stop without notice: no BYE, no close, nothing leaves this side any more."""
        if self._listener is not None:
            self._listener.cancel()
        for transport in {sender.transport for sender in self.connection.getSenders()}:
            ice = transport.transport._connection
            for protocol in list(ice._protocols):
                protocol.transport.sendto = lambda *_nothing: None


@asynccontextmanager
async def greeted(
    client: httpx.AsyncClient, path: str = "/api/offer", *, camera: Camera | None = None
) -> AsyncIterator[Caller]:
    """Hold a call of a caller who has heard the greeting."""
    caller = Caller(camera=camera)
    answer = await client.post(path, json=await caller.offer())
    answer.raise_for_status()
    await caller.accept(answer.json())
    try:
        await caller.until(lambda: caller.of_type("bot-stopped-speaking"))
        yield caller
    finally:
        await caller.hang_up()
