"""Sound of the deployment as samples, in the form that clients receive."""

import base64
from pathlib import Path

from pydantic import BaseModel

from parley.audio.wav import decode_wav
from parley.core.media import pcm16_to_float
from parley.serving.gateway.reference_voices.decoder import RATE_HZ


class Pcm(BaseModel):
    """Voice as samples.

    Attributes:
        name: of its file.
        duration: in seconds.
        sample_rate: in Hz.
        samples: number of samples.
        base64: float32, little endian.
    """

    name: str
    duration: float
    sample_rate: int
    samples: int
    base64: str


def read_pcm(path: Path) -> Pcm:
    """Return a file of the deployment as float32 samples of 16 kHz. Blocks.

    Raises:
        OSError: it cannot be read.
        MediaError: not audio.
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
