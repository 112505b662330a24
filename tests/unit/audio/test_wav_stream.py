import io
import struct
import wave

import pytest

from parley.audio.wav_stream import MOST_HEADER_BYTES, WavStream
from parley.core.errors import MediaError

PCM = struct.pack("<6h", 1, -2, 300, -400, 5, 32_767)


def wav(pcm: bytes, *, rate_hz: int = 22_050, channels: int = 1, width: int = 2) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
    return written.getvalue()


def read(data: bytes, *, step: int) -> tuple[bytes, int]:
    """Return the PCM and the rate of a stream that comes in pieces of one length."""
    stream = WavStream(24_000)
    pcm = b"".join(stream.feed(data[start : start + step]) for start in range(0, len(data), step))
    return pcm, stream.rate_hz


@pytest.mark.parametrize("step", [1, 2, 3, 7, 13, 100])
def test_pcm_without_a_header_passes_whatever_its_pieces(step: int):
    assert read(PCM, step=step) == (PCM, 24_000)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 43, 44, 45, 100])
def test_a_wav_header_is_read_and_left_out(step: int):
    assert read(wav(PCM), step=step) == (PCM, 22_050)


@pytest.mark.parametrize("length", [0, 0xFFFF_FFFF, 0x7FFF_FFFF])
def test_audio_whose_length_was_not_known_ends_with_the_stream(length: int):
    data = bytearray(wav(PCM))
    struct.pack_into("<I", data, 40, length)
    assert read(bytes(data), step=5) == (PCM, 22_050)


@pytest.mark.parametrize("step", [1, 7, 200])
def test_chunks_around_the_audio_are_no_audio(step: int):
    whole = wav(PCM)
    title = b"LIST" + struct.pack("<I", 5) + b"title\x00"
    data = whole[:12] + title + whole[12:] + title
    assert read(data, step=step) == (PCM, 22_050)


def test_the_first_half_of_a_last_sample_is_no_audio():
    assert read(PCM + b"\x01", step=3) == (PCM, 24_000)


def test_samples_that_begin_like_a_header_are_audio():
    pcm = b"RIFF" + PCM
    assert read(pcm, step=2) == (pcm, 24_000)
    assert read(b"RI" + PCM, step=1) == (b"RI" + PCM, 24_000)


@pytest.mark.parametrize(("channels", "width"), [(2, 2), (1, 1), (1, 3)])
def test_another_format_is_refused(channels: int, width: int):
    with pytest.raises(MediaError, match="not 16-bit mono"):
        WavStream(24_000).feed(wav(bytes(12), channels=channels, width=width))


def test_a_header_without_a_format_or_an_end_is_refused():
    with pytest.raises(MediaError, match="no format"):
        WavStream(24_000).feed(b"RIFF\x00\x00\x00\x00WAVEdata\x00\x00\x00\x00")
    stream = WavStream(24_000)
    head = b"RIFF\x00\x00\x00\x00WAVEjunk" + struct.pack("<I", 10**6)
    with pytest.raises(MediaError, match="no end"):
        for _ in range(MOST_HEADER_BYTES // 100):
            stream.feed(head + bytes(200))
            head = b""
