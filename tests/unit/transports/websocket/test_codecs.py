"""Audio as bytes of a client's format and back."""

import struct

import numpy as np
import pytest

from parley.audio.ogg import OggWriter
from parley.audio.opus_packets import packet_samples
from parley.core.errors import ShapeError
from parley.protocols.client_protocol import Codec, Format
from parley.transports.websocket.codecs import SHORTEST_PACKET_US, Decoder, PcmEncoder
from tests.processor_deadline import processor_deadline

PIPELINE_HZ = 16_000


def sine(rate_hz: int, ms: int, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * 440 * np.arange(rate_hz * ms // 1000) / rate_hz)).astype(np.float32)


def pcm(samples: np.ndarray) -> bytes:
    return (samples * 32_767).astype("<i2").tobytes()


def decoded(decoder: Decoder, data: bytes, format_: Format) -> bytes:
    return decoder.open(data, format_).decode()


@pytest.mark.parametrize(
    "format_",
    [
        Format(Codec.PCM16, 24_000),
        Format(Codec.PCMU, 8_000),
        Format(Codec.PCMA, 8_000),
        Format(Codec.FLOAT32, 16_000),
    ],
)
def test_there_and_back_is_the_same_sound(format_: Format):
    encoder, decoder = PcmEncoder(), Decoder(PIPELINE_HZ)
    whole = pcm(sine(PIPELINE_HZ, 500))
    pieces = [whole[start : start + 640] for start in range(0, len(whole), 640)]
    data = [encoder.encode(piece, PIPELINE_HZ, format_) for piece in pieces]
    back = np.frombuffer(b"".join(decoded(decoder, each, format_) for each in data), "<i2") / 32_768
    asked = sine(PIPELINE_HZ, 500)
    lag = int(np.argmax(np.correlate(asked, back[1_000:3_000], "valid")))
    error = asked[lag : lag + 2_000] - back[1_000:3_000]
    assert 10 * np.log10(np.mean(asked**2) / np.mean(error**2)) > 30


def test_nothing_of_a_reply_is_left_for_the_next():
    encoder, format_ = PcmEncoder(), Format(Codec.PCM16, 24_000)
    first = encoder.encode(pcm(sine(PIPELINE_HZ, 100)), PIPELINE_HZ, format_)
    tail = encoder.flush(format_)
    # All of it has left, and no more.
    assert abs(len(first + tail) // 2 - 2_400) <= 1
    assert np.abs(np.frombuffer(encoder.encode(bytes(3_200), PIPELINE_HZ, format_), "<i2")).max() == 0


def test_nothing_is_left_after_an_interruption_either():
    encoder, format_ = PcmEncoder(), Format(Codec.PCM16, 24_000)
    encoder.encode(pcm(sine(PIPELINE_HZ, 100)), PIPELINE_HZ, format_)
    encoder.reset()
    assert np.abs(np.frombuffer(encoder.encode(bytes(3_200), PIPELINE_HZ, format_), "<i2")).max() == 0
    assert encoder.flush(Format(Codec.PCM16, PIPELINE_HZ)) is not None


def test_a_format_that_changes_in_the_middle_takes_nothing_along():
    decoder = Decoder(PIPELINE_HZ)
    decoded(decoder, pcm(sine(24_000, 100)), Format(Codec.PCM16, 24_000))
    quiet = np.frombuffer(decoded(decoder, b"\xff" * 800, Format(Codec.PCMU, 8_000)), "<i2")
    assert np.abs(quiet).max() == 0


@pytest.mark.parametrize("codec", [Codec.FLOAT32, Codec.PCM16])
def test_half_a_sample_is_refused_before_it_is_queued(codec: Codec):
    with pytest.raises(ShapeError):
        Decoder(PIPELINE_HZ).open(b"\0\0\0", Format(codec, PIPELINE_HZ))


@pytest.mark.parametrize(
    "format_", [Format(Codec.PCM16, 24_000), Format(Codec.PCMU, 8_000), Format(Codec.OGG_OPUS, 24_000)]
)
def test_audio_that_is_decoded_in_pieces_is_the_audio_of_the_whole(format_: Format):
    data = PcmEncoder().encode(pcm(sine(24_000, 990)), 24_000, format_)
    whole = decoded(Decoder(PIPELINE_HZ), data, format_)
    coded = Decoder(PIPELINE_HZ).open(data, format_)
    pieces = list(coded.pieces(20))
    assert len(pieces) >= 49
    assert abs(sum(piece.length_us for piece in pieces) - coded.length_us) <= len(pieces)
    assert b"".join(piece.decode() for piece in pieces) == whole


def test_audio_of_an_old_format_is_decoded_as_such_after_the_format_has_changed():
    decoder = Decoder(PIPELINE_HZ)
    old = decoder.open(pcm(sine(24_000, 200)), Format(Codec.PCM16, 24_000))
    new = decoder.open(b"\xff" * 1_600, Format(Codec.PCMU, 8_000))
    loud, quiet = (np.abs(np.frombuffer(each.decode(), "<i2")) for each in (old, new))
    assert loud.max() > 15_000 and quiet.max() == 0


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000])
def test_opus_comes_back_as_the_tone_that_it_was(rate_hz: int):
    opus = Format(Codec.OGG_OPUS, 24_000)
    encoder, decoder = PcmEncoder(), Decoder(PIPELINE_HZ)
    spoken = pcm(sine(rate_hz, 1_000))
    step = rate_hz // 50 * 2
    pages = [encoder.encode(spoken[at : at + step], rate_hz, opus) for at in range(0, len(spoken), step)]
    heard = np.frombuffer(b"".join(decoded(decoder, page, opus) for page in pages), "<i2")
    assert abs(len(heard) / PIPELINE_HZ - 1) < 0.06
    loud = np.abs(np.fft.rfft(heard[1_600:9_600].astype(np.float64)))
    assert abs(loud.argmax() * PIPELINE_HZ / 8_000 - 440) <= 4


def test_opus_without_its_head_is_refused():
    opus = Format(Codec.OGG_OPUS, 24_000)
    pages = PcmEncoder().encode(bytes(96_000), 24_000, opus)
    behind_head = pages[pages.index(b"OggS", 4) :]
    with pytest.raises(ShapeError, match="head"):
        decoded(Decoder(PIPELINE_HZ), behind_head, opus)


def test_a_message_that_stands_for_hours_of_speech_is_refused_early():
    writer = OggWriter(1)
    head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, 0, 48_000, 0, 0)
    # A byte that means 60 ms of silence, thousands of times.
    packets = [head, b"OpusTags" + bytes(8), *[b"\x18"] * 4_000]
    data = b"".join(writer.page(packet, 0) for packet in packets)
    with processor_deadline(), pytest.raises(ShapeError, match="in one message"):
        decoded(Decoder(PIPELINE_HZ), data, Format(Codec.OGG_OPUS, 24_000))


