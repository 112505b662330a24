"""References become pictures on the way to a service, and remarks where there is no picture."""

import asyncio

import pytest
from pipecat.frames.frames import LLMContextFrame, TextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.core.errors import StoreUnavailableError
from parley.core.pictures import UNREADABLE, Picture, picture_key, reference
from parley.processors.dialogue.pictures import QuestionPictures

RED = Picture(picture_key(b"red"), "image/jpeg", 4, 3, "AAAA")
WORDS = {"type": "text", "text": "What is this?"}
SHOWN = {"role": "user", "content": [reference(RED.key), WORDS]}


async def asked(pictures: QuestionPictures, *messages: dict) -> list[dict]:
    context = LLMContext(messages=list(messages))
    frame = LLMContextFrame(context)
    await pictures.on_frame(None, frame)
    assert context.messages == list(messages), "the conversation's own context is not changed"
    return frame.context.messages


async def found(key: str) -> Picture | None:
    return RED if key == RED.key else None


async def unavailable(_key: str) -> Picture | None:
    raise StoreUnavailableError("the database does not answer")


async def hanging(_key: str) -> Picture | None:
    await asyncio.Event().wait()
    return None


async def test_a_reference_becomes_the_picture_in_its_place():
    foreign = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    after = {"role": "assistant", "content": "A square."}
    messages = await asked(QuestionPictures(found), SHOWN, after, {"role": "user", "content": [foreign]})
    url = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}}
    assert messages[0] == {"role": "user", "content": [url, WORDS]}
    assert messages[1:] == [after, {"role": "user", "content": [foreign]}]


@pytest.mark.parametrize("read", [unavailable, hanging])
async def test_a_picture_that_cannot_be_read_does_not_keep_the_question(read):
    messages = await asked(QuestionPictures(read, timeout_s=0.05), SHOWN)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": UNREADABLE}, WORDS]}]


async def test_other_frames_and_questions_pass_unchanged():
    text = TextFrame("hello")
    await QuestionPictures(unavailable).on_frame(None, text)
    assert await asked(QuestionPictures(unavailable), {"role": "user", "content": "Hello."}) == [
        {"role": "user", "content": "Hello."}
    ]
