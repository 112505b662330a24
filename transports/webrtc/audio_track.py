"""The bot's voice as a paced Opus stream.

Decides when each 20 ms packet leaves and what it contains. PCM comes in through ``write``, which returns once
no more than ``lead_ms`` is waiting; the writer is held back, and nothing is dropped. An empty buffer sends
silence, and on a busy loop one that has just begun to fill waits for a moment. ``clear`` drops unsent audio,
so a barge-in is silent from the next packet on. ``gain`` is applied to a packet when it leaves, so a duck
takes effect with the next one.

The peer connection gets the first packet by ``recv``. After it the track sends by itself (``rtp_sender``), at
the times of a timer, until it or the connection ends: ``recv`` returns no second packet. aiortc's own loop
takes a task, a timer and a dozen objects for each packet.

Pipecat's own track keeps one chunk only and resolves a write when the chunk is gone. A loop that is 10 ms
late then inserts silence into the middle of a word; the lead here covers ``lead_ms`` of lateness. A loop that
was later than that sends overdue packets at once. When speech is due and missing, the track waits for a
moment (``GRACE_MS``), in which its writer gets to run. Packets are encoded here, in mono at the bot's own
rate, and silence is one packet encoded once. The stock path resamples every 10 ms to 48 kHz stereo and
encodes in a thread, silence included.
"""

import asyncio
import fractions
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from aiortc import RTCRtpSender
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av.packet import Packet
from loguru import logger

from parley.audio.gain import RampedGain
from parley.core.call_events import PacketLate
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.runtime.event_stream import CallEvents
from parley.transports.speech_encoder import PACKET_MS, SpeechEncoder
from parley.transports.webrtc.rtp_sender import OutgoingRtp, outgoing_of

# RFC 7587: the RTP clock of Opus is 48 kHz at any rate of the codec.
RTP_RATE_HZ = 48_000
RTP_TICKS_PER_PACKET = RTP_RATE_HZ * PACKET_MS // 1000
# Time to wait for speech that is missing when it is due; after that it counts as ended. Its last packet of
# silence is late by as much, which is inaudible.
GRACE_MS = 10
# A packet that is later than ``BUSY_MS`` shows that the loop is busy; it counts as busy for the next
# ``BUSY_PACKETS``. A reply then begins when ``START_MS`` of it are here, and waits for that for
# ``START_PACKETS`` at most. The loop is busiest when replies begin, and the first word would have gaps. On an
# idle loop a reply begins with its first chunk, and the next is here 3 to 11 ms later. The value is no larger
# because a writer with chunks of 40 ms is let in when 60 ms wait.
BUSY_MS = 10
BUSY_PACKETS = 100
START_MS = 80
START_PACKETS = 2
# Packets later than this are not sent in a burst: the clock is moved instead.
RESYNC_MS = 200
# Packets of all calls leave at multiples of this time, so that the loop wakes up for many at once.
STEP_MS = 5


def silent_packet(encoder: SpeechEncoder) -> bytes:
    """Return the encoder's packet of silence, which is encoded once."""
    # The first packets carry the encoder's start-up; the third of digital silence is stationary.
    packets = [encoder.encode(bytes(encoder.packet_bytes)) for _ in range(3)]
    return packets[-1]


