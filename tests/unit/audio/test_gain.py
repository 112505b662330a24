from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.audio.gain import RISE_DB, RampedGain

LOUD = np.full(320, 20_000, dtype="<i2").tobytes()


def samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, dtype="<i2").astype(float)


def test_full_volume_is_the_audio_itself():
    assert RampedGain().apply(LOUD) is LOUD


def test_a_lower_volume_takes_one_piece_and_has_no_step():
    gain = RampedGain()
    gain.set_db(-12)
    down, low = samples(gain.apply(LOUD)), samples(gain.apply(LOUD))
    assert low == pytest.approx(np.full(320, 20_000 * 10 ** (-12 / 20)), abs=1)
    assert down[-1] == low[0]
    assert np.abs(np.diff([20_000, *down])).max() < 60


def test_full_volume_comes_back_without_a_seam():
    gain = RampedGain()
    gain.set_db(-12)
    gain.apply(LOUD)
    gain.set_db(0)
    up = [samples(gain.apply(LOUD)) for _ in range(4)]
    levels = [20_000 * 10 ** (-12 / 20), *(piece[-1] for piece in up)]
    # No piece rises by more than 3 dB, and no sample by more than the slope of the steepest piece.
    assert all(20 * np.log10(after / before) < RISE_DB + 0.01 for before, after in pairwise(levels))
    steepest = 20_000 * (1 - 10 ** (-RISE_DB / 20)) / 320
    assert np.abs(np.diff([levels[0], *np.concatenate(up)])).max() <= steepest + 1
    assert levels[-1] == pytest.approx(20_000, abs=1)
    gain.apply(LOUD)
    assert gain.apply(LOUD) is LOUD


def test_nothing_plays_any_more_and_the_next_piece_is_as_loud_as_it_is():
    gain = RampedGain()
    gain.set_db(-30)
    gain.apply(LOUD)
    gain.reset()
    assert gain.apply(LOUD) is LOUD
    assert gain.gain_db == 0


def test_a_gain_that_clips_is_refused():
    with pytest.raises(ValueError, match="clip"):
        RampedGain().set_db(0.1)


@given(
    st.lists(st.tuples(st.floats(-60, 0), st.lists(st.integers(-32_768, 32_767), max_size=50)), max_size=10)
)
def test_lengths_stay_and_nothing_gets_louder(pieces: list[tuple[float, list[int]]]):
    gain = RampedGain()
    for gain_db, values in pieces:
        gain.set_db(gain_db)
        pcm = np.array(values, dtype="<i2").tobytes()
        out = samples(gain.apply(pcm))
        assert len(out) == len(values)
        assert (np.abs(out) <= np.abs(samples(pcm))).all()
