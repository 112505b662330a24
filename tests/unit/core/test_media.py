import numpy as np
import pytest

from parley.core.errors import ShapeError
from parley.core.media import float_to_pcm16, ms_to_samples, pcm16_to_float, samples_to_ms


def test_pcm_survives_the_way_through_floats():
    pcm = np.array([-32768, -1, 0, 1, 32767], dtype="<i2").tobytes()
    assert float_to_pcm16(pcm16_to_float(pcm)) == pcm


def test_loud_floats_are_clipped_not_wrapped():
    assert np.frombuffer(float_to_pcm16(np.array([2.0, -2.0])), dtype="<i2").tolist() == [32767, -32768]


def test_half_a_sample_is_refused():
    with pytest.raises(ShapeError):
        pcm16_to_float(b"\0\0\0")


def test_stereo_arrays_are_refused():
    with pytest.raises(ShapeError):
        float_to_pcm16(np.zeros((2, 2)))


def test_durations_round_down():
    assert samples_to_ms(159, 16_000) == 9
    assert ms_to_samples(10, 11_025) == 110