def test_long_speech_is_brought_to_the_rate_as_short_pieces_are():
    long = pcm(sine(24_000, 3_000))
    format_ = Format(Codec.PCM16, 24_000)
    whole = decoded(Decoder(PIPELINE_HZ), long, format_)
    pieces, step = Decoder(PIPELINE_HZ), 4_800
    assert whole == b"".join(
        decoded(pieces, long[at : at + step], format_) for at in range(0, len(long), step)
    )


@pytest.mark.parametrize(
    ("packet", "ms"),
    [
        (b"\x00", 10),
        (b"\x18", 60),
        (b"\x19", 120),
        (b"\x68", 20),
        (b"\x80", 2.5),
        (b"\xfb\x03\x00", 60),
        (b"\x1b\x02", 120),
        (b"OpusHead", 0),
        (b"", 0),
    ],
)
def test_a_packet_says_how_long_it_lasts(packet: bytes, ms: float):
    assert packet_samples(packet) == ms * 48


@pytest.mark.parametrize("packet", [b"\x1b\x03", b"\xfb", b"\xfb\x00", b"\xff\x3f"])
def test_a_packet_that_stands_for_nothing_or_too_much_is_refused_undecoded(packet: bytes):
    with pytest.raises(ShapeError):
        packet_samples(packet)


def test_what_a_message_of_opus_lasts_is_known_before_it_is_decoded():
    opus = Format(Codec.OGG_OPUS, 24_000)
    pages = PcmEncoder().encode(pcm(sine(24_000, 1_000)), 24_000, opus)
    decoder = Decoder(PIPELINE_HZ)
    coded = decoder.open(pages, opus)
    # With two headers.
    assert coded.length_us == 1_000_000 + 2 * SHORTEST_PACKET_US
    assert abs(len(coded.decode()) / 2 / PIPELINE_HZ - 1) < 0.02


def test_more_pages_than_anybody_sends_at_a_time_are_refused():
    writer = OggWriter(1)
    with pytest.raises(ShapeError, match="pages"):
        Decoder(PIPELINE_HZ).open(writer.page(b"", 0) * 2_000, Format(Codec.OGG_OPUS, 24_000))
