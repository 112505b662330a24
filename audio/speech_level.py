"""Level of the bot's voice on a telephone line: measurement and gain control.

Loudness is the active speech level: the mean power of the pieces with speech, those less than ``MARGIN_DB``
below it. This is ITU-T P.56, method B, with pieces of 20 ms instead of its envelope. It is reported in dBm0,
where a sine that just fills mu-law has 3.17 (ITU-T G.711).

``SpeechLevel`` follows the voice over ``LOOKED_AT_MS`` of speech and changes its gain by no more than
``DB_PER_S``, so that the change is not audible. Pieces with samples that would clip are attenuated: mu-law
never clips. Pure.
"""

from math import log10

import numpy as np

PIECE_MS = 20
MARGIN_DB = 15.9
# Softer pieces are silence.
SILENCE_DBOV = -55.0
# 0 dBov is the power of a full-scale square wave, and a full-scale sine has half of that.
DBM0_OF_DBOV = 3.17 + 3.01
LOOKED_AT_MS, FIRST_LOOK_MS = 3_000, 300
DB_PER_S = 6.0
LOWEST_DB, HIGHEST_DB = -15.0, 12.0
# -1 dB of full scale.
PEAK = 0.89
_FULL = 32_768.0
# A change of the factor that no sample shows.
_STEADY = 1e-5


def active_level_dbm0(samples: np.ndarray, rate_hz: int) -> float | None:
    """Return the active speech level; None without speech.

    samples: float32, (samples,), in [-1, 1].
    """
    size = rate_hz * PIECE_MS // 1000
    powers = np.mean(samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64) ** 2, axis=1)
    powers = powers[powers > 10 ** (SILENCE_DBOV / 10)]
    if not len(powers):
        return None
    level = float(powers.mean())
    # The active pieces depend on their own level; a few iterations find both.
    for _ in range(4):
        level = float(powers[powers > level * 10 ** (-MARGIN_DB / 10)].mean())
    return 10 * float(np.log10(level)) + DBM0_OF_DBOV


class SpeechLevel:
    """Gain control of the bot's voice in one call.

    Args:
        target_dbm0: level to reach.
        rate_hz: rate of the line.
        expected_dbm0: known level of the voice; None to measure it.
    """

    def __init__(self, target_dbm0: float, *, rate_hz: int, expected_dbm0: float | None = None) -> None:
        self._target_dbm0 = target_dbm0
        self._rate_hz = rate_hz
        self._power, self._heard_ms = 0.0, 0.0
        if expected_dbm0 is not None:
            self._power = 10 ** ((expected_dbm0 - DBM0_OF_DBOV) / 10)
            self._heard_ms = float(LOOKED_AT_MS)
        self.gain_db = self._wanted_db() if expected_dbm0 is not None else 0.0
        self._factor = 10 ** (self.gain_db / 20)
        self._ramp = np.zeros(0, np.float32)

    def apply(self, pcm: bytes, *, learns: bool = True) -> bytes:
        """Return the next piece with the gain applied, at the same length.

        Args:
            pcm: 16-bit mono.
            learns: it is speech of the voice, and its level is measured.
        """
        samples = np.frombuffer(pcm, "<i2").astype(np.float32)
        if not len(samples):
            return pcm
        long_ms = 1000 * len(samples) / self._rate_hz
        if learns:
            self._look(float(np.vdot(samples, samples)) / (len(samples) * _FULL**2), long_ms)
        if self._heard_ms >= FIRST_LOOK_MS:
            step_db = DB_PER_S * long_ms / 1000
            self.gain_db += min(max(self._wanted_db() - self.gain_db, -step_db), step_db)
        peak = max(float(np.maximum.reduce(samples)), -float(np.minimum.reduce(samples)))
        most = PEAK * _FULL / peak if peak else 1.0
        before, factor = min(self._factor, most), min(10 ** (self.gain_db / 20), most)
        self._factor = factor
        if abs(factor - before) < _STEADY:
            samples *= np.float32(factor)
        else:
            # The gain of a voice changes with every piece, and ``np.linspace`` costs more than the rest
            # together.
            if len(self._ramp) != len(samples):
                self._ramp = np.linspace(0, 1, len(samples), dtype=np.float32)
            samples *= self._ramp * np.float32(factor - before) + np.float32(before)
        return np.rint(samples).astype("<i2").tobytes()

    def _look(self, power: float, long_ms: float) -> None:
        if power < max(10 ** (SILENCE_DBOV / 10), self._power * 10 ** (-MARGIN_DB / 10)):
            return
        self._heard_ms = min(self._heard_ms + long_ms, float(LOOKED_AT_MS))
        self._power += (power - self._power) * min(1.0, long_ms / self._heard_ms)

    def _wanted_db(self) -> float:
        level_dbm0 = 10 * log10(max(self._power, 1e-10)) + DBM0_OF_DBOV
        return min(max(self._target_dbm0 - level_dbm0, LOWEST_DB), HIGHEST_DB)
