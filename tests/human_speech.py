"""Recorded human speech that installed packages ship, and the weights that understand it.

``two_cities.wav`` (moonshine-voice, MIT): one man reads the first sentence of "A Tale of Two Cities", 44 s.
"""

import functools
import hashlib
import time
import wave
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soxr

from parley.core.errors import ModelFileError
from parley.core.files import MODELS_DIR
from parley.core.pinned_models import PINNED_MODELS
from parley.models.stt import SpeechToText
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


def install_moonshine_tiny(models_dir: Path) -> None:
    """Put the embedded recogniser's weights where the library row `moonshine` looks for its model tiny.

    Skip the test when they are missing.
    """
    from parley.models.stt.moonshine import MoonshineSettings

    weights = moonshine_tiny().settings.folder
    for wanted in MoonshineSettings(model="tiny", models_dir=models_dir).files():
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.symlink_to((weights / wanted.name).resolve())


def whisper_tiny(*, clock: Callable[[], float] = time.perf_counter, **settings: object) -> SpeechToText:
    """Return Whisper tiny.en; skip the test when its weights are missing.

    They are optional (71 MB), also where all requirements of the tests are installed. ``clock`` gives the
    seconds of the cost of a partial.
    """
    from parley.models.stt.whisper import WhisperSettings, WhisperStt

    model = PINNED_MODELS["whisper_tiny"]
    folder = MODELS_DIR / model.folder
    changed = [name for name, digest in model.sha256.items() if _digest(folder / name) != digest]
    if changed:
        pytest.skip(f"whisper tiny.en: no {changed[0]} as pinned; run `parley models whisper_tiny`")
    return WhisperStt(WhisperSettings.model_validate({"model": "tiny.en", **settings}), clock=clock)


@functools.cache
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def moonshine_tiny(**settings: object) -> MoonshineTinyStt:
    """Return the embedded recogniser; skip the test when its weights are missing."""
    chosen = MoonshineTinySettings.model_validate(settings)
    try:
        return MoonshineTinyStt(chosen)
    except ModelFileError as error:
        missing(str(error))
