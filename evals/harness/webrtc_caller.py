"""Caller on a real WebRTC connection that records both sides by its own clock.

This client adds the following to every figure, the same for every server under test:

* Microphone. Slot n covers 20 ms of the client's monotonic clock; its packet leaves when the slot is over, as
  from a sound card, so up to 20 ms of packetising count as latency. The slot, not the moment of sending, is
  the position in the recording. The lateness of the loop is reported (``client_send_late_ms``).
* Receiver. Packets are stamped when aiortc hands them to the RTP receiver. From there they go through
  aiortc's own ``JitterBuffer(capacity=16, prefetch=4)`` and Opus decoder, as in its receiver, but immediately
  instead of in a thread of its own. A frame is released when the packet four places after it arrives, so the
  buffer delays all received audio by 80 ms. A browser's adaptive buffer adds 20-60 ms on a good network; the
  fixed figure is kept because it can be subtracted. ``playout.place`` then plays the released frames.
* Duties of a Pipecat client: a data channel with the RTVI ``client-ready`` message and a ``ping`` each
  second.

The receiver's RTCP reports are not sent for the tapped stream; nothing in a Pipecat server reads them.

A ``Line`` owns its peer connection and its ping task from ``dial`` to ``hang_up``. Every wait has a deadline.
"""

import asyncio
import fractions
import json
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterBuffer
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtp import RtpPacket
from av import AudioFrame, Packet

from parley.audio.audible import AudibleMeter
from parley.core.errors import PeerError
from parley.evals.harness.playout import HeardFrame
from parley.evals.harness.speech import FRAME_SAMPLES, RATE_HZ, Spoken, encode
from parley.evals.library_internals import set_payload, take_packets

SLOT_US = 20_000
JITTER_CAPACITY = 16
JITTER_PREFETCH = 4
PING_S = 1.0
DIAL_TIMEOUT_S = 15.0
HANG_UP_TIMEOUT_S = 5.0
CLIENT_READY = {
    "label": "rtvi-ai",
    "type": "client-ready",
    "id": "1",
    "data": {"version": "1.0.0", "about": {"library": "parley-latency", "library_version": "1"}},
}


def now_us() -> int:
    """Return the time of the client's monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class Sent:
    """An utterance on the microphone.

    Attributes:
        slot: microphone slot of its first frame.
        spoken: the utterance.
    """

    slot: int
    spoken: Spoken


class Microphone(MediaStreamTrack):
    """Track of pre-encoded packets on a 20 ms clock, with silence between utterances."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._silence = encode(np.zeros(FRAME_SAMPLES * 5, dtype=np.int16))[-1]
        self._slot = 0
        self._pending: list[bytes] = []
        self._done: asyncio.Future[None] | None = None
        self.start_us: int | None = None
        self.sent: list[Sent] = []
        self.send_late_us: list[int] = []

    async def recv(self) -> "Packet[Any]":
        """Return the packet of the next slot, when the slot is over."""
        if self.readyState != "live":
            raise MediaStreamError
        if self.start_us is None:
            self.start_us = now_us()
        due_us = self.start_us + (self._slot + 1) * SLOT_US
        wait_us = due_us - now_us()
        if wait_us > 0:
            await asyncio.sleep(wait_us / 1e6)
        payload = self._pending.pop(0) if self._pending else self._silence
        if not self._pending and self._done is not None:
            if not self._done.done():
                self._done.set_result(None)
            self._done = None
        packet = Packet(payload)
        packet.pts = self._slot * FRAME_SAMPLES
        packet.time_base = fractions.Fraction(1, RATE_HZ)
        self._slot += 1
        self.send_late_us.append(now_us() - due_us)
        return packet

    async def speak(self, spoken: Spoken) -> Sent:
        """Send an utterance from the next slot on; return when its last packet has left.

        Raises:
            PeerError: the connection does not take packets.
        """
        sent = Sent(self._slot, spoken)
        self.sent.append(sent)
        self._pending = list(spoken.packets)
        self._done = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(len(spoken.packets) * 0.02 + 5.0):
                await self._done
        except TimeoutError:
            raise PeerError("the connection stopped taking the caller's audio") from None
        return sent

    def at_us(self, slot: int) -> int:
        """Return the client time at which a slot starts."""
        assert self.start_us is not None
        return self.start_us + slot * SLOT_US


@dataclass(slots=True)
class Arrivals:
    """Arrivals of all audio packets of the bot, before any buffering.

    Attributes:
        at_us: client time of arrival.
        rtp_timestamps: 48 kHz, as sent.
    """

    at_us: list[int] = field(default_factory=list)
    rtp_timestamps: list[int] = field(default_factory=list)


