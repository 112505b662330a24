"""Conversion of audio between a client's format and the pipeline's 16-bit PCM, stream by stream.

One object serves one direction of a call. A format may change between two pieces (a client's update): audio
still held of the old one is dropped, which is less than a packet.
"""

from dataclasses import dataclass

import numpy as np

from parley.audio import g711
from parley.audio.resample import Resampler
from parley.core.errors import ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, pcm16_to_float
from parley.protocols.client_protocol import SAMPLE_BYTES, Codec, Format
from parley.transports.websocket.opus import OpusDecoder, OpusEncoder

BLOCK_SAMPLES = 12_000

_LAWS = {Codec.PCMU: g711.Law.MU, Codec.PCMA: g711.Law.A}


@dataclass(frozen=True, slots=True)
class Coded:
    """Piece of a client's audio that is not decoded yet.

    Attributes:
        parts: its bytes, or its packets.
        format: format of the piece.
        long_ms: length of its audio.
    """

    parts: tuple[bytes, ...]
    format: Format
    long_ms: float


class Decoder:
    """Converter from a client's bytes to 16-bit PCM, in two steps: the first measures the cost of the second.

    Args:
        rate_hz: rate of the PCM.
    """

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._format: Format | None = None
        self._opus: OpusDecoder | None = None
        self._resampler: Resampler | None = None

    def open(self, data: bytes, format_: Format) -> Coded:
        """Add bytes to the stream; return them with the cost of decoding, undecoded.

        Raises:
            ShapeError: the bytes are not in that format, or too much at a time.
        """
        if format_ != self._format:
            self._format = format_
            self._opus = OpusDecoder() if format_.codec is Codec.OGG_OPUS else None
            rate_hz = format_.rate_hz if self._opus is None else self._opus.rate_hz
            self._resampler = None if rate_hz == self._rate_hz else Resampler(rate_hz, self._rate_hz)
        if self._opus is not None:
            packets, samples = self._opus.packets(data)
            return Coded(tuple(packets), format_, samples * 1000 / self._opus.rate_hz)
        return Coded((data,), format_, len(data) * 1000 / (SAMPLE_BYTES[format_.codec] * format_.rate_hz))

    def decode(self, coded: Coded) -> bytes:
        """Decode the piece opened last. May run in a thread while no other code uses this object.

        Raises:
            ShapeError: the piece has no whole samples, or is not Opus.
        """
        format_ = coded.format
        if self._resampler is None and format_.codec is Codec.PCM16:
            return coded.parts[0]
        if self._opus is not None:
            samples = self._opus.decode(coded.parts)
        else:
            samples = _floats(coded.parts[0], format_.codec)
        if self._resampler is None:
            return float_to_pcm16(samples)
        # A resampler's working memory is some fifty times its input.
        blocks = range(0, len(samples), BLOCK_SAMPLES)
        return b"".join(
            float_to_pcm16(self._resampler.feed(samples[at : at + BLOCK_SAMPLES])) for at in blocks
        )


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
            if len(data) % 4:
                raise ShapeError("not a whole number of samples")
            result: np.ndarray = np.clip(np.frombuffer(data, "<f4"), -1, 1).astype(np.float32)
            return result
        case Codec.PCMU | Codec.PCMA:
            return pcm16_to_float(g711.decode(data, _LAWS[codec]).astype("<i2").tobytes())
        case _:
            raise ShapeError(f"{codec.value} is read by another")
