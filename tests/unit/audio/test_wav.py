import io

import numpy as np
import pytest
import soundfile

from parley.audio.wav import decode_wav
from parley.core.errors import MediaError


def tone(rate_hz: int, channels: int, subtype: str) -> bytes:
    t = np.arange(rate_hz) / rate_hz
    mono = 0.5 * np.sin(2 * np.pi * 440 * t)
    out = io.BytesIO()
    soundfile.write(out, np.stack([mono] * channels, axis=1), rate_hz, subtype=subtype, format="WAV")
    return out.getvalue()


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 16_000, 44_100, 96_000])
@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT", "ULAW"])
def test_any_rate_width_and_channel_count_becomes_mono(rate_hz: int, channels: int, subtype: str):
    pcm = np.frombuffer(decode_wav(tone(rate_hz, channels, subtype), rate_hz=16_000), dtype="<i2")
    assert abs(len(pcm) - 16_000) <= 2
    spectrum = np.abs(np.fft.rfft(pcm[:16_000]))
    assert abs(int(spectrum.argmax()) - 440) <= 1
    assert 0.3 < np.abs(pcm).max() / 32768 < 0.6


@pytest.mark.parametrize("data", [b"", b"not a wav at all", b"RIFF\x00\x00\x00\x00WAVE"])
def test_other_bytes_are_a_media_error(data: bytes):
    with pytest.raises(MediaError, match="not an audio file: ") as refused:
        decode_wav(data, rate_hz=16_000)
    assert "BytesIO" not in str(refused.value)


def test_a_file_without_samples_is_a_media_error():
    out = io.BytesIO()
    soundfile.write(out, np.zeros((0, 1)), 16_000, format="WAV")
    with pytest.raises(MediaError, match="no samples"):
        decode_wav(out.getvalue(), rate_hz=16_000)
