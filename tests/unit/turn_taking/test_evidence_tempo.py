"""The rate of change at the end of a voice, on synthetic syllables."""

import numpy as np
import pytest

from parley.core.errors import ShapeError
from parley.turn_taking.endpointing.evidence_pitch import pitch_hz
from parley.turn_taking.endpointing.evidence_tempo import Tempo, spectral_change, tempo_of
from parley.turn_taking.endpointing.evidence_voice import voice_end
from tests.syllables import RATE_HZ, syllables


def tempo(sound: np.ndarray, rate_hz: int = RATE_HZ) -> Tempo:
    found = tempo_of(sound, pitch_hz(sound, rate_hz), rate_hz)
    assert found is not None
    return found


EVEN = [120] * 16


@pytest.mark.parametrize("hertz", [100.0, 210.0])
def test_syllables_of_one_length_keep_their_tempo_and_drawn_out_ones_do_not(hertz: float):
    even = tempo(syllables(EVEN, hertz=hertz))
    drawn = tempo(syllables([*EVEN[:12], 240, 240, 240], hertz=hertz))
    assert even.final == pytest.approx(even.whole, abs=0.1)
    assert drawn.final < drawn.whole - 0.3


def test_all_of_the_voice_twice_as_slow_changes_half_as_fast():
    fast, slow = tempo(syllables(EVEN)), tempo(syllables([240] * 12))
    assert fast.whole - slow.whole == pytest.approx(np.log(2), abs=0.25)


def test_loudness_and_the_silence_after_the_voice_do_not_matter():
    sound = syllables(EVEN)
    soft = tempo(0.05 * sound)
    longer = tempo(np.concatenate((sound, np.zeros(8_000, np.float32))))
    assert (soft.final, soft.whole) == pytest.approx((tempo(sound).final, tempo(sound).whole), abs=0.02)
    assert longer == tempo(sound)


def test_a_telephone_hears_about_the_same():
    drawn = [*EVEN[:12], 240, 240, 240]
    wide, narrow = tempo(syllables(drawn)), tempo(syllables(drawn, rate_hz=8_000), 8_000)
    assert narrow.final - narrow.whole == pytest.approx(wide.final - wide.whole, abs=0.2)


@pytest.mark.parametrize(
    "sound",
    [np.zeros(0), np.zeros(100), np.zeros(16_000), np.random.default_rng(1).normal(0, 0.1, 16_000)],
)
def test_what_is_no_voice_has_no_tempo(sound: np.ndarray):
    assert tempo_of(sound.astype(np.float32), pitch_hz(sound.astype(np.float32), RATE_HZ), RATE_HZ) is None


def test_a_voice_that_is_too_short_has_no_tempo():
    sound = syllables([80])
    assert tempo_of(sound, pitch_hz(sound, RATE_HZ), RATE_HZ) is None


def test_changes_are_one_for_each_hop():
    assert len(spectral_change(syllables(EVEN), RATE_HZ)) == (len(syllables(EVEN)) - 400) // 160 + 1


def test_two_channels_are_refused():
    with pytest.raises(ShapeError):
        voice_end(np.zeros((100, 2), np.float32), RATE_HZ)
