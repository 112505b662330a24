import pytest

from parley.language.english.vocabulary import UTTERANCES
from parley.turn_taking.clarification import AskBack, AskBackTuning, Clarification, Confirmed, is_made_of

QUESTION = "what is the daily limit"


def doubtful(asking: Clarification, text: str = QUESTION, confidence: float = 0.2) -> object:
    asking.on_words(text, [confidence] * len(text.split()))
    return asking.on_turn(text)


def test_a_turn_that_was_hardly_understood_is_repeated_and_asked_about():
    outcome = doubtful(Clarification())
    assert isinstance(outcome, AskBack)
    assert outcome.text == f"I heard: {QUESTION}. Is that right?"
    assert outcome.confidence == pytest.approx(0.2)


def test_the_mean_of_the_words_counts():
    asking = Clarification(AskBackTuning(below=0.5))
    asking.on_words("one two three four", [0.9, 0.9, 0.1, 0.1])
    assert asking.on_turn("one two three four") is None
    asking.on_words("one two three four", [0.9, 0.8, 0.1, 0.1])
    assert isinstance(asking.on_turn("one two three four"), AskBack)


def test_words_of_several_utterances_are_one_turn():
    asking = Clarification(AskBackTuning(below=0.5))
    asking.on_words("what is", [0.9, 0.9])
    asking.on_words("the daily limit", [0.1, 0.1, 0.1])
    assert isinstance(asking.on_turn(QUESTION), AskBack)


def test_a_turn_is_asked_back_once_in_a_row():
    asking = Clarification()
    assert isinstance(doubtful(asking), AskBack)
    assert asking.is_open
    assert doubtful(asking, "no the daily limit of my card") is None
    assert not asking.is_open
    assert isinstance(doubtful(asking), AskBack)


@pytest.mark.parametrize("answer", ["yes", "Yes.", "yes that's right", "yeah, correct", "uh-huh"])
def test_a_yes_confirms_the_turn_before(answer: str):
    asking = Clarification()
    doubtful(asking)
    assert asking.on_turn(answer) == Confirmed()


@pytest.mark.parametrize("answer", ["no", "no the weekly limit", "yes but for cash"])
def test_any_other_answer_goes_to_the_model(answer: str):
    asking = Clarification()
    doubtful(asking)
    assert asking.on_turn(answer) is None


def test_a_yes_to_anything_else_confirms_nothing():
    assert Clarification().on_turn("yes") is None


def test_unknown_confidence_is_never_asked_back():
    asking = Clarification()
    asking.on_words(QUESTION, None)
    assert asking.on_turn(QUESTION) is None
    asking.on_words("what is", [0.1, 0.1])
    asking.on_words("the daily limit", None)
    assert asking.on_turn(QUESTION) is None
    asking.on_words(QUESTION, [0.1, 0.1])
    assert asking.on_turn(QUESTION) is None


def test_typed_text_is_never_asked_back():
    asking = Clarification()
    asking.on_words("them", [0.1])
    assert asking.on_turn(QUESTION) is None


def test_words_that_were_not_meant_do_not_count():
    asking = Clarification()
    asking.on_words("them them", [0.1, 0.1])
    asking.forget()
    asking.on_words(QUESTION, [0.9] * 5)
    assert asking.on_turn(QUESTION) is None


def test_a_short_answer_to_a_question_is_not_asked_back_and_a_long_one_is():
    asking = Clarification()
    asking.on_bot_said("Which card do you mean?")
    assert doubtful(asking, "the blue one please") is None
    assert isinstance(doubtful(asking, "i would like to know about the other one"), AskBack)
    asking.on_turn("yes")
    asking.on_bot_said("It is ten.")
    assert isinstance(doubtful(asking, "the blue one please"), AskBack)


def test_too_few_words_are_not_repeated_and_too_many_are_asked_for_again():
    assert doubtful(Clarification(), "the limit") is None
    settings = AskBackTuning(most_words=5)
    outcome = doubtful(Clarification(settings), "one two three four five six")
    assert isinstance(outcome, AskBack) and outcome.text == settings.again


def test_a_yes_to_what_was_not_repeated_confirms_nothing():
    asking = Clarification(AskBackTuning(most_words=5))
    doubtful(asking, "one two three four five six")
    assert asking.on_turn("yes") is None


def test_a_turn_of_which_nothing_was_understood_is_asked_for_again_each_time():
    asking = Clarification(AskBackTuning(below=0.6, lost_below=0.4))
    for _ in range(3):
        outcome = doubtful(asking, "mode of the granny shun", 0.3)
        assert isinstance(outcome, AskBack) and outcome.text == AskBackTuning().again
    assert doubtful(asking, "yes that is right", 0.9) is None


def test_what_is_lost_is_asked_for_again_after_a_question_that_repeats_words():
    asking = Clarification(AskBackTuning(below=0.6, lost_below=0.4))
    assert isinstance(doubtful(asking, QUESTION, 0.5), AskBack)
    assert isinstance(doubtful(asking, "mode of the granny shun", 0.3), AskBack)
    assert doubtful(asking, QUESTION, 0.5) is None


def test_a_text_is_made_of_phrases_only_as_a_whole():
    assert is_made_of(["yes", "that's", "right"], UTTERANCES.affirmative)
    assert not is_made_of([], UTTERANCES.affirmative)
    assert not is_made_of(["yes", "the"], UTTERANCES.affirmative)


@pytest.mark.parametrize("confidence", [0.05, 0.2])
def test_a_farewell_ends_the_call_and_is_not_asked_about(confidence: float):
    assert doubtful(Clarification(), "okay thank you goodbye", confidence) is None
