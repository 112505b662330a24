"""Opus packets, and what is heard in place of lost ones."""

from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from av.audio.codeccontext import AudioCodecContext

from parley.audio import libopus
from parley.audio.opus_decoder import OpusPacketDecoder
from parley.core.media import pcm16_to_float

RATE_HZ, PACKET = 16_000, 320
SPEECH = Path(__file__).parents[2] / "golden" / "heard_truth" / "other.flac"


def encoded(pcm: np.ndarray) -> list[bytes]:
    """Encode 20 ms at a time as a browser does: each packet has a copy of the one before."""
    codec = av.CodecContext.create("libopus", "w")
    assert isinstance(codec, AudioCodecContext)
    codec.bit_rate, codec.format, codec.layout, codec.sample_rate = 24_000, "s16", "mono", RATE_HZ
    codec.options = {"application": "voip", "frame_duration": "20", "packet_loss": "25", "fec": "1"}
    codec.open()
    packets: list[bytes] = []
    for first in range(0, pcm.size, PACKET):
        frame = av.AudioFrame.from_ndarray(pcm[None, first : first + PACKET], format="s16", layout="mono")
        frame.sample_rate = RATE_HZ
        packets += [bytes(packet) for packet in codec.encode(frame)]
    return packets


PCM = np.asarray(soundfile.read(SPEECH, dtype="int16")[0])
PACKETS = encoded(PCM[: PCM.size // PACKET * PACKET])


SOUND = PCM[: PCM.size // (5 * PACKET) * 5 * PACKET] / 32_768


def heard(pieces: list[bytes]) -> np.ndarray:
    return pcm16_to_float(b"".join(pieces))


def test_packets_become_sound_at_the_rate_of_the_listener():
    decoder = OpusPacketDecoder(RATE_HZ)
    whole = heard([decoder.decode(packet) for packet in PACKETS])
    assert whole.size == len(PACKETS) * PACKET
    whole = whole[: SOUND.size]
    # The codec keeps the level of each moment; its delay is less than a packet.
    levels = [np.sqrt(np.mean(of.reshape(-1, 5 * PACKET) ** 2, axis=1)) for of in (whole, SOUND)]
    assert np.corrcoef(levels)[0, 1] > 0.98


@pytest.mark.parametrize(("rate_hz", "channels"), [(8_000, 1), (24_000, 1), (48_000, 2)])
def test_other_rates_and_channels(rate_hz: int, channels: int):
    decoder = OpusPacketDecoder(rate_hz, channels)
    assert len(decoder.decode(PACKETS[10])) == rate_hz // 50 * channels * 2


def test_the_copy_of_a_lost_packet_is_nearer_to_it_than_a_guess():
    wrong_by: dict[bool, float] = {False: 0.0, True: 0.0}
    for lost in range(20, len(PACKETS) - 1, 7):
        for has_copy in wrong_by:
            whole, decoder = OpusPacketDecoder(RATE_HZ), OpusPacketDecoder(RATE_HZ)
            for packet in PACKETS[lost - 20 : lost]:
                whole.decode(packet)
                decoder.decode(packet)
            truth = pcm16_to_float(whole.decode(PACKETS[lost]))
            said = pcm16_to_float(decoder.conceal(PACKET, PACKETS[lost + 1] if has_copy else b""))
            assert said.size == PACKET
            wrong_by[has_copy] += float(np.sum((said - truth) ** 2))
    assert wrong_by[True] < wrong_by[False] / 4


def test_what_is_no_packet_is_refused():
    decoder = OpusPacketDecoder(RATE_HZ)
    for wrong in (b"", b"\x03", b"\xff" * 5):
        with pytest.raises(ValueError, match="packet"):
            decoder.decode(wrong)
    assert len(decoder.decode(PACKETS[0])) == PACKET * 2


def test_a_gap_is_concealed_in_steps_and_up_to_the_longest_packet():
    decoder = OpusPacketDecoder(RATE_HZ)
    decoder.decode(PACKETS[0])
    assert [len(decoder.conceal(samples)) // 2 for samples in (0, 39, 41, 320, 99_999)] == [
        0,
        0,
        40,
        320,
        1_920,
    ]


def test_a_rate_that_opus_does_not_have_is_refused():
    with pytest.raises(ValueError, match="44100 Hz"):
        OpusPacketDecoder(44_100)
    assert libopus.is_available()
