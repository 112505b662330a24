"""Sound of a voice on loopback."""

import numpy as np

from parley.core.media import float_to_pcm16, ms_to_samples


def tone(start_ms: int, length_ms: int, rate_hz: int) -> bytes:
    """Return a piece of a tone of 880 Hz."""
    first, samples = ms_to_samples(start_ms, rate_hz), ms_to_samples(length_ms, rate_hz)
    wave = 0.5 * np.sin(2 * np.pi * 880 / rate_hz * (first + np.arange(samples) + 0.5))
    return float_to_pcm16(wave.astype(np.float32))
