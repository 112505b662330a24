import pytest

from parley.language.english.spoken_numbers import with_digits
from tests.processor_deadline import processor_deadline


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        ("forty two", "42"),
        ("two thousand five hundred dollars", "2500 dollars"),
        ("one hundred and forty", "140"),
        ("one hundred and a half", "100 and a half"),
        ("fifteen hundred", "1500"),
        ("five point two percent", "5.2 percent"),
        ("two hundred and fifty thousand", "250000"),
        ("eight hundred five five five", "805 5 5"),
        ("one nine nine", "1 9 9"),
        ("at the point", "at the point"),
        ("three million", "3000000"),
        ("", ""),
    ],
)
def test_numbers_in_words_become_digits(words: str, digits: str) -> None:
    assert with_digits(words.split()) == digits.split()


def test_a_long_text_is_read_in_linear_time() -> None:
    with processor_deadline():
        with_digits(["hundred", "one", "thousand", "and", "point"] * 20_000)
