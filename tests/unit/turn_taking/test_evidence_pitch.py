"""The pitch at the end of synthetic voices: harmonics whose fundamental glides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.core.errors import ShapeError
from parley.turn_taking.endpointing.evidence_pitch import final_movement_semitones, pitch_hz

RATE_HZ = 16_000


def voice(first_hz: float, last_hz: float, *, ms: int = 400, tail_ms: int = 200) -> np.ndarray:
    """Return a gliding voice of ten harmonics that fall by 6 dB each octave, and silence."""
    time_s = np.arange(ms * RATE_HZ // 1000) / RATE_HZ
    hertz = first_hz * (last_hz / first_hz) ** (time_s / time_s[-1])
    phase = 2 * np.pi * np.cumsum(hertz) / RATE_HZ
    sound = sum(np.sin(k * phase) / k for k in range(1, 11))
    return np.concatenate((0.1 * sound, np.zeros(tail_ms * RATE_HZ // 1000))).astype(np.float32)


@pytest.mark.parametrize("hertz", [85.0, 120.0, 210.0, 330.0])
def test_the_pitch_of_a_steady_voice(hertz: float):
    found = pitch_hz(voice(hertz, hertz), RATE_HZ)
    voiced = found[np.isfinite(found)]
    assert len(voiced) >= 30
    assert np.median(voiced) == pytest.approx(hertz, rel=0.01)


def test_noise_does_not_hide_it():
    rng = np.random.default_rng(5)
    sound = voice(120, 180)
    noisy = sound + rng.normal(0, 0.1 * sound.std(), sound.size).astype(np.float32)
    moved = final_movement_semitones(noisy, RATE_HZ)
    assert moved is not None
    assert moved > 2


@pytest.mark.parametrize(
    "audio",
    [
        np.zeros(0, np.float32),
        np.zeros(RATE_HZ, np.float32),
        np.random.default_rng(1).normal(0, 0.1, RATE_HZ).astype(np.float32),
        voice(120, 180, ms=60),
    ],
    ids=["nothing", "silence", "noise", "too short"],
)
def test_what_is_not_voiced_does_not_move(audio: np.ndarray):
    assert final_movement_semitones(audio, RATE_HZ) is None


def test_only_the_end_counts():
    rise_then_level = np.concatenate((voice(110, 165, tail_ms=0), voice(165, 165)))
    moved = final_movement_semitones(rise_then_level, RATE_HZ)
    assert moved is not None
    assert abs(moved) < 2


@settings(max_examples=20, deadline=None)
@given(first_hz=st.floats(95, 200), semitones=st.floats(-6, 6))
def test_the_movement_is_in_semitones_of_the_last_stretch(first_hz: float, semitones: float):
    sound = voice(first_hz, first_hz * 2 ** (semitones / 12), ms=250)
    moved = final_movement_semitones(sound, RATE_HZ)
    assert moved is not None
    # The frames at both ends extend over the edge: up to a fifth of the glide is not measured.
    assert moved == pytest.approx(semitones, abs=0.4 + 0.25 * abs(semitones))


def test_two_channels_are_refused():
    with pytest.raises(ShapeError):
        pitch_hz(np.zeros((2, 100), np.float32), RATE_HZ)


@pytest.mark.parametrize("first_hz", [95.0, 98.0, 104.0, 110.0])
def test_a_deep_voice_that_falls_is_not_taken_for_its_octave(first_hz: float):
    for semitones in (-3.5, -4.5, -5.5):
        moved = final_movement_semitones(voice(first_hz, first_hz * 2 ** (semitones / 12), ms=250), RATE_HZ)
        assert moved is not None
        assert moved == pytest.approx(semitones, abs=0.4 + 0.25 * abs(semitones))


@settings(max_examples=40, deadline=None)
@given(first_hz=st.floats(90, 220), semitones=st.floats(-8, 8))
def test_a_long_glide_moves_as_much_as_its_last_stretch(first_hz: float, semitones: float):
    sound = voice(first_hz, first_hz * 2 ** (semitones / 12), ms=500)
    # 25 frames are 240 ms apart.
    expected = semitones * 240 / 500
    assert final_movement_semitones(sound, RATE_HZ) == pytest.approx(expected, abs=0.25 + 0.1 * abs(expected))
