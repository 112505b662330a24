"""Passages are put before the question on its way to a service."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from pipecat.frames.frames import CancelFrame, EndFrame, Frame, LLMContextFrame, TextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.core.passage_notes import is_passages
from parley.core.prompt_notes import PromptNotes, write_notes
from parley.models.retrieval import Hit, Passage
from parley.processors.dialogue.engine_llm import ReadAheadFrame
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


# While the caller speaks


class Gate:
    """Documents whose searches wait until they are let through."""

    def __init__(self) -> None:
        self.searched: list[str] = []
        self.begun: dict[str, asyncio.Event] = {}
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, threading.Event] = {}

    def expect(self, words: str, *, waits: bool = False) -> None:
        self.begun[words], self._open[words] = asyncio.Event(), threading.Event()
        if not waits:
            self._open[words].set()

    def release(self, words: str) -> None:
        self._open[words].set()

    def find(self, question: str, _previous: str) -> Sequence[Hit]:
        self.searched.append(question)
        self._loop.call_soon_threadsafe(self.begun[question].set)
        assert self._open[question].wait(30)
        return [Hit(Passage(f"About {question}.", question, "the guide"), 0.8)]

    async def until_begun(self, words: str) -> None:
        async with asyncio.timeout(10):
            await self.begun[words].wait()


async def heard(passages: QuestionPassages, words: str) -> list[dict]:
    """Have the words of a turn that goes on read ahead; return what the model reads."""
    frame = ReadAheadFrame(LLMContext(messages=[{"role": "user", "content": words}]))
    await passages.on_frame(None, frame)
    return frame.context.messages


async def test_the_words_of_a_turn_that_were_searched_before_its_end_are_not_searched_again():
    gate = Gate()
    gate.expect("when do you open", waits=True)
    passages = QuestionPassages(gate.find, timeout_s=10)
    # The words are passed on at once: the search is not waited for.
    assert await heard(passages, "when do you open") == [{"role": "user", "content": "when do you open"}]
    await gate.until_begun("when do you open")
    question = asyncio.create_task(asked(passages, {"role": "user", "content": "when do you open"}))
    gate.release("when do you open")
    messages = await question
    assert "About when do you open." in messages[0]["content"]
    assert gate.searched == ["when do you open"]


async def test_final_words_that_differ_are_searched_and_do_not_wait_for_the_others():
    gate = Gate()
    gate.expect("when do you", waits=True)
    gate.expect("when do you open")
    passages = QuestionPassages(gate.find, timeout_s=10)
    try:
        await heard(passages, "when do you")
        await gate.until_begun("when do you")
        messages = await asked(passages, {"role": "user", "content": "when do you open"})
        assert "About when do you open." in messages[0]["content"]
        assert "About when do you." not in messages[0]["content"]
    finally:
        gate.release("when do you")


async def test_of_words_that_come_during_a_search_only_the_newest_are_searched():
    gate = Gate()
    gate.expect("when", waits=True)
    gate.expect("when do you open")
    passages = QuestionPassages(gate.find, timeout_s=10)
    await heard(passages, "when")
    await gate.until_begun("when")
    for words in ("when do", "when do you", "when do you open"):
        await heard(passages, words)
    gate.release("when")
    await gate.until_begun("when do you open")
    await asked(passages, {"role": "user", "content": "when do you open"})
    assert gate.searched == ["when", "when do you open"]


async def test_a_model_that_reads_ahead_gets_what_was_found_so_far_and_the_question_its_own():
    gate = Gate()
    for words in ("when do you open", "when do you open on sunday"):
        gate.expect(words)
    passages = QuestionPassages(gate.find, timeout_s=10)
    await heard(passages, "when do you open")
    await gate.until_begun("when do you open")
    # The search has ended when its result is there.
    async with asyncio.timeout(10):
        while len(read := await heard(passages, "when do you open on sunday")) == 1:
            await asyncio.sleep(0)
    assert (
        "About when do you open." in read[0]["content"] and read[1]["content"] == "when do you open on sunday"
    )
    messages = await asked(passages, {"role": "user", "content": "when do you open on sunday"})
    assert "About when do you open on sunday." in messages[0]["content"]


@pytest.mark.parametrize("end", [CancelFrame, EndFrame])
async def test_no_search_goes_on_after_the_pipeline(end: type[Frame]):
    before = asyncio.all_tasks()
    gate = Gate()
    gate.expect("when", waits=True)
    passages = QuestionPassages(gate.find, timeout_s=10)
    await heard(passages, "when")
    await gate.until_begun("when")
    await passages.on_frame(None, end())
    async with asyncio.timeout(10):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0)
    gate.release("when")


async def test_what_was_found_before_a_change_of_the_documents_is_not_used_after_it():
    changes = 0
    documents = Documents()
    passages = QuestionPassages(documents.find, generation=lambda: changes)
    await asked(passages, QUESTION)
    await asked(passages, QUESTION)
    assert len(documents.searched) == 1
    changes = 1
    documents.hits = [Hit(Passage("Branches open at ten.", "Opening hours", "the branch guide"), 0.8)]
    assert "at ten" in (await asked(passages, QUESTION))[0]["content"]
