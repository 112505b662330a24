"""Speech as Opus in Ogg (RFC 7845), both ways, as a stream, by libopus through PyAV.

The duration of packets is known, and bounded, before any of them is decoded: 150 bytes may represent five
seconds.
"""

import secrets
import struct
from collections.abc import Sequence

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.error import FFmpegError

from parley.audio.ogg import OggReader, OggWriter
from parley.audio.opus_packets import GRANULE_HZ, LONGEST_PACKET_SAMPLES, packet_samples
from parley.core.errors import ShapeError
from parley.transports.speech_encoder import PACKET_MS, SpeechEncoder

# Samples at 48 kHz that a decoder leaves out (libopus at 24 kHz looks 6.5 ms ahead).
PRE_SKIP = 312
# Bound of one message. A byte of it may represent 15 ms: half a megabyte would be hours, and gigabytes
# decoded.
LONGEST_MESSAGE_SAMPLES = 5 * GRANULE_HZ


class OpusDecoder:
    """Decoder of one stream: bytes in, float32 at 48 kHz out."""

    rate_hz = GRANULE_HZ

    def __init__(self) -> None:
        self._reader = OggReader()
        self._codec: AudioCodecContext | None = None
        self._skip = 0

    def packets(self, data: bytes) -> list[bytes]:
        """Add bytes to the stream; return the packets that are complete now.

        Raises:
            ShapeError: they are not Opus, or too long for one message.
        """
        packets: list[bytes] = []
        samples = 0
        for packet in self._reader.feed(data):
            samples += packet_samples(packet)
            if samples > LONGEST_MESSAGE_SAMPLES:
                raise ShapeError(f"over {LONGEST_MESSAGE_SAMPLES // GRANULE_HZ} s of audio in one message")
            packets.append(packet)
        return packets

    def decode(self, packets: Sequence[bytes]) -> np.ndarray:
        """Decode packets in order: float32, (samples,). Takes 0.3 ms for a packet of 20 ms.

        Raises:
            ShapeError: they are not Opus of one or two channels.
        """
        heard = [piece for packet in packets if len(piece := self._packet(packet))]
        return np.concatenate(heard) if heard else np.zeros(0, np.float32)

    def _packet(self, packet: bytes) -> np.ndarray:
        nothing = np.zeros(0, np.float32)
        if packet.startswith(b"OpusHead"):
            self._begin(packet)
            return nothing
        if packet.startswith(b"OpusTags") or not packet:
            return nothing
        if self._codec is None:
            raise ShapeError("the Opus stream has no header")
        try:
            frames = self._codec.decode(av.Packet(packet))
        except FFmpegError as error:
            raise ShapeError(f"the packet is not Opus: {error}") from error
        if not frames:
            return nothing
        audio = np.concatenate([frame.to_ndarray().reshape(self._channels, -1) for frame in frames], axis=1)
        mono = audio.astype(np.float32).mean(axis=0)[:LONGEST_PACKET_SAMPLES]
        skipped, self._skip = self._skip, max(0, self._skip - len(mono))
        return np.asarray(mono[skipped:], np.float32)

    def _begin(self, head: bytes) -> None:
        if len(head) < 19 or head[9] not in (1, 2):
            raise ShapeError("unreadable Opus header")
        self._channels = head[9]
        self._skip = struct.unpack_from("<H", head, 10)[0]
        codec = av.CodecContext.create("opus", "r")
        assert isinstance(codec, AudioCodecContext)
        codec.extradata = head
        codec.sample_rate = GRANULE_HZ
        codec.layout = "mono" if self._channels == 1 else "stereo"
        codec.open()
        self._codec = codec


class OpusEncoder:
    """Encoder of one stream: 16-bit PCM in, pages out; less than a frame waits for more.

    Args:
        rate_hz: rate of the PCM: one that Opus supports.
    """

    def __init__(self, rate_hz: int) -> None:
        self._encoder = SpeechEncoder(rate_hz)
        self._writer = OggWriter(secrets.randbits(32))
        self._held = bytearray()
        self._granule = 0
        head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, PRE_SKIP, rate_hz, 0, 0)
        vendor = b"parley"
        tags = b"OpusTags" + struct.pack("<I", len(vendor)) + vendor + struct.pack("<I", 0)
        self._first = self._writer.page(head, 0) + self._writer.page(tags, 0)

    def encode(self, pcm: bytes) -> bytes:
        """Encode more of the stream: whole pages, with the header of the stream before the first."""
        self._held += pcm
        pages, self._first = [self._first], b""
        packet_bytes = self._encoder.packet_bytes
        while len(self._held) >= packet_bytes:
            packet = self._encoder.encode(bytes(self._held[:packet_bytes]))
            del self._held[:packet_bytes]
            self._granule += PACKET_MS * GRANULE_HZ // 1000
            pages.append(self._writer.page(packet, self._granule))
        return b"".join(pages)
