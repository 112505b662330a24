"""Validation of phrases that are filled with values."""

import pytest

from core.phrases import checked_phrase


@pytest.mark.parametrize("phrase", ["", "One moment.", "You are {position}.", "{{braces}} and {position}"])
def test_a_phrase_with_its_fields_is_taken(phrase: str) -> None:
    assert checked_phrase(phrase, "position") == phrase


@pytest.mark.parametrize(
    "phrase",
    [
        "{place}",
        "{}",
        "{0}",
        "{position.real}",
        "{position[0]}",
        "{position:d}",
        "{position!r}",
        "{",
        "a } b",
    ],
)
def test_another_is_refused_with_the_field_that_there_is(phrase: str) -> None:
    with pytest.raises(ValueError, match=r"no other field than {position}$"):
        checked_phrase(phrase, "position")


def test_all_fields_that_there_are_are_named() -> None:
    assert checked_phrase("{a}{b}", "a", "b")
    with pytest.raises(ValueError, match=r"than {a} and {b}$"):
        checked_phrase("{c}", "a", "b")
