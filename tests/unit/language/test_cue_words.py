import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.language.cue_words import QuestionKind, WordCue
from parley.language.english.cue_words import (
    asked_for,
    is_statement,
    word_cue,
)


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("", WordCue.NO_WORDS),
        ("I want to send it, um,", WordCue.FILLER),
        ("i lost my card and", WordCue.HANGING),
        ("my number is four one five", WordCue.OPEN_NUMBER),
        ("my number is", WordCue.OPEN_NUMBER),
        ("my phone number is four one five five five five oh one two three", WordCue.PLAIN),
        ("the pin is one two three four", WordCue.PLAIN),
        ("the pin is one two", WordCue.OPEN_NUMBER),
        ("the pin is two for six eight", WordCue.PLAIN),
        ("are you open nine to five", WordCue.PLAIN),
        ("thank you good by", WordCue.CLOSING),
        ("no that is all by by", WordCue.CLOSING),
        ("is it due by", WordCue.TRAILING),
        ("my name is b r o k", WordCue.SPELLING),
        ("i lost its", WordCue.HANGING),
        ("my card number is 4000 1234", WordCue.OPEN_NUMBER),
        ("my card number is 4000 1234 5678 9010", WordCue.PLAIN),
        ("it was double four", WordCue.PLAIN),
        ("the code is double four", WordCue.OPEN_NUMBER),
        ("send forty two", WordCue.PLAIN),
        ("i live at twelve", WordCue.OPEN_ADDRESS),
        ("i live at 12 oak", WordCue.OPEN_ADDRESS),
        ("i live at 12 oak street", WordCue.PLAIN),
        ("my name is spelled s m", WordCue.SPELLING),
        ("what do i need for", WordCue.TRAILING),
        ("yes please", WordCue.CLOSING),
        ("thank you", WordCue.CLOSING),
        ("what are your opening hours", WordCue.PLAIN),
    ],
)
def test_the_strongest_sign_of_the_last_words(text: str, cue: WordCue):
    assert word_cue(text) is cue


@pytest.mark.parametrize(
    ("asked", "text", "cue"),
    [
        (QuestionKind.NUMBER, "four two", WordCue.OPEN_NUMBER),
        (QuestionKind.NOTHING, "four two", WordCue.PLAIN),
        (QuestionKind.ADDRESS, "seven", WordCue.OPEN_ADDRESS),
        (QuestionKind.ADDRESS, "seven mill lane", WordCue.PLAIN),
        (QuestionKind.SPELLING, "s", WordCue.SPELLING),
        (QuestionKind.NOTHING, "plan b", WordCue.PLAIN),
    ],
)
def test_what_was_asked_decides_what_is_whole(asked: QuestionKind, text: str, cue: WordCue):
    assert word_cue(text, asked) is cue


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("", QuestionKind.NOTHING),
        ("?", QuestionKind.QUESTION),
        ("The branch opens at nine.", QuestionKind.NOTHING),
        ("Your number is blocked. What can I do for you?", QuestionKind.QUESTION),
        ("What is your account number?", QuestionKind.NUMBER),
        ("Please tell me your address.", QuestionKind.ADDRESS),
        ("Could you spell your last name, please?", QuestionKind.SPELLING),
        ("Shall I close the account?", QuestionKind.CHOICE),
        ("Could you give me your address?", QuestionKind.ADDRESS),
    ],
)
def test_what_the_bot_asked_for(said: str, asked: QuestionKind):
    assert asked_for(said) is asked


@given(st.text(max_size=60), st.sampled_from(QuestionKind))
def test_any_text_has_one_cue_whatever_its_case_and_punctuation(text: str, asked: QuestionKind):
    assert word_cue(text, asked) in WordCue
    assert asked_for(text) in QuestionKind


@pytest.mark.parametrize(
    "text",
    [
        "yesterday we went down to the market",
        "and it was the same payment twice",
        "my neighbor has an old lady who lives alone",
    ],
)
def test_who_asks_for_nothing_tells_something(text: str) -> None:
    assert is_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "what are your opening hours",
        "and is it open on sunday",
        "i would like to block my card",
        "my card is lost",
        "so tell me about the fees",
        "okay then thank you very much",
        "yes of course",
        "a savings account please",
        "",
    ],
)
def test_who_asks_or_answers_does_not_tell(text: str) -> None:
    assert not is_statement(text)
