import itertools

import numpy as np
import pytest

from parley.models.stt.speech_cutter import MOST_WINDOWS, WINDOW, CutPiece, SpeechCutter, detector
from parley.models.vad.silero import SileroVad
from tests.human_speech import two_cities
from tests.voices import RATE_HZ, say, silence


@pytest.fixture(scope="module")
def vad() -> SileroVad:
    return detector()


def cut(vad: SileroVad, pcm: bytes, block_bytes: int = 320_000, **options: int) -> list[CutPiece]:
    cutter = SpeechCutter(vad, **options)
    blocks = (pcm[at : at + block_bytes] for at in range(0, len(pcm), block_bytes))
    return [*itertools.chain.from_iterable(map(cutter.feed, blocks)), *cutter.finish()]


def ms(samples: int) -> int:
    return samples * 1_000 // RATE_HZ


def test_sentences_apart_are_pieces_and_the_silence_is_left_out(vad: SileroVad):
    first, second = say("what are your opening hours"), say("thank you very much")
    pieces = cut(vad, silence(3_000) + first + silence(4_000) + second + silence(5_000))
    assert len(pieces) == 2
    places = (3_000, 3_000 + ms(len(first) // 2) + 4_000)
    for piece, place, said in zip(pieces, places, (first, second), strict=True):
        assert ms(piece.start) == pytest.approx(place, abs=250)
        assert ms(len(piece.samples)) == pytest.approx(ms(len(said) // 2), abs=600)
        assert len(piece.voiced) * WINDOW == len(piece.samples)


def test_words_with_a_breath_between_them_stay_together(vad: SileroVad):
    def said(pause_ms: int) -> bytes:
        return silence(500) + say("what are") + silence(pause_ms) + say("your opening hours") + silence(500)

    assert len(cut(vad, said(150))) == 1
    assert len(cut(vad, said(450))) == 1
    # Speakers take turns after shorter pauses.
    assert len(cut(vad, said(450), pause_windows=10)) == 2


def test_a_long_reading_is_cut_into_lines_that_lose_nothing(vad: SileroVad):
    pcm = two_cities()
    pieces = cut(vad, pcm)
    assert len(pieces) >= 4
    assert max(len(piece.voiced) for piece in pieces) <= MOST_WINDOWS
    for piece in pieces:
        assert piece.pcm == pcm[piece.start * 2 : piece.start * 2 + len(piece.pcm)] or piece is pieces[-1]
    assert all(a.start + len(a.samples) <= b.start for a, b in itertools.pairwise(pieces))
    # Pauses between clauses are all that is left out.
    assert sum(len(piece.pcm) for piece in pieces) > 0.8 * len(pcm)


def test_speech_without_a_pause_is_cut_where_it_is_long(vad: SileroVad):
    word = say("never")
    pcm = b"".join([word[3_200:-3_200]] * 80)
    pieces = cut(vad, pcm)
    assert len(pieces) >= 2
    assert max(len(piece.voiced) for piece in pieces) <= MOST_WINDOWS


def test_the_size_of_the_blocks_does_not_matter(vad: SileroVad):
    pcm = two_cities()[:600_000]
    expected = [(piece.start, piece.pcm, piece.voiced) for piece in cut(vad, pcm)]
    for block_bytes in (642, 32_000):
        assert [(piece.start, piece.pcm, piece.voiced) for piece in cut(vad, pcm, block_bytes)] == expected


def test_silence_and_noise_have_no_pieces(vad: SileroVad):
    noise = (300 * np.random.default_rng(1).standard_normal(10 * RATE_HZ)).astype("<i2").tobytes()
    assert cut(vad, b"") == cut(vad, silence(10_000)) == cut(vad, noise) == []