class Ears:
    """Receiver of the bot's audio: decodes it and records when it was last audible."""

    def __init__(self) -> None:
        self._buffer = JitterBuffer(capacity=JITTER_CAPACITY, prefetch=JITTER_PREFETCH)
        self._decoder = OpusDecoder()
        self._meter = AudibleMeter(RATE_HZ)
        self.arrivals = Arrivals()
        self.frames: list[HeardFrame] = []
        self.frame_stamps: list[int] = []
        self.last_audible_us: int | None = None

    async def take(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        """Take a packet in place of the receiver's handler; buffer and decode it at once."""
        at_us = now_us()
        self.arrivals.at_us.append(at_us)
        self.arrivals.rtp_timestamps.append(packet.timestamp)
        set_payload(packet, packet.payload)
        _, encoded = self._buffer.add(packet)
        if encoded is None:
            return
        for frame in self._decoder.decode(encoded):
            assert isinstance(frame, AudioFrame)
            # aiortc decodes to interleaved stereo; both channels of a mono sender are the same.
            pcm = np.ascontiguousarray(frame.to_ndarray().reshape(-1, 2)[:, 0])
            self.frames.append(HeardFrame(at_us, pcm))
            self.frame_stamps.append(encoded.timestamp)
            if self._meter.feed(pcm.astype(np.float32) / 32768):
                self.last_audible_us = at_us

    def buffered_us(self, heard_us: int) -> int | None:
        """Return the time that the packet of the frame played at a moment had waited in the jitter buffer."""
        index = bisect_right(self.frames, heard_us, key=lambda frame: frame.release_us) - 1
        if index < 0:
            return None
        arrived = dict(zip(self.arrivals.rtp_timestamps, self.arrivals.at_us, strict=True))
        return self.frames[index].release_us - arrived[self.frame_stamps[index]]


@dataclass(frozen=True, slots=True)
class Message:
    """An RTVI message of the server.

    Attributes:
        at_us: client time of arrival.
        body: the message.
    """

    at_us: int
    body: dict[str, Any]


class QueuedError(PeerError):
    """The server has no free line and put the caller into its queue."""


class Line:
    """A call.

    Args:
        url: root of the server, ``http://host:port``.
        mode: requested mode of the call. None leaves it to the server.
        address: of the caller, on this machine. None uses any.
        token: sent as a bearer token. Empty for none.
        camera: video track of the caller; None without one.
        screen: second video track, which comes after a camera; None without one.
    """

    def __init__(
        self,
        url: str,
        *,
        mode: str | None = None,
        address: str | None = None,
        token: str = "",
        camera: MediaStreamTrack | None = None,
        screen: MediaStreamTrack | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._wants: dict[str, object] = {} if mode is None else {"requestData": {"mode": mode}}
        self.microphone = Microphone()
        # The server distinguishes them by their order.
        self._shown = [track for track in (camera, screen) if track is not None]
        self.ears = Ears()
        self.messages: list[Message] = []
        # Marks of the server are wall-clock times: one offset per call, as no clock is stepped during it.
        self.wall_offset_us = time.time_ns() // 1000 - now_us()
        self.offered_us = 0
        self.connected_us = 0
        # With aiortc's own policy the second video track is left off the common transport, and never arrives.
        policy = RTCBundlePolicy.BALANCED if screen is None else RTCBundlePolicy.MAX_BUNDLE
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=policy))
        self._channel: Any = None
        self._ping: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()

    async def prepare(self) -> None:
        """Make the offer, which costs the client milliseconds of computing, before the moment that counts."""
        connection = self._connection
        sender = connection.addTrack(self.microphone)
        (receiver,) = [t.receiver for t in connection.getTransceivers() if t.sender is sender]
        take_packets(receiver, self.ears.take)
        for track in self._shown:
            connection.addTrack(track)
        channel = self._channel = connection.createDataChannel("rtvi-ai")

        @channel.on("open")
        def on_open() -> None:
            self.greet(channel)

        @channel.on("message")
        def on_message(text: str | bytes) -> None:
            self._take_message(text)

        @connection.on("connectionstatechange")
        def on_state() -> None:
            if connection.connectionState in ("connected", "failed", "closed"):
                self._connected.set()

        await connection.setLocalDescription(await connection.createOffer())

    def greet(self, channel: Any) -> None:
        """Send the first message on the data channel, and signs of life from then on."""
        channel.send(json.dumps(CLIENT_READY))
        self._ping = asyncio.create_task(self._keep_alive(channel), name="latency.ping")

    async def dial(self) -> None:
        """Send the offer and return when the media path is up.

        Raises:
            PeerError: no server, a refusal, or no media path within the deadline.
        """
        if self._connection.localDescription is None:
            await self.prepare()
        offer = self._connection.localDescription
        self.offered_us = now_us()
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                answer = await self.post({"sdp": offer.sdp, "type": offer.type, **self._wants})
                await self._connection.setRemoteDescription(
                    RTCSessionDescription(sdp=str(answer["sdp"]), type=str(answer["type"]))
                )
                await self._connected.wait()
        except TimeoutError:
            raise PeerError(f"{self._url} did not connect within {DIAL_TIMEOUT_S:.0f} s") from None
        if self._connection.connectionState != "connected":
            raise PeerError(f"{self._url}: the media path failed")
        self.connected_us = now_us()

    async def hang_up(self) -> None:
        """Close the call. Allowed at any time, also twice."""
        if self._ping is not None:
            self._ping.cancel()
        async with asyncio.timeout(HANG_UP_TIMEOUT_S):
            await self._connection.close()

    @property
    def answered_sdp(self) -> str:
        """The server's answer; empty before it came."""
        description = self._connection.remoteDescription
        return "" if description is None else str(description.sdp)

    @property
    def alive(self) -> bool:
        """True while the media path is up."""
        return self._connection.connectionState == "connected"

    @property
    def queue_position(self) -> int:
        """Position in the server's queue for a line, as last reported; 0 when not in the queue."""
        places = self.server_messages("queue")
        return int(places[-1]["position"]) if places else 0

    async def wait_placed(self, deadline_ms: int) -> bool:
        """Wait until the bot is ready (return True) or the call has a place in the queue (return False).

        It also returns False after ``deadline_ms`` or when the media path is gone.
        """
        end_us = now_us() + deadline_ms * 1000
        while now_us() < end_us and self.alive and not self.queue_position:
            if any(message.body.get("type") == "bot-ready" for message in self.messages):
                return True
            await asyncio.sleep(0.02)
        return False

    def bot_quiet_us(self) -> int | None:
        """Return the time since the bot was last audible; None when it never was."""
        last_us = self.ears.last_audible_us
        return None if last_us is None else now_us() - last_us

    async def wait_bot_quiet(self, quiet_ms: int, deadline_ms: int) -> bool:
        """Wait until the bot has been quiet for ``quiet_ms``; return False when it was not within
        ``deadline_ms``.
        """
        end_us = now_us() + deadline_ms * 1000
        while now_us() < end_us and self.alive:
            quiet_us = self.bot_quiet_us()
            if quiet_us is not None and quiet_us >= quiet_ms * 1000:
                return True
            await asyncio.sleep(0.02)
        return False

    async def wait_bot_audible(self, after_us: int, deadline_ms: int) -> bool:
        """Wait until the bot is audible after a moment; return False when it was not within
        ``deadline_ms``.
        """
        end_us = after_us + deadline_ms * 1000
        while now_us() < end_us and self.alive:
            if self.ears.last_audible_us is not None and self.ears.last_audible_us > after_us:
                return True
            await asyncio.sleep(0.02)
        return False

    async def post(self, body: dict[str, object]) -> dict[str, Any]:
        """Send an offer; return the answer."""
        local = None if self._address is None else (self._address, 0)
        try:
            async with (
                aiohttp.ClientSession(
                    headers=self._headers, connector=aiohttp.TCPConnector(local_addr=local)
                ) as session,
                session.post(f"{self._url}/api/offer", json=body) as response,
            ):
                if response.status != 200:
                    raise PeerError(f"{self._url}/api/offer answered {response.status}")
                answer = await response.json()
        except aiohttp.ClientError as error:
            raise PeerError(f"no server at {self._url}: {error}") from error
        if not isinstance(answer, dict) or "sdp" not in answer or "type" not in answer:
            raise PeerError(f"{self._url}/api/offer returned no SDP answer")
        return answer

    def send(self, text: str) -> bool:
        """Send a message on the data channel; return False while it is not open."""
        if self._channel is None or self._channel.readyState != "open":
            return False
        self._channel.send(text)
        return True

    async def _keep_alive(self, channel: Any) -> None:
        while channel.readyState == "open":
            channel.send("ping")
            await asyncio.sleep(PING_S)

    def _take_message(self, text: str | bytes) -> None:
        try:
            body = json.loads(text)
        except ValueError:
            return
        if isinstance(body, dict):
            self.messages.append(Message(now_us(), body))

    def server_messages(self, kind: str) -> list[dict[str, Any]]:
        """Return the payloads of the server's own messages of a kind, in order of arrival."""
        payloads = [m.body.get("data") for m in self.messages if m.body.get("type") == "server-message"]
        return [data for data in payloads if isinstance(data, dict) and data.get("kind") == kind]
