"""Speech for tests: callers by flite, the same in every order of tests, and the bot's own voice."""

from functools import cache

import numpy as np
import soxr

from parley.contracts.speech import RATE_HZ, say, silence
from parley.models.tts.hibari import HibariTts

__all__ = ["RATE_HZ", "bot_says", "say", "silence", "tone"]


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


def tone(duration_ms: int, hz: float = 440.0, level: float = 0.3) -> bytes:
    """Return 16-bit mono PCM at 16 kHz of a sine."""
    seconds = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return (level * 32_767 * np.sin(2 * np.pi * hz * seconds)).astype("<i2").tobytes()
