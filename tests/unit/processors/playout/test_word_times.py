"""Estimated word times, compared with an engine's measured ones."""

import pytest

from parley.models.tts.flite import FliteTts
from parley.processors.playout.word_times import estimate_word_times, spoken_us


def test_words_fill_their_audio_in_order_without_overlap():
    text = "Hello, this is  Parley.\nAsk me"
    placed = estimate_word_times(text, 500, 4_000_500)
    assert "".join(word.joiner + word.text for word in placed) == text
    assert placed[0].start_us == 500
    assert all(a.end_us <= b.start_us for a, b in zip(placed, placed[1:], strict=False))
    assert placed[-1].end_us <= 4_000_500


def test_longer_words_take_longer_and_marks_make_pauses():
    short, long, last = estimate_word_times("a wonderful, day", 0, 1_000_000)
    assert long.end_us - long.start_us > 3 * (short.end_us - short.start_us)
    assert last.start_us - long.end_us > 100_000
    assert long.start_us == short.end_us


def test_numbers_and_capitals_are_read_at_length():
    assert spoken_us("1945") > 2 * spoken_us("year")
    assert spoken_us("IBAN") > 2 * spoken_us("iban")


@pytest.mark.parametrize("text", ["", "   "])
def test_nothing_takes_no_time(text):
    assert estimate_word_times(text, 0, 1_000) == []
    assert spoken_us(text) == 0


def test_audio_without_length_has_all_words_at_one_place():
    assert {(word.start_us, word.end_us) for word in estimate_word_times("one two.", 70, 70)} == {(70, 70)}


def test_marks_alone_are_placed_too():
    assert [word.text for word in estimate_word_times("... —", 0, 1_000)] == ["...", "—"]


def test_the_guess_is_near_what_flite_measures():
    text = "You can open a savings account at any branch, and it pays 3 percent interest every year."
    audio, words = bytearray(), []

    def take(piece):
        audio.extend(piece.pcm)
        words.extend(piece.words)
        return True

    FliteTts().synthesize(text, take)
    placed = estimate_word_times(text, 0, len(audio) // 2 * 1_000_000 // 16_000)
    assert [word.text for word in placed] == [word.text for word in words]
    off_ms = [
        abs(guess.start_us + guess.end_us - (word.start_ms + word.end_ms) * 1_000) // 2_000
        for guess, word in zip(placed, words, strict=True)
    ]
    assert sorted(off_ms)[len(off_ms) // 2] < 100
    assert max(off_ms) < 400
