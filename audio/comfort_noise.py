"""A soft noise for a line on which nobody speaks, so that nobody takes it for dead (RFC 3389).

Noise as a telephone line has it, falling with its frequency, a second of it made once and played round and
round from another place each time: a repetition of a second's noise at this level is not heard. Pure.
"""

import numpy as np

from audio import g711

SECOND = 8_000
PACKET = 160


class ComfortNoise:
    """Of one line.

    Args:
        level_db: RMS, dB full scale.
        seed: of the noise.
    """

    def __init__(self, level_db: float = -66.0, seed: int = 0) -> None:
        draws = np.random.default_rng(seed)
        spectrum = np.fft.rfft(draws.normal(size=SECOND))
        # 6 dB less for each octave above 300 Hz.
        spectrum *= 1 / np.maximum(1.0, np.arange(len(spectrum)) / 300)
        noise = np.fft.irfft(spectrum, SECOND)
        noise *= 32_768 * 10 ** (level_db / 20) / np.sqrt(np.mean(noise**2))
        self._noise = g711.encode(np.round(noise).astype(np.int16), g711.Law.MU)
        self._draws = draws
        self._place = 0

    def packet(self) -> bytes:
        """The next 20 ms, mu-law."""
        if self._place + PACKET > SECOND:
            self._place = int(self._draws.integers(0, SECOND // 2))
        packet = self._noise[self._place : self._place + PACKET]
        self._place += PACKET
        return packet
