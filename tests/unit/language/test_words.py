"""Words of a text, and the phrases of a vocabulary."""

from dataclasses import fields

import pytest

from parley.language.english.vocabulary import UTTERANCES
from parley.language.words import asks, plain


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
