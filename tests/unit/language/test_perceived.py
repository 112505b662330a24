import pytest

from parley.language import find_language
from parley.language.perceived import NoPerceived
from tests.processor_deadline import processor_deadline

RULES = find_language("en").perceived


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("cancel this one please", "cancel the lamp please"),
        ("how do I cancel this", "how do I cancel the lamp"),
        ("What does that cost?", "What does the lamp cost?"),
        ("what do I pay for this bill?", "what do I pay for this bill, the lamp?"),
        ("how much is it", "how much is the lamp"),
        ("is there a fee here", "is there a fee at the lamp"),
        ("what is in here", "what is in the lamp"),
        ("is this the cheapest", "is the lamp the cheapest"),
        ("I want the one that I bought", "I want the one that I bought"),
        ("are there any others", "are there any others"),
        ("not this one but", "but"),
        ("how is that done", "how is that done"),
        ("what is that", "what is the lamp"),
        ("instead of this one", ""),
        ("swap that one over there", "swap the lamp"),
    ],
)
def test_what_was_pointed_at_takes_the_place_of_the_word_that_points(said: str, meant: str):
    assert RULES.name_referent(said, "the lamp", "") == meant


def test_words_before_the_gesture_count_too():
    assert RULES.name_referent("this one but", "the lamp", "I do not mean") == "but"
    assert RULES.name_referent("this cost", "the lamp", "what does") == "what does the lamp cost"
    assert RULES.name_referent("here", "the lamp", "a fee in") == "a fee in the lamp"
    assert RULES.name_referent("how much", "the lamp", "this one is fine") == "this one is fine how much"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("What is this?", "this"),
        ("how much is this lamp", "this"),
        ("this one or that one", "that one"),
        ("what is over there, please", "over there"),
        ("the lamp that I bought", None),
        ("is there a fee", None),
        ("is that right", None),
        ("this is the one that I bought", "this"),
        ("", None),
    ],
)
def test_the_last_words_that_point_are_found(said: str, words: str | None):
    span = RULES.last_pointing(said)
    assert (None if span is None else said[slice(*span)]) == words


def test_of_a_long_text_the_end_is_read():
    said = "and " * 100_000 + "what is this"
    with processor_deadline():
        span = RULES.last_pointing(said)
    assert span is not None and said[slice(*span)] == "this"


@pytest.mark.parametrize(
    "said", ["this is fine", "That's okay, thanks.", "fine", "Okay, fine, thank you.", "no problem"]
)
def test_consent_alone_approves(said: str):
    assert RULES.approves(said)


@pytest.mark.parametrize("said", ["", "this is fine print", "it is fine that you ask", "is this fine", "why"])
def test_words_with_other_content_do_not_approve(said: str):
    assert not RULES.approves(said)


@pytest.mark.parametrize(
    ("first", "second", "opposed"),
    [
        ("please cancel the gym", "no, keep it", True),
        ("we need two seats", "we don't want seats", True),
        ("let's take the early train", "rather not", True),
        ("please book the table", "no idea", False),
        ("please send the invoice", "I don't know the address", False),
        ("please book the room", "don't worry, I pay", False),
        ("we want two tickets please", "I'm not sure for which day", False),
        ("please book the table", "and a high chair", False),
        ("what does it cost", "no", False),
    ],
)
def test_two_wishes_are_compared(first: str, second: str, opposed: bool):
    assert RULES.opposes(first, second) is opposed


@pytest.mark.parametrize("unit", ["this ", "fine ", "here ", "it ", "no "])
def test_a_long_text_is_read_in_linear_time(unit: str):
    with processor_deadline():
        RULES.name_referent(unit * 100_000, "the lamp", unit * 100_000)
        RULES.last_pointing(unit * 100_000)
        RULES.approves(unit * 100_000)
        RULES.opposes(unit * 100_000, unit * 100_000)


def test_a_language_without_rules_takes_words_as_they_are():
    rules = NoPerceived()
    assert rules.name_referent("this", "the lamp", "what is") == "what is this"
    assert rules.last_pointing("what is this") is None
    assert not rules.approves("fine")
    assert not rules.opposes("cancel it", "no")
