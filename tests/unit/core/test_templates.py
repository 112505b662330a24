"""Validation of phrases that are filled with values."""

import pytest

from parley.core.templates import validate_template


@pytest.mark.parametrize("phrase", ["", "One moment.", "You are {position}.", "{{braces}} and {position}"])
def test_a_phrase_with_its_fields_is_taken(phrase: str) -> None:
    assert validate_template(phrase, "position") == phrase


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
    with pytest.raises(ValueError, match=r"without fields other than {position}$"):
        validate_template(phrase, "position")


def test_all_fields_that_there_are_are_named() -> None:
    assert validate_template("{a}{b}", "a", "b")
    with pytest.raises(ValueError, match=r"than {a} and {b}$"):
        validate_template("{c}", "a", "b")
