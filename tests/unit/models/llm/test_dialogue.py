import pytest

from parley.models.llm import Message
from parley.models.llm.dialogue import Dialogue, DialogueReader, without_cut_off_mark

SENTENCES = (
    "Branches are open until five.",
    "Branches are open on Saturdays until two, and they are closed on Sundays.",
    "Call us.",
    "The number is eight hundred.",
)


def read(*turns: str) -> Dialogue:
    """Return a dialogue of alternating turns, the user first."""
    roles = ("user", "assistant")
    messages = [Message(roles[at % 2], text) for at, text in enumerate(turns)]
    return DialogueReader(SENTENCES).read([Message("system", "Branches are open until five."), *messages])


def test_sentences_are_found_again_in_what_was_said() -> None:
    dialogue = read("when", f"From the guide: {SENTENCES[0]} {SENTENCES[2]}", "and then")
    assert dialogue.last_said == (0, 2)
    assert dialogue.said == {0, 2}
    assert dialogue.started is None
    assert dialogue.words == ("and", "then")


def test_case_and_punctuation_do_not_matter() -> None:
    assert read("when", "branches are open until five the number is eight hundred", "x").last_said == (0, 3)


@pytest.mark.parametrize(
    "heard",
    [
        "From the guide: Branches are open on Satur",
        "From the guide: Branches are open on Saturdays until [interrupted]",
        "From the guide: Branches are open on\u2014",
        "From the guide: Branches are open on Saturdays ... (cut off)",
    ],
)
def test_a_reply_that_was_cut_off_has_a_started_sentence(heard: str) -> None:
    dialogue = read("when", heard, "go on")
    assert dialogue.started == 1
    assert dialogue.last_said == (1,)
    assert dialogue.said == frozenset()


def test_the_topic_stays_when_small_talk_follows() -> None:
    dialogue = read("when", SENTENCES[0], "thanks", "You are welcome.", "and sundays")
    assert dialogue.topic_said == (0,)
    assert dialogue.last_said == ()
    assert dialogue.replies == 2


def test_a_question_without_an_answer_is_remembered() -> None:
    messages = [Message("user", "what time do you"), Message("user", "open")]
    assert DialogueReader(SENTENCES).read(messages).previous_words == ("what", "time", "do", "you")
    assert read("when", SENTENCES[0], "and sundays").previous_words == ()


def test_no_one_has_spoken() -> None:
    dialogue = read()
    assert not dialogue.opened and dialogue.words == ()


@pytest.mark.parametrize("mark", ["", " [cut off]", "\u2026", "...", " --", " <interrupted>", "\u2014 [x]"])
def test_cut_off_marks_are_removed(mark: str) -> None:
    assert without_cut_off_mark(f"Branches are open{mark}") == "Branches are open"
