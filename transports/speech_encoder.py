"""Opus encoder of the bot's voice, for WebRTC and for sockets: mono PCM in, one packet per 20 ms out.

Packets are encoded on the event loop, and when many calls are greeted this was a third of its work. So its
kind and its effort are chosen by measurement. libopus' "audio" codes speech at this rate by CELT, "voip" by
SILK and CELT together. On two recordings of speech at 24 kHz, one of them of a person:

    kind, effort, set rate   time of a packet   sent rate       log-spectral distance   SNR
    voip, 5, 40 kbit/s       0.25 to 0.35 ms    40 to 41        8.4 to 8.6 dB           4 to 6 dB
    audio, 2, 32 kbit/s      0.13 to 0.14 ms    39 to 42        5.9 to 7.5 dB           12 to 17 dB

These times are of a slower machine. libopus is called directly where that is possible, and by PyAV elsewhere;
the packets are the same.
"""

import fractions

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext

from parley.audio import libopus
from parley.audio.opus_encoder import OpusPacketEncoder
from parley.core.media import PCM_BYTES_PER_SAMPLE

PACKET_MS = 20
OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
# RFC 7587 gives 28-40 kbit/s for full-band mono speech as the sweet spot.
BIT_RATE_BPS = 32_000
# Encoder effort 0..10.
COMPLEXITY = 2


class SpeechEncoder:
    """Encoder of one stream.

    Args:
        rate_hz: one of ``OPUS_RATES_HZ``.

    Attributes:
        packet_bytes: PCM of one packet.
    """

    def __init__(self, rate_hz: int) -> None:
        if rate_hz not in OPUS_RATES_HZ:
            raise ValueError(f"Opus does not support {rate_hz} Hz: {OPUS_RATES_HZ}")
        samples = rate_hz * PACKET_MS // 1000
        self.packet_bytes = samples * PCM_BYTES_PER_SAMPLE
        self._encoder: OpusPacketEncoder | PyavEncoder
        if libopus.is_available():
            self._encoder = OpusPacketEncoder(rate_hz, samples, bit_rate_bps=BIT_RATE_BPS, effort=COMPLEXITY)
        else:
            self._encoder = PyavEncoder(rate_hz)

    def encode(self, pcm: bytes) -> bytes:
        """Encode ``packet_bytes`` of PCM as one packet."""
        return self._encoder.encode(pcm)


class PyavEncoder:
    """Encoder of one stream at a rate of ``OPUS_RATES_HZ``, by PyAV."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._position = 0
        codec = av.CodecContext.create("libopus", "w")
        assert isinstance(codec, AudioCodecContext)
        codec.bit_rate = BIT_RATE_BPS
        codec.format = "s16"
        codec.layout = "mono"
        codec.sample_rate = rate_hz
        # The default is a thread for each core and codec, for a codec that uses none.
        codec.thread_count = 1
        codec.options = {
            "application": "audio",
            "frame_duration": str(PACKET_MS),
            "compression_level": str(COMPLEXITY),
        }
        codec.open()
        self._codec = codec

    def encode(self, pcm: bytes) -> bytes:
        """Encode ``packet_bytes`` of PCM as one packet."""
        frame = av.AudioFrame.from_ndarray(
            np.frombuffer(pcm, dtype="<i2")[None, :], format="s16", layout="mono"
        )
        frame.sample_rate = self._rate_hz
        frame.pts = self._position
        frame.time_base = fractions.Fraction(1, self._rate_hz)
        self._position += len(pcm) // PCM_BYTES_PER_SAMPLE
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))
