"""Audio files of every kind, written from PCM."""

from pathlib import Path
from typing import Any

import av
import numpy as np

RATE_HZ = 16_000
# Encoder, rate and sample format by suffix.
ENCODERS = {
    ".wav": ("pcm_s16le", 16_000, "s16"),
    ".flac": ("flac", 16_000, "s16"),
    ".mp3": ("libmp3lame", 44_100, "s16p"),
    ".ogg": ("libopus", 48_000, "s16"),
    ".m4a": ("aac", 44_100, "fltp"),
}
FORMATS = {".m4a": "mp4"}


def write_audio(path: Path, *channels: bytes) -> Path:
    """Write one or two channels of 16-bit PCM at 16 kHz, in the format of the suffix."""
    codec, rate_hz, sample_format = ENCODERS[path.suffix]
    layout = "stereo" if len(channels) == 2 else "mono"
    samples = np.stack([np.frombuffer(pcm, "<i2") for pcm in channels], axis=1)
    frame: Any = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout=layout)
    frame.sample_rate = RATE_HZ
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format=FORMATS.get(path.suffix, path.suffix[1:])) as file:
        stream: Any = file.add_stream(codec, rate=rate_hz, layout=layout)
        resampler = av.AudioResampler(
            format=sample_format,
            layout=layout,
            rate=rate_hz,
            frame_size=1_024 if codec in ("aac",) else 960 if codec == "libopus" else 1_152,
        )
        for given in (frame, None):
            for piece in resampler.resample(given):
                file.mux(stream.encode(piece))
        file.mux(stream.encode())
    return path
