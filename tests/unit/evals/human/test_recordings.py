"""Recordings: decoding, edges and pauses."""

import numpy as np
import pytest

from parley.core.errors import MediaError
from parley.evals.human.recordings import decode_g722, decode_wav, edges_of, pauses_of, text_digest
from tests.recorded_speech import clip

RATE_HZ = 16_000


def tone(ms: int, level: float = 0.3) -> np.ndarray:
    return level * np.sin(2 * np.pi * 300 * np.arange(ms * RATE_HZ // 1000) / RATE_HZ).astype(np.float32)


def silence(ms: int) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 1e-3, ms * RATE_HZ // 1000).astype(np.float32)


def test_pauses_are_found_where_they_are():
    sound = np.concatenate(
        [silence(200), tone(400), silence(350), tone(300), silence(60), tone(300), silence(200)]
    )
    (pause,) = pauses_of(sound, RATE_HZ)
    # A silence of 60 ms is a consonant.
    assert pause.first == pytest.approx(600 * 16, abs=160)
    assert pause.length_ms(RATE_HZ) == pytest.approx(350, abs=20)
    first, end = edges_of(sound, RATE_HZ)
    assert (first, end) == (pytest.approx(200 * 16, abs=160), pytest.approx(1_610 * 16, abs=160))


def test_a_silent_recording_is_refused():
    with pytest.raises(MediaError):
        pauses_of(np.zeros(RATE_HZ, np.float32), RATE_HZ)


def test_g722_is_decoded_to_two_samples_for_each_byte():
    samples, rate_hz = decode_g722(bytes(range(256)))
    assert (len(samples), rate_hz, samples.dtype) == (512, RATE_HZ, np.float32)
    again, _ = decode_g722(bytes(range(256)))
    assert (samples == again).all()


def test_what_is_no_wav_file_is_refused():
    with pytest.raises(MediaError):
        decode_wav(b"RIFF nothing")


def test_a_recorded_sentence_has_its_edges_inside_the_file():
    one = clip()
    first, end = edges_of(one.samples, one.rate_hz)
    assert 0 < first < end < len(one.samples)
    assert all(first < pause.first < pause.end < end for pause in one.pauses)


def test_punctuation_and_case_do_not_make_another_text():
    assert text_digest("Thank you, goodbye!") == text_digest("thank you goodbye")
    assert text_digest("Тест один") == text_digest("тест, ОДИН")
