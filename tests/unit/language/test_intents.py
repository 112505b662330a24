"""Detection of farewells and of requests for a person."""

import pytest

from parley.language.english.intents import caller_intent, ends_in_farewell, is_farewell, requests_human
from parley.language.intents import CallerIntent
from tests.processor_deadline import processor_deadline


@pytest.mark.parametrize(
    "text",
    [
        "Goodbye.",
        "bye bye",
        "okay thank you goodbye",
        "Thanks a lot, that's all. Bye!",
        "no that is everything thank you very much have a nice day",
        "well, good bye then",
        "thank you good by",
        "no that's all thank you by",
        "thank you very much by by",
        "thanks by",
        "that's all by",
        "by bye",
        "see ya",
        "good-bye then",
        "see you later",
        "Thank you for your help, goodbye.",
    ],
)
def test_a_turn_that_is_a_goodbye_is_one(text: str):
    assert is_farewell(text)


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
        "no by",
        "is it good by friday",
        "thank you by the way",
        "who said thank you by mail",
        "good buy",
    ],
)
def test_a_turn_that_says_more_or_less_is_none(text: str):
    assert not is_farewell(text)


def test_a_misheard_goodbye_ends_a_short_turn():
    assert ends_in_farewell("sam you good by")
    assert not ends_in_farewell("is that card a good buy")


@pytest.mark.parametrize(
    "text",
    ["the letter says thank you by", "is that card a good by", "how do i say goodbye", "was it a good night"],
)
def test_a_farewell_that_is_spoken_about_is_none(text: str):
    assert not ends_in_farewell(text)


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
        "Please fetch a colleague.",
        "I'd like a colleague, please.",
        "I need an agent",
        "I'd like an agent please",
        "No, I want to speak to a person",
        "no please an operator",
        "is there a real person there",
        "is there some one i can't talk to",
        "i want the real person",
        "i wanna talk to a rep resentative",
        "id like to speak to any body",
        "put me through to customers service",
        "the human please",
        "representative",
    ],
)
def test_who_requests_human_is_understood(text: str):
    assert requests_human(text)


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
        "the agent",
        "the operator please",
        "my colleague",
        "a colleague",
        "somebody",
        "yes somebody else",
        "customer service",
        "I want to transfer money to an account",
    ],
)
def test_other_questions_are_answered(text: str):
    assert not requests_human(text)


@pytest.mark.parametrize("text", ["thank you " * 30_000, "bye " * 30_000 + "x", "ok " * 30_000 + "person x"])
def test_a_long_turn_is_read_in_linear_time(text: str):
    with processor_deadline():
        is_farewell(text), requests_human(text)


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("repeat that", CallerIntent.REPEAT),
        ("sorry can you repeat that", CallerIntent.REPEAT),
        ("could you repeat that please", CallerIntent.REPEAT),
        ("what did you say", CallerIntent.REPEAT),
        ("pardon", CallerIntent.REPEAT),
        ("Say it again, please.", CallerIntent.REPEAT),
        ("tell me more", CallerIntent.MORE),
        ("okay go on", CallerIntent.MORE),
        ("what else", CallerIntent.MORE),
        ("is there any thing else", CallerIntent.MORE),
        ("ok go head please", CallerIntent.MORE),
        ("i didnt hear that", CallerIntent.REPEAT),
        ("stop stop stop", CallerIntent.STOP),
        ("but ok stop", CallerIntent.STOP),
        ("enough enough", CallerIntent.STOP),
        ("thats enough", CallerIntent.STOP),
        ("ok hang on the second", CallerIntent.MOMENT),
        ("hold on hold on", CallerIntent.MOMENT),
        ("lemme check", CallerIntent.MOMENT),
        ("gimme a minute please", CallerIntent.MOMENT),
        ("that was every thing thanks", CallerIntent.FAREWELL),
        ("tell me more about it please", CallerIntent.MORE),
        ("Stop talking right now!", CallerIntent.STOP),
        ("could you please be quiet", CallerIntent.STOP),
        ("cancel", CallerIntent.STOP),
        ("hold on a second please", CallerIntent.MOMENT),
        ("just a moment", CallerIntent.MOMENT),
        ("hang up", CallerIntent.FAREWELL),
        ("please end the call", CallerIntent.FAREWELL),
        ("that's all, have a nice day", CallerIntent.FAREWELL),
        ("is there anybody I could talk to", CallerIntent.HUMAN),
        ("I'd really rather speak to a real person", CallerIntent.HUMAN),
        ("put me through", CallerIntent.HUMAN),
        ("can you put me through to some one please", CallerIntent.HUMAN),
    ],
)
def test_a_request_is_recognised(text: str, intent: CallerIntent):
    assert caller_intent(text) is intent


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what is the fee",
        "tell me more about fees",
        "how do i repeat a payment",
        "how do i hang up",
        "how can i stop a direct debit",
        "can i cancel a transfer",
        "how long do i have to wait",
        "is that a good buy",
        "i was told to hold the card",
        "is the second card free",
        "how long do i hold on to the receipt",
        "stop it from being charged",
        "but ok",
        "when does it have to be paid by",
        "see that again",
        "do you employ a person who speaks to animals",
    ],
)
def test_a_question_is_no_request(text: str):
    assert caller_intent(text) is None