class PacedAudioTrack(MediaStreamTrack):
    """Track that sends written audio, 20 ms at a time, and silence otherwise.

    Args:
        rate_hz: rate of the PCM that is written.
        lead_ms: audio that may still wait to be sent when ``write`` returns.
        on_packet: called with the PCM of every packet that carries written audio, with its gain applied, at
            the moment it leaves; must not block.
        events: events of the call, for packets that are late; None: none is published.
        sender: of the peer connection that reads the track. None: every packet is read from the track.

    Attributes:
        gain: gain of the audio that leaves.
    """

    kind = "audio"

    def __init__(
        self,
        rate_hz: int,
        *,
        lead_ms: int = 60,
        on_packet: Callable[[bytes], None] | None = None,
        events: CallEvents | None = None,
        sender: RTCRtpSender | None = None,
    ) -> None:
        super().__init__()
        self._sender = sender
        self._outgoing: OutgoingRtp | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Set when the track sends no more.
        self._over = asyncio.Event()
        self._awaits_speech = False
        self._encoder = SpeechEncoder(rate_hz)
        self._silence = silent_packet(self._encoder)
        self._lead_bytes = lead_ms * rate_hz // 1000 * PCM_BYTES_PER_SAMPLE
        self._on_packet = on_packet
        self._call_events = events
        self.gain = RampedGain()
        self._buffer = bytearray()
        self._room = asyncio.Event()
        self._room.set()
        self._filled = asyncio.Event()
        self._packets = 0
        self._origin_s: float | None = None
        self._idle = True
        self._start_bytes = START_MS * rate_hz // 1000 * PCM_BYTES_PER_SAMPLE
        self._start_waits = 0
        self._busy_until_packet = 0
        self._clears = 0
        self.max_late_ms = 0.0

    async def write(self, pcm: bytes) -> bool:
        """Queue PCM; return once at most the lead is waiting or the track has ended.

        Returns False when it was dropped meanwhile. A piece that is no longer than the lead has then not
        begun to play.
        """
        if self.readyState != "live":
            return False
        clears = self._clears
        self._buffer += pcm
        self._end_grace()
        while len(self._buffer) > self._lead_bytes and self.readyState == "live":
            self._room.clear()
            await self._room.wait()
        return clears == self._clears

    @property
    def unsent_us(self) -> int:
        """Length of the audio that has not left."""
        return len(self._buffer) * PACKET_MS * 1000 // self._encoder.packet_bytes

    def clear(self) -> None:
        """Drop all unsent audio, release a waiting ``write``, and reset the gain to full volume."""
        self._clears += 1
        self._buffer.clear()
        self.gain.reset()
        self._room.set()
        self._end_grace()

    def stop(self) -> None:
        super().stop()
        self.clear()
        # The sender refers to its track.
        self._sender = None
        self._over.set()

    async def recv(self) -> "Packet[Any]":
        """Return the next packet, at the moment it is due; with a ``sender``, none after the first one sent.

        Raises MediaStreamError once the track has ended.
        """
        if self.readyState != "live":
            raise MediaStreamError
        if self._sender is not None and self._packets:
            self._outgoing = outgoing_of(self._sender)
            if self._outgoing is not None:
                await self._send_until_over()
        loop = asyncio.get_running_loop()
        late_s = loop.time() - self._due_s()
        if late_s < 0:
            await asyncio.sleep(-late_s)
            late_s = loop.time() - self._due_s()
        self._note_lateness(late_s)
        if self._misses_speech:
            self._filled.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_MS / 1000):
                    await self._filled.wait()
        packet = Packet(self._next_payload())
        packet.pts = self._packets * RTP_TICKS_PER_PACKET
        packet.time_base = fractions.Fraction(1, RTP_RATE_HZ)
        self._packets += 1
        return packet

    async def _send_until_over(self) -> NoReturn:
        """Send packets when they are due, until the track or the connection ends."""
        self._align()
        self._wait_until_due()
        try:
            await self._over.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._outgoing = None
        raise MediaStreamError

    def _wait_until_due(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self._due_s(), self._on_due)

    def _on_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._note_lateness(loop.time() - self._due_s())
        if self._misses_speech:
            self._awaits_speech = True
            self._timer = loop.call_later(GRACE_MS / 1000, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._awaits_speech = False
        assert self._outgoing is not None
        try:
            self._outgoing.send(self._next_payload(), RTP_TICKS_PER_PACKET)
        except ConnectionError:
            self._over.set()
            return
        except Exception as error:
            # A timer has no caller, and aiortc's own loop ends with a line in the log too.
            logger.opt(exception=error).warning("the bot's audio of a call ends: a packet cannot be made")
            self._over.set()
            return
        self._packets += 1
        self._wait_until_due()

    def _end_grace(self) -> None:
        """Send the packet that waits for speech."""
        self._filled.set()
        if self._awaits_speech and self._timer is not None:
            self._awaits_speech = False
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(0, self._send)

    def _due_s(self) -> float:
        """Return the loop's time at which the next packet is due; the first one is due now."""
        if self._origin_s is None:
            self._origin_s = asyncio.get_running_loop().time()
        return self._origin_s + self._packets * PACKET_MS / 1000

    @property
    def _misses_speech(self) -> bool:
        return not self._buffer and not self._idle

    def _align(self) -> None:
        """Move the clock to the next multiple of ``STEP_MS``."""
        assert self._origin_s is not None
        self._origin_s = math.ceil(self._origin_s * 1000 / STEP_MS) * STEP_MS / 1000

    def _note_lateness(self, late_s: float) -> None:
        assert self._origin_s is not None
        if late_s * 1000 > RESYNC_MS:
            self._origin_s += late_s
            if self._outgoing is not None:
                self._align()
        self.max_late_ms = max(self.max_late_ms, late_s * 1000)
        if late_s * 1000 >= BUSY_MS:
            self._busy_until_packet = self._packets + BUSY_PACKETS
            if self._call_events is not None and not self._idle:
                self._call_events.publish(PacketLate(self._call_events.now_ms(), round(late_s * 1000)))

    def _next_payload(self) -> bytes:
        size = self._encoder.packet_bytes
        if not self._buffer:
            self._start_waits = 0
            if not self._idle:
                # One packet from the encoder lets the codec ring out before the stored silence takes over.
                self._idle = True
                return self._encoder.encode(bytes(size))
            return self._silence
        if self._idle and self._waits_for_more():
            self._start_waits += 1
            return self._silence
        self._idle = False
        pcm = self.gain.apply(bytes(self._buffer[:size]))
        del self._buffer[:size]
        if len(self._buffer) <= self._lead_bytes:
            self._room.set()
        if self._on_packet:
            self._on_packet(pcm)
        return self._encoder.encode(pcm.ljust(size, b"\0"))

    def _waits_for_more(self) -> bool:
        """Return whether a reply that has begun to arrive should begin later."""
        is_busy = self._packets < self._busy_until_packet
        return is_busy and len(self._buffer) < self._start_bytes and self._start_waits < START_PACKETS
