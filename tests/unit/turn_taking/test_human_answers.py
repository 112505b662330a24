import pytest

from parley.language import find_language
from parley.language.words import plain
from parley.turn_taking.human_answers import accepts, withdraws
from tests.processor_deadline import processor_deadline

ENGLISH = find_language("en").vocabulary


@pytest.mark.parametrize(
    "said",
    [
        "Yes, please.",
        "Yes, fetch a colleague.",
        "Yes, a colleague please.",
        "Yes, do that.",
        "Yes, I would like that.",
        "Sure, why not.",
        "Um, yes, get me a human.",
        "Oh, that would be great.",
        "Yeah, if you don't mind.",
        "Okay, let us do that.",
        "ok go head",
        "id like that",
    ],
)
def test_an_offer_is_accepted_also_in_more_words(said: str) -> None:
    assert accepts(ENGLISH.words(said), ENGLISH)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Please.",
        "No, thank you.",
        "Yes, but not now.",
        "yes but i can not now",
        "okay dont",
        "Okay, never mind.",
        "Okay, when do you open?",
        "I am looking for the ships.",
        "I do have another question.",
        "Why not? No.",
        "That is not what I asked, yes.",
    ],
)
def test_an_offer_is_not_accepted_by_other_words(said: str) -> None:
    assert not accepts(ENGLISH.words(said), ENGLISH)


@pytest.mark.parametrize(
    "said",
    [
        "Never mind.",
        "Oh, never mind then.",
        "nevermind",
        "dont bother",
        "No, I'll go on with you.",
        "I don't want to wait any longer.",
        "I do not want a human, I'll go on with you.",
        "Please cancel that.",
        "Cancel.",
    ],
)
def test_a_wait_is_given_up_also_in_more_words(said: str) -> None:
    assert withdraws(ENGLISH.words(said), ENGLISH)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "No.",
        "Okay, thank you.",
        "Okay then.",
        "I want to cancel my card.",
        "I don't want to go on with you.",
        "Please don't forget it.",
        "There is no need to hurry.",
        "How long do I have to wait?",
    ],
)
def test_a_wait_is_not_given_up_by_other_words(said: str) -> None:
    assert not withdraws(ENGLISH.words(said), ENGLISH)


def test_a_long_turn_is_read_in_linear_time() -> None:
    words = plain("yes go on with " * 50_000)
    with processor_deadline():
        accepts(words, ENGLISH), withdraws(words, ENGLISH)
