"""The fall of loudness at the end of a voice."""

import numpy as np
import pytest

from parley.turn_taking.endpointing.evidence_loudness import loudness_slope_db_s
from parley.turn_taking.endpointing.evidence_pitch import pitch_hz

RATE_HZ = 16_000


def voice(db_s: float, *, ms: int = 900, gain: float = 0.1) -> np.ndarray:
    """Return ten harmonics whose level changes by that much from the middle on, and silence."""
    time_s = np.arange(ms * RATE_HZ // 1000) / RATE_HZ
    sound = sum(np.sin(2 * np.pi * 120 * k * time_s) / k for k in range(1, 11))
    level_db = db_s * np.maximum(0.0, time_s - time_s[-1] / 2)
    return np.concatenate((gain * sound * 10 ** (level_db / 20), np.zeros(3_200))).astype(np.float32)


def slope(sound: np.ndarray) -> float | None:
    return loudness_slope_db_s(sound, pitch_hz(sound, RATE_HZ), RATE_HZ)


@pytest.mark.parametrize("db_s", [-40.0, -10.0, 0.0, 20.0])
def test_the_slope_is_found(db_s: float):
    assert slope(voice(db_s)) == pytest.approx(db_s, abs=2)


def test_how_loud_the_voice_is_does_not_matter():
    assert slope(voice(-30, gain=0.003)) == pytest.approx(slope(voice(-30)), abs=0.5)


@pytest.mark.parametrize("sound", [np.zeros(0, np.float32), np.zeros(16_000, np.float32), voice(0, ms=60)])
def test_too_little_voice_has_no_slope(sound: np.ndarray):
    assert slope(sound) is None
