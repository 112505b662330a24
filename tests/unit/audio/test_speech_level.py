"""The level of the bot's speech on a telephone line."""

import numpy as np
import pytest

from parley.audio.speech_level import PEAK, SpeechLevel, active_level_dbm0
from parley.core.media import float_to_pcm16, pcm16_to_float
from tests.voices import say

RATE_HZ = 16_000
TEXT = "On Saturdays they are open from ten until two. On Sundays nobody is there at any time."


def spoken(level_dbm0: float, voice: str = "rms") -> np.ndarray:
    samples = pcm16_to_float(say(TEXT, voice))
    now_dbm0 = active_level_dbm0(samples, RATE_HZ)
    assert now_dbm0 is not None
    return np.clip(samples * 10 ** ((level_dbm0 - now_dbm0) / 20), -1, 1)


def levelled(level: SpeechLevel, samples: np.ndarray) -> np.ndarray:
    pieces = [samples[at : at + 320] for at in range(0, len(samples), 320)]
    return pcm16_to_float(b"".join(level.apply(float_to_pcm16(piece)) for piece in pieces))


def test_a_sine_that_fills_the_line_has_the_level_of_the_standard():
    sine = np.sin(2 * np.pi * 1_000 * np.arange(RATE_HZ) / RATE_HZ)
    assert active_level_dbm0(sine, RATE_HZ) == pytest.approx(3.17, abs=0.05)
    assert active_level_dbm0(np.zeros(RATE_HZ), RATE_HZ) is None


def test_pauses_do_not_count():
    samples = spoken(-20.0)
    padded = np.concatenate((samples, np.zeros(3 * len(samples))))
    assert active_level_dbm0(padded, RATE_HZ) == pytest.approx(-20.0, abs=0.3)


@pytest.mark.parametrize("voice", ["slt", "rms", "awb", "kal16"])
def test_a_voice_that_is_known_is_as_loud_as_it_is_to_be_from_its_first_word(voice: str):
    samples = spoken(-8.0 if voice != "kal16" else -22.0, voice)
    level = SpeechLevel(-17.5, rate_hz=RATE_HZ, expected_dbm0=active_level_dbm0(samples, RATE_HZ))
    said = levelled(level, samples)
    assert active_level_dbm0(said, RATE_HZ) == pytest.approx(-17.5, abs=1.0)
    first, before = said[: RATE_HZ // 2], samples[: RATE_HZ // 2]
    gain_db = 20 * np.log10(np.sqrt(np.mean(first**2) / np.mean(before**2)))
    assert gain_db == pytest.approx(-17.5 - (active_level_dbm0(samples, RATE_HZ) or 0.0), abs=1.0)


@pytest.mark.parametrize("level_dbm0", [-8.0, -26.0])
def test_a_voice_that_is_not_known_is_found_out(level_dbm0: float):
    level = SpeechLevel(-17.5, rate_hz=RATE_HZ)
    samples = np.tile(spoken(level_dbm0), 2)
    said = levelled(level, samples)
    assert active_level_dbm0(said[len(said) // 2 :], RATE_HZ) == pytest.approx(-17.5, abs=1.0)


def test_a_hum_is_as_loud_as_the_voice_and_teaches_nothing():
    level = SpeechLevel(-17.5, rate_hz=RATE_HZ, expected_dbm0=-8.0)
    hum = float_to_pcm16(spoken(-20.0))
    before_db = level.gain_db
    out = level.apply(hum, learns=False)
    assert level.gain_db == before_db == pytest.approx(-9.5, abs=0.1)
    assert active_level_dbm0(pcm16_to_float(out), RATE_HZ) == pytest.approx(-29.5, abs=0.3)


def test_nothing_is_cut_off():
    samples = spoken(-25.0)
    # One loud word in a soft voice.
    samples[RATE_HZ : RATE_HZ + 4_000] *= 0.99 / np.abs(samples[RATE_HZ : RATE_HZ + 4_000]).max()
    said = levelled(SpeechLevel(-12.0, rate_hz=RATE_HZ, expected_dbm0=-25.0), samples)
    assert np.abs(said).max() <= PEAK + 0.001
