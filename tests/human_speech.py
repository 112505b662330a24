"""Recorded human speech that installed packages ship, and the weights that understand it.

``two_cities.wav`` (moonshine-voice, MIT): one man reads the first sentence of "A Tale of Two Cities", 44 s.
"""

import functools
import wave
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import soxr

from parley.core.errors import ModelFileError
from parley.models.stt.moonshine_tiny import MoonshineTinySettings, MoonshineTinyStt
from parley.models.stt.voice import RATE_HZ
from tests.system import missing

OPENING = "it was the best of times it was the worst of times it was the age of wisdom"
OPENING_MS = 6_100


@functools.cache
def two_cities() -> bytes:
    """Return 16-bit mono PCM at 16 kHz; skip the test when the package is missing."""
    package = find_spec("moonshine_voice")
    if package is None or package.origin is None:
        missing("moonshine-voice")
    with wave.open(str(Path(package.origin).parent / "assets" / "two_cities.wav")) as file:
        rate_hz, channels = file.getframerate(), file.getnchannels()
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    mono = samples.reshape(-1, channels).mean(axis=1)
    return soxr.resample(mono, rate_hz, RATE_HZ).astype(np.int16).tobytes()


def opening() -> bytes:
    """Return the clauses of ``OPENING`` and a pause of 200 ms."""
    return two_cities()[: OPENING_MS * RATE_HZ // 1000 * 2] + bytes(RATE_HZ // 5 * 2)


def moonshine_tiny(**settings: object) -> MoonshineTinyStt:
    """Return the embedded recogniser; skip the test when its weights are missing."""
    chosen = MoonshineTinySettings.model_validate(settings)
    try:
        return MoonshineTinyStt(chosen)
    except ModelFileError as error:
        missing(str(error))
