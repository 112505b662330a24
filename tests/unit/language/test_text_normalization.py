import random

import pytest

from parley.language.english.text_normalization import number_words, spoken_words
from parley.language.text_normalization import ascii_token, plain_words


def said(text: str) -> str:
    return " ".join(" ".join(word.spoken) for word in spoken_words(text))


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("$5", "five dollars"),
        ("$1", "one dollar"),
        ("$1,250.50", "one thousand two hundred fifty dollars fifty cents"),
        ("$0.01", "one cent"),
        ("$1.2 million", "one point two million dollars"),
        ("£20", "twenty pounds"),
        ("100%", "one hundred percent"),
        ("3.5", "three point five"),
        ("-5", "minus five"),
        ("24/7", "twenty four seven"),
        ("1/2", "a half"),
        ("5-10", "five to ten"),
        ("3:30", "three thirty"),
        ("09:05", "nine oh five"),
        ("10:00", "ten o'clock"),
        ("3pm", "three P.M."),
        ("at 3 p.m. today", "at three P.M. today"),
        ("in 2024", "in twenty twenty four"),
        ("1905", "nineteen oh five"),
        ("the 1990s", "the nineteen nineties"),
        ("account 0800", "account zero eight zero zero"),
        ("555-0100", "five five five zero one zero zero"),
        ("fees, e.g. rent", "fees for example rent"),
        ("A & B", "A and B"),
        ("and/or", "and or"),
        ("FAQ", "F.A.Q."),
        ("your PIN", "your PIN"),
        ("the U.S. office", "the U.S. office"),
        ("Mr. Smith", "mister Smith"),
        ("St. Louis", "saint Louis"),
        ("Main St. is", "Main street is"),
        ("No. 5", "number five"),
        ("No.", "No"),
        ("https://www.example.com/help", "example dot com slash help"),
        ("a.b@example.org", "a dot b at example dot org"),
        ("don't", "don't"),
        ("well-known", "well known"),
        ("**bold**", "bold"),
        ("10kg", "ten kilograms"),
    ],
)
def test_what_is_written_is_said_as_people_say_it(written, spoken):
    assert said(written) == spoken


@pytest.mark.parametrize(
    ("written", "pauses"),
    [
        ("Yes, no; so: why? Stop!", [",", ";", ":", "?", "!"]),
        ("at 3 p.m. we", ["", "", "", ""]),
        ("by 3 p.m.", ["", "", "."]),
    ],
)
def test_punctuation_becomes_a_pause_and_the_point_of_an_abbreviation_does_not(written, pauses):
    assert [word.pause for word in spoken_words(written)] == pauses


def test_what_no_one_pronounces_is_kept_with_its_neighbour():
    words = spoken_words("– Fees 🙂 – are (none) ...")
    assert [word.written for word in words] == ["– Fees 🙂 –", "are", "(none) ..."]
    assert words[0].pause == ","


def test_text_without_a_word_has_no_words():
    assert spoken_words("... – 🙂") == ()
    assert spoken_words("") == ()


def test_every_written_word_survives_whatever_the_text():
    rng = random.Random(7)
    letters = "abcXYZ019 .,;:!?'\"-–—/@#$%&*()[]_~`€£é漢🙂½\n"
    for _ in range(2_000):
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 40)))
        words = spoken_words(text)
        assert not words or " ".join(word.written for word in words) == " ".join(text.split())
        assert all(word.spoken for word in words)


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (21, "twenty one"), (110, "one hundred ten"), (1_000_001, "one million one")],
)
def test_cardinals_are_spelled_out(number, words):
    assert number_words(number) == words


@pytest.mark.parametrize("number", [-1, 10**12])
def test_a_number_without_words_is_refused(number):
    with pytest.raises(ValueError):
        number_words(number)


def test_other_languages_are_left_as_they_are():
    assert [word.spoken for word in plain_words("Müller – zahlt 5 €")] == [("Müller",), ("zahlt",), ("5",)]


def test_accents_are_folded_for_an_ascii_engine():
    assert ascii_token("naïve") == "naive"
    assert ascii_token("漢") == ""
