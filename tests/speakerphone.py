"""A bot's speech and its echo in one room, for tests: exact delays, and a clock that drifts."""

import numpy as np

from parley.core.media import pcm16_to_float
from tests.voices import say, silence

RATE_HZ = 16_000
FRAME = 160


def spoken(seconds: int) -> np.ndarray:
    """Return the bot's speech as float32, repeated, with pauses of 250 ms and more."""
    lines = (
        "hello this is the bank and i can help you with your cards",
        "the fee for a replacement is five dollars and it comes by post",
        "our branches are open from nine in the morning until five",
    )
    pcm = b"".join(say(line, "slt") + silence(250) for line in lines)
    return np.resize(0.4 * pcm16_to_float(pcm), RATE_HZ * seconds)


def room_path(rng: np.random.Generator | None = None) -> np.ndarray:
    """Return the room's response, float64 (2_400,).

    It is the direct sound at 0 with amplitude 1, and a tail that falls by 60 dB in 200 ms.
    """
    rng = rng or np.random.default_rng(5)
    path = 0.05 * rng.standard_normal(2_400) * np.exp(-np.arange(2_400) / 500)
    path[0] = 1.0
    return path


def echo(played: np.ndarray, delay_ms: float, *, drift_ppm: float = 0.0) -> np.ndarray:
    """Return the echo in a room of 200 ms, with an exact delay, clock drift and a little noise."""
    rng = np.random.default_rng(5)
    path = room_path(rng)
    size = 1 << 20
    assert len(played) + RATE_HZ < size
    spectrum = np.fft.rfft(played, size) * np.fft.rfft(path, size)
    spectrum *= np.exp(-2j * np.pi * np.fft.rfftfreq(size, 1 / RATE_HZ) * delay_ms / 1000)
    heard = 0.2 * np.fft.irfft(spectrum, size)
    places = np.arange(len(played)) / (1 + drift_ppm * 1e-6)
    heard = np.interp(places, np.arange(size), heard)
    return (heard + 3e-4 * rng.standard_normal(len(played))).astype(np.float32)
