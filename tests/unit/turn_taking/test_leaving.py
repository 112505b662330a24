"""Who takes leave, and who asks for a person."""

import time

import pytest

from turn_taking.leaving import asks_for_a_person, says_goodbye


@pytest.mark.parametrize(
    "text",
    [
        "Goodbye.",
        "bye bye",
        "okay thank you goodbye",
        "Thanks a lot, that's all. Bye!",
        "no that is everything thank you very much have a nice day",
        "well, good bye then",
        "see you later",
        "Thank you for your help, goodbye.",
    ],
)
def test_a_turn_that_is_a_goodbye_is_one(text: str):
    assert says_goodbye(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "thank you",
        "no",
        "that's all",
        "how do I say goodbye to my account",
        "goodbye what do you mean",
        "by",
    ],
)
def test_a_turn_that_says_more_or_less_is_none(text: str):
    assert not says_goodbye(text)


@pytest.mark.parametrize(
    "text",
    [
        "I want to speak to a person",
        "Can I talk to somebody, please?",
        "could you transfer me to an agent",
        "please connect me with a human being",
        "operator please",
        "a real person",
        "Let me speak with your manager.",
        "put me through to customer service",
        "i wanted to speak to a person",
        "I want a human",
        "I need an agent",
        "I'd like an agent please",
        "No, I want to speak to a person",
        "no please an operator",
        "is there a real person there",
        "representative",
    ],
)
def test_who_asks_for_a_person_is_understood(text: str):
    assert asks_for_a_person(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what does a person pay",
        "I spoke to a person yesterday",
        "can you transfer money to another person",
        "how many agents do you have",
        "No, no agent.",
        "no operator please",
        "no human",
        # Answers to a question of the bot.
        "the manager",
        "my colleague",
        "somebody",
        "yes somebody else",
        "customer service",
        "I want to transfer money to an account",
    ],
)
def test_other_questions_are_answered(text: str):
    assert not asks_for_a_person(text)


@pytest.mark.parametrize("text", ["thank you " * 3_000, "bye " * 3_000 + "x", "ok " * 3_000 + "person x"])
def test_a_long_turn_costs_nothing(text: str):
    began_s = time.monotonic()
    says_goodbye(text), asks_for_a_person(text)
    assert time.monotonic() - began_s < 0.5
