"""Passages are put before the question on its way to a service."""

import threading
from collections.abc import Sequence

import pytest
from pipecat.frames.frames import LLMContextFrame, TextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.core.passage_notes import is_passages
from parley.core.prompt_notes import PromptNotes, write_notes
from parley.models.retrieval import Hit, Passage
from parley.processors.dialogue.passages import MOST_CHARS, QuestionPassages

HIT = Hit(Passage("Branches open at nine.", "Opening hours", "the branch guide"), 0.8)
QUESTION = {"role": "user", "content": "When do you open?"}


class Documents:
    """Documents that answer every question with the same passages, and know what was searched."""

    def __init__(self, hits: Sequence[Hit] = (HIT,)) -> None:
        self.hits = hits
        self.searched: list[tuple[str, str]] = []

    def find(self, question: str, previous: str) -> Sequence[Hit]:
        self.searched.append((question, previous))
        return self.hits


async def asked(passages: QuestionPassages, *messages: dict) -> list[dict]:
    context = LLMContext(messages=list(messages))
    frame = LLMContextFrame(context)
    await passages.on_frame(None, frame)
    assert context.messages == list(messages), "the conversation's own context is not changed"
    return frame.context.messages


async def test_the_passages_precede_the_question_and_nothing_before_them_moves():
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Good morning."},
    ]
    documents = Documents()
    messages = await asked(QuestionPassages(documents.find), *history, QUESTION)
    assert messages[:3] == history and messages[4] == QUESTION
    assert messages[3]["role"] == "user" and is_passages(messages[3]["content"])
    assert "the branch guide, Opening hours:\nBranches open at nine." in messages[3]["content"]
    assert documents.searched == [("When do you open?", "Hello.")]


async def test_the_request_after_a_tools_result_has_the_same_passages_without_another_search():
    documents = Documents()
    passages = QuestionPassages(documents.find)
    first = await asked(passages, QUESTION)
    call = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "now", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "1", "content": "noon"}
    assert await asked(passages, QUESTION, call, result) == [*first, call, result]
    assert len(documents.searched) == 1


async def test_notes_at_the_front_of_the_conversation_are_not_searched():
    notes = write_notes(PromptNotes(opened=True)) + "\n\n"
    documents = Documents()
    await asked(QuestionPassages(documents.find), {"role": "user", "content": notes + "Where are you?"})
    learned = write_notes(PromptNotes(facts={"name": "Ada"}))
    merged = {"role": "user", "content": f"My name is Ada.\n\n{learned}\n\nWho are you?"}
    await asked(QuestionPassages(documents.find), merged)
    assert documents.searched == [("Where are you?", ""), ("My name is Ada.\n\nWho are you?", "")]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "developer", "content": "You speak first."}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
    ],
    ids=["empty", "instruction", "picture"],
)
async def test_a_request_without_words_of_the_caller_is_not_searched(messages: list[dict]):
    documents = Documents()
    assert await asked(QuestionPassages(documents.find), *messages) == messages
    assert documents.searched == []


async def test_a_question_to_which_nothing_is_found_stays_as_it_is():
    assert await asked(QuestionPassages(Documents([]).find), QUESTION) == [QUESTION]


async def test_long_passages_are_cut():
    long = Hit(Passage("word " * 2_000, "Terms", "the terms"), 0.9)
    messages = await asked(QuestionPassages(Documents([long, long, HIT]).find), QUESTION)
    assert len(messages[0]["content"]) < MOST_CHARS + 500
    assert "(2)" not in messages[0]["content"]


async def test_a_question_does_not_wait_for_a_search_that_hangs():
    released = threading.Event()

    def hangs(_question: str, _previous: str) -> list[Hit]:
        released.wait(30)
        return [HIT]

    try:
        assert await asked(QuestionPassages(hangs, timeout_s=0.05), QUESTION) == [QUESTION]
    finally:
        released.set()


async def test_a_question_is_asked_although_its_search_fails():
    def fails(_question: str, _previous: str) -> list[Hit]:
        raise ValueError("broken index")

    assert await asked(QuestionPassages(fails), QUESTION) == [QUESTION]


async def test_other_frames_pass():
    documents = Documents()
    await QuestionPassages(documents.find).on_frame(None, TextFrame("hello"))
    assert documents.searched == []
