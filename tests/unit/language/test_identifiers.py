"""Detection of numbers that are names and read digit by digit."""

import pytest

from parley.language.english.text_normalization import spoken_words

DIGITS = "zero one two three four five six seven eight nine".split()


def said(text: str) -> str:
    """Return every token of the text, with the pauses in it."""
    tokens = [
        token + mark
        for word in spoken_words(text)
        for token, mark in zip(word.spoken, word.marks(), strict=True)
    ]
    return " ".join(tokens)


def one_by_one(groups: str) -> str:
    return ", ".join(" ".join(DIGITS[int(digit)] for digit in group) for group in groups.split())


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        # A word that announces a name, directly before it or with small words between.
        ("number 4172", "4172"),
        ("Your code is 4172", "4172"),
        ("your code is: 4172", "4172"),
        ("the PIN is 4172", "4172"),
        ("PIN: 4172", "4172"),
        ("account 4172", "4172"),
        ("account number 4172", "4172"),
        ("the card ending in 4172", "4172"),
        ("your card ends in 4172", "4172"),
        ("a card ending 4172", "4172"),
        ("ending with 4172", "4172"),
        ("the last four digits are 4172", "4172"),
        ("extension 4172", "4172"),
        ("ext. 4172", "4172"),
        ("reference 4172", "4172"),
        ("ref. 4172", "4172"),
        ("your reference number is 41728899", "4172 8899"),
        ("the order is 4172", "4172"),
        ("ticket 4172", "4172"),
        ("No. 4172", "4172"),
        ("zip code 90210", "90210"),
        ("code 1984", "1984"),
        ("the account ending in 2024", "2024"),
        ("passcode - 4172", "4172"),
        ("your code, 4172", "4172"),
        ("card 4172 is blocked", "4172"),
        ("account 4172 expires", "4172"),
        ("call me at 4172", "4172"),
        ("dial 4172 now", "4172"),
        # Telephone numbers and other long ones, by their form.
        ("555-0100", "555 0100"),
        ("call 555-1234", "555 1234"),
        ("at 555-1234", "555 1234"),
        ("800-555-0100", "800 555 0100"),
        ("1-800-555-0100", "1 800 555 0100"),
        ("(212) 736-5000", "212 736 5000"),
        ("+12125550100", "1 212 555 0100"),
        ("+44 20 7946 0018", "44 20 7946 0018"),
        ("0800", "0800"),
        ("007", "007"),
        ("90210", "90210"),
        ("5550100", "555 0100"),
        ("4111111111111111", "4111 1111 1111 1111"),
        ("4111 1111 1111 1111", "4111 1111 1111 1111"),
        ("card number 4111 1111", "4111 1111"),
        ("4172-8899-0012", "4172 8899 0012"),
        ("reference 4172-8899", "4172 8899"),
    ],
)  # fmt: skip
def test_names_are_read_one_by_one_in_groups(text: str, groups: str):
    assert one_by_one(groups) in said(text)
    assert not any(scale in said(text) for scale in ("thousand", "hundred", "twenty"))


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("in 2024", "in twenty twenty four"),
        ("an account in 1984", "an account in nineteen eighty four"),
        ("the code was changed in 2024", "the code was changed in twenty twenty four"),
        ("the contract ending in 2024", "the contract ending in twenty twenty four"),
        ("call us in 2024", "call us in twenty twenty four"),
        ("from 1990-1995", "from nineteen ninety to nineteen ninety five"),
        ("$4172", "four thousand one hundred seventy two dollars"),
        ("$12500", "twelve thousand five hundred dollars"),
        ("4172 people", "four thousand one hundred seventy two people"),
        ("4172", "four thousand one hundred seventy two"),
        ("4,172", "four thousand one hundred seventy two"),
        ("account balance is 4172", "account balance is four thousand one hundred seventy two"),
        ("an account with 4172 dollars", "an account with four thousand one hundred seventy two dollars"),
        ("account 4172 dollars", "account four thousand one hundred seventy two dollars"),
        ("the number of users is 4172", "the number of users is four thousand one hundred seventy two"),
        ("order 1500 cards", "order fifteen hundred cards"),
        ("call 1500 customers", "call fifteen hundred customers"),
        ("12500 customers", "twelve thousand five hundred customers"),
        ("10000 steps", "ten thousand steps"),
        ("about 12500", "about twelve thousand five hundred"),
        ("up to 25000", "up to twenty five thousand"),
        ("a limit of 25000", "a limit of twenty five thousand"),
        ("at least 25000", "at least twenty five thousand"),
        ("4172.50", "four thousand one hundred seventy two point five zero"),
        ("12500%", "twelve thousand five hundred percent"),
        ("-12500", "minus twelve thousand five hundred"),
        ("extension 12", "extension twelve"),
        ("number 5", "number five"),
        ("5-10", "five to ten"),
        ("800-1200 dollars", "eight hundred to twelve hundred dollars"),
        ("Here is the code. 4172 is", "Here is the code. four thousand one hundred seventy two is"),
        ("in 2024, 1500 people", "in twenty twenty four, fifteen hundred people"),
        ("in 2024 1500 people", "in twenty twenty four fifteen hundred people"),
        ("10 20 30 40", "ten twenty thirty forty"),
    ],
)  # fmt: skip
def test_years_prices_amounts_and_counts_stay_numbers(text: str, spoken: str):
    assert said(text) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("reference AB1234", "reference A.B. one two three four"),
        ("order number INV-20931", "order number I.N.V., two zero nine three one"),
        ("code X7K29Q", "code X. seven K. two nine Q."),
        ("flight BA2490", "flight B.A. two four nine zero"),
        ("IBAN DE89 3704 0044", "I.B.A.N. D.E. eight nine, three seven zero four, zero zero four four"),
        ("#4172", "number four one seven two"),
        ("#5", "number five"),
    ],
)
def test_letters_of_a_name_are_spelled(text: str, spoken: str):
    assert said(text) == spoken


def test_a_name_is_one_written_word_with_its_marks():
    words = spoken_words('Your code ("4172-8899"), please.')
    assert [word.written for word in words] == ["Your", "code", '("4172-8899"),', "please."]
    assert words[2].spoken == ("four", "one", "seven", "two", "eight", "eight", "nine", "nine")
    assert words[2].marks() == ("", "", "", ",", "", "", "", ",")
