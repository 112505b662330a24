"""Concealment fills a gap in speech from the audio on both sides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.audio.concealment import conceal, fade_out
from parley.core.media import pcm16_to_float
from tests.voices import say

RATE_HZ = 8_000
MS = RATE_HZ // 1000


def buzz(samples: int, hz: float, at: int = 0) -> np.ndarray:
    """Return a voice of a few harmonics."""
    t = (at + np.arange(samples)) / RATE_HZ
    return sum(np.sin(2 * np.pi * hz * n * t) / n for n in range(1, 8)).astype(np.float32)


@pytest.mark.parametrize("hz", [80.0, 125.0, 210.0, 320.0])
@pytest.mark.parametrize("hole_ms", [20, 40, 60])
def test_a_voice_goes_on_through_the_hole(hz: float, hole_ms: int) -> None:
    whole = buzz(200 * MS, hz)
    first, last = 80 * MS, (80 + hole_ms) * MS
    filled = conceal(whole[:first], whole[last : last + 20 * MS], last - first, rate_hz=RATE_HZ)
    true = whole[first:last]
    # A signal in another phase does not reach this correlation by chance.
    assert float(filled @ true) / float(np.sqrt((filled @ filled) * (true @ true))) > 0.85
    assert 0.6 < float((filled @ filled) / (true @ true)) < 1.2


def test_the_voice_changes_from_the_one_side_to_the_other() -> None:
    low, high = buzz(80 * MS, 100.0), 0.2 * buzz(20 * MS, 250.0)
    filled = conceal(low, high, 60 * MS, rate_hz=RATE_HZ)
    power = [float(np.mean(part**2)) for part in np.split(filled, 3)]
    assert power[0] > 2 * power[1] > 4 * power[2]


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 600), st.integers(0, 2**32 - 1))
def test_it_is_as_long_as_the_hole_and_no_louder_than_its_sides(
    before: int, behind: int, samples: int, seed: int
) -> None:
    noise = np.random.default_rng(seed).uniform(-1, 1, before + behind).astype(np.float32)
    for filled in (
        conceal(noise[:before], noise[before:], samples, rate_hz=RATE_HZ),
        fade_out(noise[:before], samples, rate_hz=RATE_HZ),
    ):
        assert filled.shape == (samples,) and filled.dtype == np.float32
        assert np.abs(filled).max() <= 1.0 + 1e-5


def test_silence_stays_silent() -> None:
    assert not conceal(np.zeros(400, np.float32), np.zeros(160, np.float32), 160, rate_hz=RATE_HZ).any()


def test_speech_is_nearer_to_what_it_was_than_with_silence_in_it() -> None:
    speech = pcm16_to_float(say("On Saturdays they are open from ten until two.", "rms"))[::2]
    missed = error = 0.0
    for first in range(60 * MS, len(speech) - 60 * MS, 70 * MS):
        hole = slice(first, first + 20 * MS)
        filled = conceal(speech[:first], speech[hole.stop : hole.stop + 20 * MS], 20 * MS, rate_hz=RATE_HZ)
        missed += float(np.sum(speech[hole] ** 2))
        error += float(np.sum((speech[hole] - filled) ** 2))
    assert error < 0.5 * missed
