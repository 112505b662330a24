"""Numbers that are read out digit by digit, in both directions."""

import pytest

from parley.language.english.spoken_digits import digit_groups, spoken_digits
from parley.language.english.text_normalization import spoken_words


@pytest.mark.parametrize(
    ("digits", "groups"),
    [
        ("4172", ["4172"]),
        ("90210", ["90210"]),
        ("417288", ["417", "288"]),
        ("5550100", ["555", "0100"]),
        ("41728899", ["4172", "8899"]),
        ("417288991", ["417", "288", "991"]),
        ("8005550100", ["800", "555", "0100"]),
        ("18005550100", ["1", "800", "555", "0100"]),
        ("417288991234", ["4172", "8899", "1234"]),
        ("4111111111111111", ["4111", "1111", "1111", "1111"]),
        ("41111111111111112", ["4111", "1111", "1111", "1111", "2"]),
    ],
)
def test_long_numbers_are_divided_as_people_dictate_them(digits: str, groups: list[str]):
    assert list(digit_groups(digits)) == groups


@pytest.mark.parametrize("length", range(4, 25))
def test_what_is_read_out_is_understood_again(length: int):
    digits = ("9071526384" * 3)[:length]
    [_, word] = spoken_words(f"number {digits}")
    assert spoken_digits(word.spoken) == (digits, length)


@pytest.mark.parametrize(
    ("heard", "digits"),
    [
        ("two for six eight", "2468"),
        ("one to three four", "1234"),
        ("for one double seven", "4177"),
        ("for one two three", "4123"),
        ("one ate nine for two", "18942"),
    ],
)
def test_a_word_that_sounds_like_a_digit_is_one_among_digits(heard: str, digits: str):
    assert spoken_digits(heard.split()) == (digits, len(heard.split()))


@pytest.mark.parametrize(
    ("heard", "digits"),
    [
        ("nine to five", "9"),
        ("one for two", "1"),
        ("for two", ""),
        ("one two three for you", "123"),
        ("two to three days", "2"),
        ("won", ""),
        ("to one two three four", ""),
    ],
)
def test_a_range_or_a_phrase_is_read_no_further(heard: str, digits: str):
    assert spoken_digits(heard.split())[0] == digits
