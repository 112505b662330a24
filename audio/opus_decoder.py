"""Opus decoder of one stream at the rate of its listener: packets in, 16-bit PCM out.

libopus decodes at 8 to 48 kHz. FFmpeg's wrapper of it, which PyAV and aiortc use, decodes at 48 kHz and in
stereo, and the samples have to be resampled: for 20 ms at 16 kHz that takes twice the processor's time (48
us, and 23 here). The wrapper also has no way to conceal a lost packet, or to decode the copy of it that
the next one may carry (in-band forward error correction, RFC 6716, 2.1.7).

The functions and their constants: https://opus-codec.org/docs/opus_api-1.5/group__opus__decoder.html.
"""

import ctypes

from parley.audio.libopus import library_of_opus
from parley.core.media import PCM_BYTES_PER_SAMPLE

RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
# RFC 6716, 2.1.4: the longest packet.
LONGEST_MS = 120
# What libopus conceals has to be a multiple of 2.5 ms.
STEPS_PER_S = 400


class OpusPacketDecoder:
    """Decoder of one stream.

    Args:
        rate_hz: one of ``RATES_HZ``.
        channels: 1 or 2, whatever the packets have.

    Raises:
        ValueError: libopus has no such rate or number of channels.
        OSError: there is no libopus.
    """

    def __init__(self, rate_hz: int, channels: int = 1) -> None:
        library = library_of_opus()
        if library is None:
            raise OSError("libopus is not here")
        self._decode = library.opus_decode
        # The state is a plain block of memory: nothing has to be freed.
        self._state = ctypes.create_string_buffer(max(1, library.opus_decoder_get_size(channels)))
        if library.opus_decoder_init(self._state, rate_hz, channels):
            raise ValueError(f"Opus does not decode {channels} channels at {rate_hz} Hz")
        self._sample_bytes = channels * PCM_BYTES_PER_SAMPLE
        self._step = rate_hz // STEPS_PER_S
        self._most = rate_hz * LONGEST_MS // 1_000
        self._pcm = ctypes.create_string_buffer(self._most * self._sample_bytes)

    def decode(self, packet: bytes) -> bytes:
        """Decode a packet.

        Raises:
            ValueError: it is not an Opus packet.
        """
        if not packet:
            raise ValueError("an Opus packet has at least one byte")
        return self._decoded(packet, self._most, 0)

    def conceal(self, samples: int, following: bytes = b"") -> bytes:
        """Return sound in place of lost packets.

        Args:
            samples: of one channel, that are lost right before ``following``; those over ``LONGEST_MS``, and
                the rest of 2.5 ms, are left out.
            following: the next packet, which may carry a copy of the lost one. Decode it afterwards.

        Raises:
            ValueError: ``following`` is not an Opus packet.
        """
        whole = min(samples, self._most) // self._step * self._step
        if whole <= 0:
            return b""
        return self._decoded(following or None, whole, 1 if following else 0)

    def _decoded(self, packet: bytes | None, most: int, from_copy: int) -> bytes:
        length = 0 if packet is None else len(packet)
        count = self._decode(self._state, packet, length, self._pcm, most, from_copy)
        if count < 0:
            raise ValueError(f"libopus refuses the packet: error {count}")
        return ctypes.string_at(self._pcm, count * self._sample_bytes)
