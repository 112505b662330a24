"""Contract of all embedded language models, the fake included."""

import asyncio
from collections.abc import Callable

import pytest

from parley.core.errors import EngineError
from parley.models.llm import LLM, LanguageModel, Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from tests.fakes.embedder import WordCountEmbedder
from tests.fakes.scripted_llm import HANG, ScriptedLanguageModel

TEXT = ("From the guide: ", "Branches are open ", "until five.")


def document_llm_that_fails() -> LanguageModel:
    def fail(texts: list[str]) -> None:
        if texts == ["how do i lose a card"]:
            raise EngineError("the embedder failed", engine="documents")

    return DocumentLlm(DocumentLlmSettings(cache_folder=None), embedder=WordCountEmbedder(fail))


MODELS: dict[str, Callable[[], LanguageModel]] = {
    "documents": DocumentLlm,
    "scripted": lambda: ScriptedLanguageModel(TEXT),
    "scripted, slow": lambda: ScriptedLanguageModel((0.001, TEXT[0], 0.001, *TEXT[1:])),
}
FAILING: dict[str, Callable[[], LanguageModel]] = {
    "documents": document_llm_that_fails,
    "scripted": lambda: ScriptedLanguageModel((EngineError("down", engine="scripted"),)),
    "scripted, in the middle": lambda: ScriptedLanguageModel(
        (TEXT[0], EngineError("down", engine="scripted"))
    ),
}
QUESTION = Message("user", "how do i lose a card")
DIALOGUES = {
    "one question": [QUESTION],
    "system prompt first": [Message("system", "Be brief."), QUESTION],
    "nobody has spoken": [Message("system", "Be brief.")],
    "nothing at all": [],
    "empty question": [Message("user", "")],
    "two questions in a row": [Message("user", "what time do you"), Message("user", "open on saturday")],
    "answer cut off": [
        QUESTION,
        Message("assistant", "From the Northwind card guide: Call the card hot [interrupted]"),
        Message("user", "and at night"),
    ],
    "the agent spoke last": [QUESTION, Message("assistant", "Call the hotline.")],
    "long dialogue": [QUESTION, Message("assistant", "Call the hotline.")] * 200 + [QUESTION],
    "very long question": [Message("user", "card " * 5_000)],
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return MODELS[request.param]()


async def answer(model: LanguageModel, messages: list[Message]) -> list[str]:
    async with asyncio.timeout(10):
        return [piece async for piece in model.reply(messages)]


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(LLM.names()) <= MODELS.keys()


@pytest.mark.parametrize("dialogue", list(DIALOGUES))
async def test_any_dialogue_is_answered_in_pieces_that_can_be_spoken(
    model: LanguageModel, dialogue: str
) -> None:
    pieces = await answer(model, DIALOGUES[dialogue])
    assert pieces and all(pieces)
    assert any(letter.isalpha() for letter in "".join(pieces))


async def test_pieces_join_to_a_text_without_glued_words(model: LanguageModel) -> None:
    text = "".join(await answer(model, [QUESTION]))
    assert "  " not in text
    assert not any(mark + letter in text for mark in ".!?:" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


async def test_the_same_dialogue_at_once_in_many_calls_gives_the_same_answer(model: LanguageModel) -> None:
    answers = await asyncio.gather(*(answer(model, [QUESTION]) for _ in range(8)))
    assert all(pieces == answers[0] for pieces in answers)


async def test_messages_are_left_as_they_were(model: LanguageModel) -> None:
    messages = [Message("system", "Be brief."), QUESTION]
    before = list(messages)
    await answer(model, messages)
    assert messages == before


async def test_leaving_in_the_middle_does_no_harm(model: LanguageModel) -> None:
    stream = model.reply([QUESTION])
    async for _ in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined]
    assert await answer(model, [QUESTION])


async def test_a_cancelled_answer_passes_the_cancellation_on(model: LanguageModel) -> None:
    begun = asyncio.Event()

    async def listen() -> None:
        async for _ in model.reply([QUESTION]):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(listen())
    async with asyncio.timeout(10):
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await answer(model, [QUESTION])


@pytest.mark.parametrize("name", list(FAILING))
async def test_a_failure_is_an_engine_error(name: str) -> None:
    with pytest.raises(EngineError):
        await answer(FAILING[name](), [QUESTION])


async def test_a_stalled_fake_stalls_until_cancelled() -> None:
    model = ScriptedLanguageModel((TEXT[0], HANG))
    task = asyncio.create_task(answer(model, [QUESTION]))
    while not model.asked:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.closed == 1
