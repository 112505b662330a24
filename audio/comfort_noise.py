"""Comfort noise (RFC 3389): soft noise for a silent line, so that the caller does not take it for dead.

The noise falls with frequency as on a telephone line. One second is made once and repeated, from another
position each time: the repetition is not audible at this level. Pure.
"""

import numpy as np

from parley.audio import g711

SECOND = 8_000
PACKET = 160


class ComfortNoise:
    """Comfort noise of one line.

    Args:
        level_db: RMS, dB full scale.
        seed: seed of the noise.
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
        """Return the next 20 ms, mu-law."""
        if self._place + PACKET > SECOND:
            self._place = int(self._draws.integers(0, SECOND // 2))
        packet = self._noise[self._place : self._place + PACKET]
        self._place += PACKET
        return packet
