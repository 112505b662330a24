"""A sound of the deployment's own as samples, as clients are given it."""

import base64
from pathlib import Path

from pydantic import BaseModel

from audio.wav import decode_wav
from core.media import pcm16_to_float
from serving.gateway.voice_decoder import RATE_HZ


class Pcm(BaseModel):
    """A voice as samples.

    Attributes:
        name: of its file.
        duration: in seconds.
        sample_rate: in Hz.
        samples: how many.
        base64: float32, little endian.
    """

    name: str
    duration: float
    sample_rate: int
    samples: int
    base64: str


def read_pcm(path: Path) -> Pcm:
    """A file of the deployment's as float32 samples of 16 kHz. Blocks.

    Raises:
        OSError: it cannot be read.
        MediaError: it is no audio.
    """
    pcm = decode_wav(path.read_bytes(), rate_hz=RATE_HZ)
    samples = pcm16_to_float(pcm)
    return Pcm(
        name=path.name,
        duration=round(len(samples) / RATE_HZ, 1),
        sample_rate=RATE_HZ,
        samples=len(samples),
        base64=base64.b64encode(samples.astype("<f4").tobytes()).decode("ascii"),
    )
