"""G.711 against the values that the recommendation prints."""

import numpy as np
import pytest

from parley.audio import g711
from parley.audio.g711 import Law
from parley.core.errors import ShapeError

# ITU-T G.711 (11/1988), tables 1a and 2a: decoder output value numbers of positive code words as printed
# there. They are in units of 13 bits (A) and 14 bits (mu), keyed by the code word as it is sent.
A_13_BITS = {
    0xD5: 1,
    0xD4: 3,
    0xC5: 33,
    0xF5: 66,
    0xE5: 132,
    0x95: 264,
    0x85: 528,
    0xB5: 1_056,
    0xA5: 2_112,
    0xAA: 4_032,
}
MU_14_BITS = {
    0xFF: 0,
    0xFE: 2,
    0xEF: 33,
    0xDF: 99,
    0xCF: 231,
    0xBF: 495,
    0xAF: 1_023,
    0x9F: 2_079,
    0x8F: 4_191,
    0x80: 8_031,
}


@pytest.mark.parametrize(("law", "values", "shift"), [(Law.A, A_13_BITS, 3), (Law.MU, MU_14_BITS, 2)])
def test_the_values_of_the_recommendation(law: Law, values: dict[int, int], shift: int):
    decoded = g711.decode(bytes(values), law)
    assert decoded.tolist() == [value << shift for value in values.values()]


@pytest.mark.parametrize("law", list(Law))
def test_the_sign_bit_turns_a_value_around(law: Law):
    positive = g711.decode(bytes(range(0x80, 0x100)), law).astype(int)
    negative = g711.decode(bytes(range(0x80)), law).astype(int)
    assert (positive == -negative).all()


@pytest.mark.parametrize("law", list(Law))
def test_what_was_decoded_is_encoded_as_it_was(law: Law):
    words = bytes(range(256))
    again = g711.decode(g711.encode(g711.decode(words, law), law), law)
    assert (again == g711.decode(words, law)).all()


@pytest.mark.parametrize("law", list(Law))
def test_every_sample_becomes_the_nearest_value(law: Law):
    samples = np.arange(-32_768, 32_768).astype(np.int16)
    values = np.unique(g711.decode(bytes(range(256)), law).astype(np.int64))
    nearest = np.abs(samples[:, None].astype(np.int64) - values).min(axis=1)
    got = np.abs(samples.astype(np.int64) - g711.decode(g711.encode(samples, law), law))
    assert (got == nearest).all()


def test_silence_is_the_byte_that_telephone_lines_send():
    assert g711.encode(np.zeros(2, np.int16), Law.MU) == b"\xff\xff"
    assert g711.encode(np.zeros(2, np.int16), Law.A) in (b"\xd5\xd5", b"\x55\x55")


@pytest.mark.parametrize("samples", [np.zeros(2, np.float32), np.zeros((2, 2), np.int16)])
def test_other_arrays_are_refused(samples: np.ndarray):
    with pytest.raises(ShapeError):
        g711.encode(samples, Law.MU)
