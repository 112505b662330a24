"""Conversion of audio between a client's format and the pipeline's 16-bit PCM, stream by stream.

One object serves one direction of a call. A format may change between two pieces (a client's update): audio
still held of the old one is dropped, which is less than a packet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parley.audio import g711
from parley.audio.opus_packets import packet_samples
from parley.audio.resample import Resampler
from parley.core.errors import ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, pcm16_to_float
from parley.protocols.client_protocol import SAMPLE_BYTES, Codec, Format
from parley.transports.websocket.opus import OpusDecoder, OpusEncoder

_US_PER_S = 1_000_000
# Headers count as much as the shortest packet: they have no sound, and each one opens a decoder.
SHORTEST_PACKET_US = 2_500
_LAWS = {Codec.PCMU: g711.Law.MU, Codec.PCMA: g711.Law.A}


class Decoder:
    """Converter from a client's bytes to 16-bit PCM, in two steps: the first measures the cost of the second.

    Args:
        rate_hz: rate of the PCM.
    """

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._stream: _Stream | None = None

    def open(self, data: bytes, format_: Format) -> "Coded":
        """Add bytes to the stream; return them with the cost of decoding, undecoded.

        Raises:
            ShapeError: the bytes are not in that format, or too much at a time.
        """
        if self._stream is None or format_ != self._stream.format:
            self._stream = _Stream(format_, self._rate_hz)
        return self._stream.open(data)


@dataclass(frozen=True, slots=True)
class Coded:
    """Piece of a client's audio that is not decoded yet. Pieces of a stream are decoded in order.

    Attributes:
        parts: its bytes, or its packets.
        lengths_us: length of the audio of each part.
        stream: stream that the piece belongs to.
    """

    parts: tuple[bytes, ...]
    lengths_us: tuple[int, ...]
    stream: "_Stream"

    @property
    def length_us(self) -> int:
        """Length of its audio."""
        return sum(self.lengths_us)

    @property
    def is_slow(self) -> bool:
        """Tell whether decoding takes more than a copy."""
        return self.stream.is_slow

    def pieces(self, piece_ms: int) -> Iterator["Coded"]:
        """Return the piece in parts of this length, or of one packet where that is longer."""
        for part, length_us in zip(self.parts, self.lengths_us, strict=True):
            step = self.stream.bytes_in(piece_ms) or len(part) or 1
            for start in range(0, len(part), step):
                piece = part[start : start + step]
                yield Coded((piece,), (length_us * len(piece) // len(part),), self.stream)

    def followed_by(self, later: "Coded") -> "Coded":
        """Return this piece and the next one of its stream as one."""
        return Coded(self.parts + later.parts, self.lengths_us + later.lengths_us, self.stream)

    def decode(self) -> bytes:
        """Return 16-bit PCM at the rate of the decoder. 200 ms take up to 3 ms.

        Raises:
            ShapeError: the piece is not Opus.
        """
        return self.stream.decode(self.parts)


class _Stream:
    """Audio of one format: state of its reader, its decoder and its resampler."""

    def __init__(self, format_: Format, rate_hz: int) -> None:
        self.format = format_
        self._opus = OpusDecoder() if format_.codec is Codec.OGG_OPUS else None
        self._rate_hz = format_.rate_hz if self._opus is None else self._opus.rate_hz
        self._resampler = None if self._rate_hz == rate_hz else Resampler(self._rate_hz, rate_hz)

    @property
    def is_slow(self) -> bool:
        return self._opus is not None or self._resampler is not None

    def open(self, data: bytes) -> Coded:
        if self._opus is not None:
            packets = self._opus.packets(data)
            lengths_us = (packet_samples(packet) * _US_PER_S // self._rate_hz for packet in packets)
            return Coded(tuple(packets), tuple(max(SHORTEST_PACKET_US, us) for us in lengths_us), self)
        sample_bytes = SAMPLE_BYTES[self.format.codec]
        if len(data) % sample_bytes:
            raise ShapeError("not a whole number of samples")
        return Coded((data,), (len(data) // sample_bytes * _US_PER_S // self._rate_hz,), self)

    def bytes_in(self, ms: int) -> int:
        """Return the number of bytes of a length of audio; 0 where packets are not divided."""
        if self._opus is not None:
            return 0
        return SAMPLE_BYTES[self.format.codec] * (self._rate_hz * ms // 1000)

    def decode(self, parts: Sequence[bytes]) -> bytes:
        if self._resampler is None and self.format.codec is Codec.PCM16:
            return b"".join(parts)
        if self._opus is not None:
            samples = self._opus.decode(parts)
        else:
            samples = _floats(b"".join(parts), self.format.codec)
        if self._resampler is not None:
            samples = self._resampler.feed(samples)
        return float_to_pcm16(samples)


class PcmEncoder:
    """Converter from 16-bit PCM to a client's bytes."""

    def __init__(self) -> None:
        self._rates = (0, 0)
        self._resampler: Resampler | None = None
        # One stream for the whole call, across interruptions.
        self._opus: OpusEncoder | None = None

    def encode(self, pcm: bytes, rate_hz: int, format_: Format) -> bytes:
        """Encode more of the stream; empty while the resampler waits for more."""
        rates = (rate_hz, format_.rate_hz)
        if rates != self._rates:
            self._rates = rates
            self._resampler = None if rates[0] == rates[1] else Resampler(*rates)
        if self._resampler is not None:
            pcm = float_to_pcm16(self._resampler.feed(pcm16_to_float(pcm)))
        match format_.codec:
            case Codec.PCM16:
                return pcm
            case Codec.FLOAT32:
                return pcm16_to_float(pcm).astype("<f4").tobytes()
            case Codec.PCMU | Codec.PCMA:
                return g711.encode(np.frombuffer(pcm, "<i2").astype(np.int16), _LAWS[format_.codec])
            case Codec.OGG_OPUS:
                self._opus = self._opus or OpusEncoder(format_.rate_hz)
                return self._opus.encode(pcm)

    def flush(self, format_: Format) -> bytes:
        """Return the end of the stream, which the resampler holds back, and start a new stream."""
        resampler, rate_hz = self._resampler, self._rates[0]
        held = b""
        if resampler is not None and rate_hz:
            held = self.encode(bytes(resampler.delay_samples * PCM_BYTES_PER_SAMPLE), rate_hz, format_)
        self.reset()
        return held

    def reset(self) -> None:
        """Start a new stream: later audio does not continue the earlier."""
        self._rates = (0, 0)
        self._resampler = None


def _floats(data: bytes, codec: Codec) -> np.ndarray:
    match codec:
        case Codec.PCM16:
            return pcm16_to_float(data)
        case Codec.FLOAT32:
            result: np.ndarray = np.clip(np.frombuffer(data, "<f4"), -1, 1).astype(np.float32)
            return result
        case Codec.PCMU | Codec.PCMA:
            return pcm16_to_float(g711.decode(data, _LAWS[codec]).astype("<i2").tobytes())
        case _:
            raise ShapeError(f"{codec.value} is read by another")
