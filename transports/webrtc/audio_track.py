"""The bot's voice as a paced Opus stream.

Decides when each 20 ms packet leaves and what it contains. PCM comes in through ``write``, which returns once
no more than ``lead_ms`` is waiting; the writer is held back, and nothing is dropped. Packets leave through
``recv``, which the peer connection calls and which sleeps until the packet is due. An empty buffer sends
silence, and on a busy loop one that has just begun to fill waits for a moment. ``clear`` drops unsent audio,
so a barge-in is silent from the next packet on. ``gain`` is applied to a packet when it leaves, so a duck
takes effect with the next one.

Pipecat's own track keeps one chunk only and resolves a write when the chunk is gone. A loop that is 10 ms
late then inserts silence into the middle of a word; the lead here covers ``lead_ms`` of lateness. A loop that
was later than that sends overdue packets at once. When speech is due and missing, the track waits for a
moment (``GRACE_MS``), in which its writer gets to run. Packets are encoded here, in mono at the bot's own
rate, and silence is one packet encoded once. The stock path resamples every 10 ms to 48 kHz stereo and
encodes in a thread, silence included.
"""

import asyncio
import fractions
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av.packet import Packet

from parley.audio.gain import RampedGain
from parley.core.call_events import PacketLate
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.runtime.event_stream import CallEvents
from parley.transports.speech_encoder import PACKET_MS, SpeechEncoder

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
    ) -> None:
        super().__init__()
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
        self._filled.set()
        while len(self._buffer) > self._lead_bytes and self.readyState == "live":
            self._room.clear()
            await self._room.wait()
        return clears == self._clears

    def clear(self) -> None:
        """Drop all unsent audio, release a waiting ``write``, and reset the gain to full volume."""
        self._clears += 1
        self._buffer.clear()
        self.gain.reset()
        self._room.set()
        self._filled.set()

    def stop(self) -> None:
        super().stop()
        self.clear()

    async def recv(self) -> "Packet[Any]":
        """Return the next packet, at the moment it is due.

        Raises MediaStreamError once the track has ended.
        """
        if self.readyState != "live":
            raise MediaStreamError
        loop = asyncio.get_running_loop()
        if self._origin_s is None:
            self._origin_s = loop.time()
        due_s = self._origin_s + self._packets * PACKET_MS / 1000
        late_s = loop.time() - due_s
        if late_s < 0:
            await asyncio.sleep(-late_s)
            late_s = loop.time() - due_s
        if late_s * 1000 > RESYNC_MS:
            self._origin_s += late_s
        self.max_late_ms = max(self.max_late_ms, late_s * 1000)
        if late_s * 1000 >= BUSY_MS:
            self._busy_until_packet = self._packets + BUSY_PACKETS
            if self._call_events is not None and not self._idle:
                self._call_events.publish(PacketLate(self._call_events.now_ms(), round(late_s * 1000)))
        if not self._buffer and not self._idle:
            self._filled.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_MS / 1000):
                    await self._filled.wait()
        packet = Packet(self._next_payload())
        packet.pts = self._packets * RTP_TICKS_PER_PACKET
        packet.time_base = fractions.Fraction(1, RTP_RATE_HZ)
        self._packets += 1
        return packet

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
