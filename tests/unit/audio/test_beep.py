"""Detection of an answering machine's beep in the audio of a telephone line."""

import numpy as np
import pytest

from parley.audio import g711
from parley.audio.beep import Beep, BeepDetector
from parley.core.media import pcm16_to_float
from tests.voices import say

RATE_HZ = 8_000


def line(samples: np.ndarray) -> np.ndarray:
    """Return the samples after mu-law coding."""
    mu_law = g711.encode(np.round(samples * 32_767).astype(np.int16), g711.Law.MU)
    return (g711.decode(mu_law, g711.Law.MU) / 32_768).astype(np.float32)


def tone(duration_ms: int, *hertz: float, level: float = 0.1) -> np.ndarray:
    seconds = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return level * np.sum([np.sin(2 * np.pi * hz * seconds) for hz in hertz], axis=0)


def found(sound: np.ndarray, piece: int = 160) -> list[Beep]:
    rng = np.random.default_rng(1)
    whole = np.concatenate((np.zeros(4_000), sound, np.zeros(4_000)))
    whole = line(whole + 0.001 * rng.standard_normal(len(whole)))
    detector = BeepDetector(RATE_HZ)
    return [beep for at in range(0, len(whole), piece) for beep in detector.feed(whole[at : at + piece])]


@pytest.mark.parametrize("hz", [400.0, 1_000.0, 2_400.0])
@pytest.mark.parametrize("duration_ms", [150, 400, 1_500])
@pytest.mark.parametrize("piece", [160, 333])
def test_a_steady_tone_is_a_beep_and_its_end_is_known(hz: float, duration_ms: int, piece: int):
    [beep] = found(tone(duration_ms, hz), piece)
    assert beep.hz == pytest.approx(hz, abs=12)
    assert beep.start_ms == pytest.approx(500, abs=40)
    assert beep.end_ms == pytest.approx(500 + duration_ms, abs=40)


def test_what_is_no_beep():
    rng = np.random.default_rng(2)
    sweep = np.sin(2 * np.pi * np.cumsum(np.linspace(500, 1_500, RATE_HZ)) / RATE_HZ)
    voice = pcm16_to_float(say("Please leave your name and number, and we will call you back."))[::2]
    for sound in (
        tone(80, 1_000),
        tone(5_000, 425),
        # A key, a dial tone.
        tone(400, 770, 1_336),
        tone(1_000, 350, 440),
        tone(400, 200),
        tone(400, 1_000, level=0.003),
        0.1 * sweep,
        0.1 * rng.standard_normal(RATE_HZ),
        voice,
    ):
        assert found(sound) == []
