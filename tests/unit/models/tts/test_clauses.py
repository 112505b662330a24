import random
import re

import pytest

from parley.models.tts.clauses import ClauseSettings, ClauseSplitter, split_clauses


def stream(text: str, splitter: ClauseSplitter | None = None) -> list[str]:
    """Return the clauses of a text that comes as from a language model: tokens of a few characters."""
    splitter = splitter or ClauseSplitter()
    clauses = [clause for token in re.findall(r"\s?\S{1,4}|\s", text) for clause in splitter.push(token)]
    rest = splitter.flush()
    return [*clauses, rest] if rest else clauses


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Sure, let me look that up, one moment.", "Sure, let me look that up,"),
        ("The fee is low: two dollars.", "The fee is low:"),
        # By itself the number would be read as a number.
        ("Your new code is: 4172. Keep it.", "Your new code is: 4172."),
        ("We are open — all day long.", "We are open —"),
        ("No. I can't do that.", "No."),
        ("Yes! We do.", "Yes!"),
        ('He said "wait." Then left.', 'He said "wait."'),
        ("I can't. See you.", "I can't."),
        ("We open at 9 a.m. Please call.", "We open at 9 a.m."),
        ("It costs 3. Then more.", "It costs 3."),
    ],
)
def test_the_first_clause_ends_as_soon_as_it_makes_sense(text, first):
    assert stream(text)[0] == first


@pytest.mark.parametrize(
    "text",
    [
        "The sum is $1,000.50 or 3.5 percent",
        "Ask Mr. Smith or Dr. Brown of St. Louis",
        "It is open from 5:30 until 9 p.m. on weekdays",
        "J. K. Rowling and John F. Kennedy met",
        "Costs, e.g. rent",
        "See www.example.com for more",
        "Room No. 5 is free",
        "A well-known range of 5–10 days",
        "1. Open the app",
    ],
)
def test_numbers_abbreviations_initials_and_addresses_stay_whole(text):
    assert stream(text) == [text]


def test_later_clauses_are_longer_than_the_first():
    clauses = stream("One two three, four five six, seven eight nine ten eleven twelve, thirteen.")
    assert clauses[:2] == ["One two three,", " four five six, seven eight nine ten eleven twelve,"]


def test_a_sentence_end_always_cuts():
    assert stream("One two three. Four. Five!") == ["One two three.", " Four.", " Five!"]


def test_a_whole_sentence_goes_without_waiting_for_the_next():
    splitter = ClauseSplitter()
    assert splitter.push("Your card is on its way.") == ["Your card is on its way."]
    assert splitter.push(" It takes three days at No.") == []


def test_a_first_clause_without_a_comma_is_cut_before_a_conjunction():
    text = "The account that you opened with us last year in spring is active and has no fees"
    assert stream(text)[0] == "The account that you opened with us last year in spring is active"


def test_a_clause_is_never_longer_than_its_limit():
    clauses = split_clauses("word " * 200, ClauseSettings(max_chars=60))
    assert max(map(len, clauses)) <= 60
    assert all(clause.strip().split() == ["word"] * len(clause.split()) for clause in clauses)


def test_a_text_without_a_space_is_cut_at_the_limit():
    assert [len(clause) for clause in split_clauses("x" * 100, ClauseSettings(max_chars=40))] == [40, 40, 20]


def test_a_flush_gives_the_rest_and_starts_a_new_reply():
    splitter = ClauseSplitter()
    splitter.push("One two three, four five six,")
    assert splitter.pending == " four five six,"
    assert splitter.flush() == " four five six,"
    assert splitter.flush() == ""
    assert splitter.push("One two three, ") == ["One two three,"]


def test_joined_clauses_are_the_text_however_it_arrives():
    rng = random.Random(11)
    letters = "ab cd EF 12 .,;:!?…—–-'\"()\n\t漢🙂"
    for _ in range(1_500):
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 120)))
        assert "".join(stream(text, ClauseSplitter(ClauseSettings(max_chars=50)))) == text
        assert "".join(split_clauses(text)) == text


def test_an_unknown_setting_is_refused():
    with pytest.raises(ValueError, match="Extra inputs"):
        ClauseSettings.model_validate({"first_word": 3})
