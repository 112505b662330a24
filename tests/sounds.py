"""Sound files in the formats that users have."""

import io
from functools import cache

import av
import numpy as np

# Container, encoder, rate in Hz.
FORMATS = {
    "wav": ("wav", "pcm_s16le", 44_100),
    "wav 24 bit": ("wav", "pcm_s24le", 48_000),
    "mp3": ("mp3", "libmp3lame", 44_100),
    "flac": ("flac", "flac", 48_000),
    "ogg": ("ogg", "libopus", 48_000),
    "webm": ("webm", "libopus", 48_000),
    "m4a": ("mp4", "aac", 44_100),
    "aac": ("adts", "aac", 44_100),
}


@cache
def sound(format_: str = "wav", duration_s: float = 1.0, *, hz: float = 440.0, level: float = 0.3) -> bytes:
    """Return a stereo sine as a file."""
    container, codec, rate_hz = FORMATS[format_]
    return encoded(container, codec, rate_hz, duration_s, hz=hz, level=level)


def encoded(
    container: str, codec: str, rate_hz: int, duration_s: float, *, hz: float = 440.0, level: float = 0.3
) -> bytes:
    """Return a recording in any of the formats."""
    written = io.BytesIO()
    with av.open(written, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate_hz, layout="stereo")
        hop = stream.codec_context.frame_size or 1_024
        total = round(rate_hz * duration_s)
        for start in range(0, total, hop):
            at_s = np.arange(start, min(start + hop, total)) / rate_hz
            wave = (level * np.sin(2 * np.pi * hz * at_s)).astype(np.float32)
            frame = av.AudioFrame.from_ndarray(np.stack([wave, wave]), format="fltp", layout="stereo")
            frame.sample_rate, frame.pts = rate_hz, start
            for packet in stream.encode(frame):
                file.mux(packet)
        for packet in stream.encode(None):
            file.mux(packet)
    return written.getvalue()
