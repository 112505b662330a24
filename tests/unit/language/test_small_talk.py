import pytest

from parley.language.english.small_talk import (
    ALL_PHRASES,
    INTENTS,
    PHRASES,
    exact_intent,
    is_noise,
    phrase_intent,
    question_words,
    spoken_words,
)


def test_words_lose_case_and_punctuation_but_not_apostrophes() -> None:
    assert spoken_words("Don\u2019t stop, Parley! 24 hours?") == ["don't", "stop", "parley", "24", "hours"]


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("hello can you tell me what time do you open please", "what time do you open"),
        ("um okay so thanks and what about sundays", "and what about sundays"),
        ("no i meant the savings account", "the savings account"),
        ("i would like to know uh what a wire costs", "what a wire costs"),
        ("um", "um"),
        ("hello", "hello"),
    ],
)
def test_politeness_around_a_question_is_removed(said: str, question: str) -> None:
    assert " ".join(question_words(said.split())) == question


@pytest.mark.parametrize("said", ["Thank you!", "okay thank you", "um thanks"])
def test_thanks_are_thanks(said: str) -> None:
    intent = exact_intent(spoken_words(said))
    assert intent is not None and intent.name == "thanks"


def test_a_question_is_no_small_talk() -> None:
    assert exact_intent(spoken_words("hello how much is a wire")) is None


@pytest.mark.parametrize("said", ["", "um", "the", "uh a", "e"])
def test_hesitation_is_noise(said: str) -> None:
    assert is_noise(said.split())


def test_every_phrase_is_already_in_spoken_form_and_finds_its_intent() -> None:
    for phrase in ALL_PHRASES:
        assert " ".join(spoken_words(phrase)) == phrase
        assert exact_intent(phrase.split()) is not None
    for number, phrase in enumerate(PHRASES):
        assert phrase in phrase_intent(number).phrases


def test_answers_only_name_what_is_filled_in() -> None:
    for intent in INTENTS:
        for answer in intent.answers:
            assert "{" not in answer.format(name="Parley", topics="fees")
