"""A synthetic voice of syllables of given lengths: its spectrum changes at the rate of the syllables."""

import numpy as np

RATE_HZ = 16_000
# First formants of two vowels: the spectrum moves from one to the other and back.
VOWELS_HZ = ((300.0, 2_200.0), (700.0, 1_200.0))


def syllables(lengths_ms: list[int], *, hertz: float = 120.0, rate_hz: int = RATE_HZ) -> np.ndarray:
    """Return a voice that changes to the other vowel within each syllable, and silence."""
    path = np.concatenate(
        [
            np.abs(np.linspace(place % 2, (place + 1) % 2, length_ms * rate_hz // 1000))
            for place, length_ms in enumerate(lengths_ms)
        ]
    )
    time_s = np.arange(len(path)) / rate_hz
    formants = [(1 - path) * first + path * second for first, second in zip(*VOWELS_HZ, strict=True)]
    sound = np.zeros(len(path))
    for harmonic in range(1, int(3_600 / hertz)):
        at_hz = harmonic * hertz
        gain = sum(1 / (1 + ((at_hz - formant) / 100) ** 2) for formant in formants)
        sound += gain * np.sin(2 * np.pi * at_hz * time_s)
    sound *= 0.3 / np.abs(sound).max()
    return np.concatenate((sound, np.zeros(200 * rate_hz // 1000))).astype(np.float32)
