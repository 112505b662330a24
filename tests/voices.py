"""Speech for tests: callers by flite, the same in every order of tests, and the bot's own voice."""

from functools import cache

import numpy as np
import soxr

from parley.models.tts.flite import FliteSettings, FliteTts
from parley.models.tts.hibari import HibariTts

RATE_HZ = 16_000


@cache
def _voice(name: str) -> FliteTts:
    return FliteTts(FliteSettings.model_validate({"voice": name}))


@cache
def say(text: str, voice: str = "rms") -> bytes:
    """Return 16-bit mono PCM at 16 kHz of ``text``."""
    pieces: list[bytes] = []

    def sink(piece: object) -> bool:
        pieces.append(piece.pcm)  # type: ignore[attr-defined]
        return True

    _voice(voice).synthesize(text, sink)
    return b"".join(pieces)


@cache
def bot_says(text: str) -> bytes:
    """Return ``text`` as 16-bit mono PCM at 16 kHz, in the voice of a deployment that names none."""
    pieces: list[bytes] = []
    voice = _bot_voice()
    voice.synthesize(text, lambda piece: pieces.append(piece.pcm) is None)
    return soxr.resample(np.frombuffer(b"".join(pieces), "<i2"), voice.rate_hz, RATE_HZ).tobytes()


@cache
def _bot_voice() -> HibariTts:
    return HibariTts()


def silence(duration_ms: int) -> bytes:
    """Return 16-bit mono PCM at 16 kHz, all zero."""
    return bytes(RATE_HZ * duration_ms // 1000 * 2)


def tone(duration_ms: int, hz: float = 440.0, level: float = 0.3) -> bytes:
    """Return 16-bit mono PCM at 16 kHz of a sine."""
    seconds = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return (level * 32_767 * np.sin(2 * np.pi * hz * seconds)).astype("<i2").tobytes()
