"""Speech for tests, made by flite: clear, free and the same on every machine and in every order of tests."""

from functools import cache

import numpy as np

from models.tts.flite import FliteSettings, FliteTts

RATE_HZ = 16_000


@cache
def _voice(name: str) -> FliteTts:
    return FliteTts(FliteSettings.model_validate({"voice": name}))


@cache
def say(text: str, voice: str = "rms") -> bytes:
    """16-bit mono PCM at 16 kHz of ``text``."""
    pieces: list[bytes] = []

    def sink(piece: object) -> bool:
        pieces.append(piece.pcm)  # type: ignore[attr-defined]
        return True

    _voice(voice).synthesize(text, sink)
    return b"".join(pieces)


def silence(duration_ms: int) -> bytes:
    """16-bit mono PCM at 16 kHz, all zero."""
    return bytes(RATE_HZ * duration_ms // 1000 * 2)


def tone(duration_ms: int, hz: float = 440.0, level: float = 0.3) -> bytes:
    """16-bit mono PCM at 16 kHz of a sine."""
    seconds = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return (level * 32_767 * np.sin(2 * np.pi * hz * seconds)).astype("<i2").tobytes()
