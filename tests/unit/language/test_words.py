"""Words of a text, and the phrases of a vocabulary."""

from dataclasses import fields

import pytest

from parley.language.english.vocabulary import UTTERANCES
from parley.language.words import Spellings, asks, plain


def test_words_are_read_without_case_punctuation_and_hyphens():
    assert plain(' "Uh-huh," that\u2019s it! ') == ["uh", "huh", "that's", "it"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Do you want that?", True), ('He asked "why?"', True), ("Why? Because.", False), ("", False)],
)
def test_a_question_is_open_when_the_last_sentence_asks(text: str, expected: bool):
    assert asks(text) is expected


def test_no_phrase_of_the_vocabulary_is_written_in_a_way_that_is_never_found():
    for field in fields(UTTERANCES):
        for phrase in getattr(UTTERANCES, field.name):
            assert " ".join(plain(phrase)) == phrase


def test_each_phrase_of_the_vocabulary_is_found_in_every_spelling():
    for field in fields(UTTERANCES):
        if field.name == "spellings":
            continue
        phrases = getattr(UTTERANCES, field.name)
        for phrase in phrases:
            assert " ".join(UTTERANCES.words(phrase)) in phrases, phrase


def test_the_longest_spelling_counts_and_no_spelling_is_spelled_again():
    spellings = Spellings({"a": "x", "a b": "a y", "c": "d e"})
    assert list(spellings.spelled(["a", "b", "a", "c"])) == [(["a", "y"], 2), (["x"], 1), (["d", "e"], 1)]
    for phrase in UTTERANCES.spellings:
        spelled = UTTERANCES.words(phrase)
        assert UTTERANCES.spellings.respelled(spelled) == spelled


def test_words_without_other_spellings_stay():
    assert UTTERANCES.words("Is that a good buy, by the way?") == "is that a good buy by the way".split()
    assert Spellings().respelled(["ok"]) == ["ok"]
