"""The tone of a line without words."""

import numpy as np

from parley.audio import g711
from parley.audio.holding_tone import LEVEL_DB, PITCH_HZ, RATE_HZ, holding_tone


def test_the_tone_has_its_pitch_and_level_and_no_clicks():
    samples = g711.decode(holding_tone(), g711.Law.MU).astype(np.float64)
    beat = samples[: 180 * RATE_HZ // 1000]
    spectrum = np.abs(np.fft.rfft(beat, RATE_HZ))
    assert abs(int(spectrum.argmax()) - PITCH_HZ) <= 2
    middle = beat[400:1_000]
    assert abs(20 * np.log10(np.sqrt(np.mean(middle**2)) / 32_768) - LEVEL_DB) < 0.5
    # The first and the last millisecond are far softer than the middle.
    assert np.abs(np.concatenate((beat[:8], beat[-8:]))).max() < np.abs(middle).max() / 2
