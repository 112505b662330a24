"""Packets of speech by libopus itself, against those of PyAV."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from parley.audio.opus_encoder import OpusPacketEncoder
from parley.transports.speech_encoder import (
    BIT_RATE_BPS,
    COMPLEXITY,
    OPUS_RATES_HZ,
    PACKET_MS,
    PyavEncoder,
    SpeechEncoder,
)

SPEECH = Path(__file__).parents[2] / "golden" / "heard_truth" / "other.flac"


def pieces(rate_hz: int) -> list[bytes]:
    """Return speech in packets, with a pause."""
    samples, read_hz = soundfile.read(SPEECH, dtype="int16")
    spoken = soxr.resample(samples, read_hz, rate_hz).astype("<i2")
    pcm = np.concatenate((spoken, np.zeros(rate_hz // 2, "<i2"), spoken)).tobytes()
    packet_bytes = rate_hz * PACKET_MS // 1000 * 2
    return [pcm[at : at + packet_bytes] for at in range(0, len(pcm) - packet_bytes + 1, packet_bytes)]


@pytest.mark.parametrize("rate_hz", OPUS_RATES_HZ)
def test_the_packets_are_those_of_pyav(rate_hz: int):
    ours, theirs, spoken = SpeechEncoder(rate_hz), PyavEncoder(rate_hz), pieces(rate_hz)
    assert [ours.encode(pcm) for pcm in spoken] == [theirs.encode(pcm) for pcm in spoken]
    assert len(spoken) > 100


def test_loud_noise_fits_a_packet():
    noise = np.random.default_rng(1).integers(-32_768, 32_767, 960 * 50).astype("<i2").tobytes()
    encoder = OpusPacketEncoder(48_000, 960, bit_rate_bps=510_000, effort=COMPLEXITY)
    lengths = [len(encoder.encode(noise[at : at + 1_920])) for at in range(0, len(noise), 1_920)]
    assert max(lengths) <= 1_275 and min(lengths) > 500


def test_what_libopus_refuses_is_an_error():
    with pytest.raises(ValueError, match="22050"):
        OpusPacketEncoder(22_050, 441, bit_rate_bps=BIT_RATE_BPS, effort=COMPLEXITY)
    with pytest.raises(ValueError, match="4010"):
        OpusPacketEncoder(16_000, 320, bit_rate_bps=BIT_RATE_BPS, effort=11)
    encoder = OpusPacketEncoder(16_000, 320, bit_rate_bps=BIT_RATE_BPS, effort=COMPLEXITY)
    with pytest.raises(ValueError, match="638 bytes"):
        encoder.encode(bytes(638))
    odd = OpusPacketEncoder(16_000, 321, bit_rate_bps=BIT_RATE_BPS, effort=COMPLEXITY)
    with pytest.raises(ValueError, match="refuses the samples"):
        odd.encode(bytes(642))
