import numpy as np

from parley.models.tts.edges import EdgeTrimmer

RATE = 1000


def silence(count: int) -> np.ndarray:
    return np.zeros(count, dtype=np.int16)


def tone(count: int) -> np.ndarray:
    return np.full(count, 9_000, dtype=np.int16)


def trim(*pieces: np.ndarray) -> tuple[np.ndarray, EdgeTrimmer]:
    trimmer = EdgeTrimmer(RATE, lead_ms=10, tail_ms=30)
    out = [trimmer.feed(piece) for piece in pieces] + [trimmer.finish()]
    return np.concatenate(out), trimmer


def test_leading_silence_is_cut_to_the_lead_across_pieces():
    out, trimmer = trim(silence(70), silence(70), np.concatenate([silence(60), tone(40)]))
    assert np.flatnonzero(out)[0] == 10
    assert trimmer.dropped_samples == 190


def test_speech_that_begins_at_once_loses_nothing():
    out, trimmer = trim(tone(40))
    assert len(out) == 40
    assert trimmer.dropped_samples == 0


def test_trailing_silence_is_cut_to_the_tail():
    out, _ = trim(tone(40), silence(50), silence(50))
    assert len(out) == 70


def test_silence_inside_the_clause_is_kept():
    out, _ = trim(tone(40), silence(100), silence(100), tone(5))
    assert len(out) == 245


def test_nothing_audible_gives_nothing():
    out, trimmer = trim(silence(100), silence(100))
    assert not len(out)
    assert not trimmer.started


def test_the_loudest_negative_sample_is_audible():
    out, _ = trim(np.full(3, -32768, dtype=np.int16))
    assert len(out) == 3
