import pytest

from parley.models.tts.phonemes import (
    cut_windows,
    estimated_edges,
    place_words,
    readable_text,
    readable_words,
)

# espeak-ng's phonemes of single words, as far as the tests need them.
ALONE = {"out": "ˈaʊt", "of": "ˈʌv", "the": "ðə", "blue": "blˈuː", "one fee": "wˈʌn fˈiː", "one": "wˈʌn"}


def placed(text: str, phonemes: str) -> list[tuple[str, str]]:
    words = readable_words(text, language="en")
    return [(w.written, phonemes[w.start : w.end]) for w in place_words(phonemes, words, ALONE.__getitem__)]


def windows(phonemes: str, *, shortest: int, longest: int) -> list[str]:
    return [phonemes[a:b] for a, b in cut_windows(phonemes, shortest=shortest, longest=longest)]


def test_words_that_stay_apart_are_found_by_counting():
    assert placed("The blue!", "ðə blˈuː!") == [("The", "ðə"), ("blue!", "blˈuː")]


def test_a_number_is_one_written_word_of_several_spoken_ones():
    assert placed("21 fees", "twˈɛnti wˈʌn fˈiːz") == [("21", "twˈɛnti wˈʌn"), ("fees", "fˈiːz")]


def test_words_that_are_spoken_as_one_are_told_apart_and_marked():
    words = readable_words("out of the blue", language="en")
    found = place_words("ˌaʊɾəv ðə blˈuː", words, ALONE.__getitem__)
    assert [w.written for w in found] == ["out", "of", "the", "blue"]
    assert [w.estimated for w in found] == [True, True, False, False]
    assert found[0].end == found[1].start
    assert (found[1].end, found[2].start) == (6, 7)


def test_every_word_gets_something_where_there_is_enough_and_none_is_lost_where_there_is_not():
    assert [w for w, p in placed("out of the blue", "ab cd") if p] == ["out", "of", "the", "blue"]
    assert [w for w, _ in placed("out of the blue", "ab")] == ["out", "of", "the", "blue"]


@pytest.mark.parametrize("phonemes", ["", " ", "., ", "ˈ"])
def test_nothing_that_sounds_places_nothing(phonemes: str):
    assert placed("the blue", phonemes) == []


def test_the_front_end_gets_tokens_without_points_and_marks_where_the_phrase_pauses():
    words = readable_words('"Well", it is $5 at 3 p.m. (today)!', language="en")
    assert readable_text(words) == "Well, it is five dollars at three P.M today!"
    assert readable_text(readable_words("¿Qué tal? «Hola»", language="es")) == "Qué tal? Hola"


def test_a_window_ends_at_a_mark_when_both_sides_are_long_enough():
    assert windows("aaaa aaaa, bbbb bbbb. cc", shortest=5, longest=50) == ["aaaa aaaa,", "bbbb bbbb. cc"]
    assert windows("aaaa, bbbb bbbb", shortest=6, longest=50) == ["aaaa, bbbb bbbb"]
    assert windows("aaaa aaaa bbbb", shortest=2, longest=50) == ["aaaa aaaa bbbb"]


def test_no_window_is_longer_than_it_may_be_and_nothing_is_lost():
    phonemes = "aaaa bbb cccccc dd eeeeeeeeeeeeeeeeeeeeeeeeeeeee ffff, ggg"
    cut = windows(phonemes, shortest=3, longest=12)
    assert max(map(len, cut)) <= 12
    assert "".join(cut).replace(" ", "") == phonemes.replace(" ", "")


def test_estimated_times_are_in_proportion_to_what_sounds():
    assert estimated_edges("aˈb c.", 100, 400).tolist() == [100, 200, 200, 300, 300, 400, 400]
    # A mark inside the window is a pause, the last one is not.
    assert estimated_edges("a, b", 0, 500).tolist() == [0, 100, 400, 400, 500]
    assert estimated_edges(". ", 0, 500).tolist() == [0, 0, 0]
