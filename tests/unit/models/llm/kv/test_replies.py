"""A tiny causal model as the language model of a conversation, in a thread."""

import asyncio
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'local-llm'")
pytest.importorskip("transformers", reason="needs the extra 'local-llm'")

# ruff: noqa: E402
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.configs.deployment import Choice, Deployment, Thinking
from parley.core.errors import ConfigError, EngineError
from parley.evals.tiny_qwen3 import install_tiny_qwen3
from parley.models.llm import Message
from parley.models.llm.kv.causal import CausalLm, CausalSettings
from parley.models.llm.kv.replies import CausalReplies
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.processors.dialogue.engine_llm import EngineLlmService
from parley.runtime.engine_thread import EngineThread

HELLO = Message("user", "Hello?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_qwen3(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture
def replies(folder: Path) -> CausalReplies:
    settings = CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=40, temperature=1, seed=5)
    return CausalReplies(CausalLm(settings), "s", thread=EngineThread("causal"))


async def test_the_next_turn_reads_what_is_new(replies: CausalReplies) -> None:
    first = "".join([piece async for piece in replies.reply([HELLO])])
    assert first and replies.prefilled is not None and replies.prefilled.cached_tokens == 0
    dialogue = [HELLO, Message("assistant", first), Message("user", "And now?")]
    assert [piece async for piece in replies.reply(dialogue)]
    assert not replies.prefilled.refused and replies.prefilled.cached_tokens > 60


async def test_a_question_that_was_read_before_is_answered_as_if_it_had_not_been(folder: Path) -> None:
    settings = CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=40)
    cold = CausalReplies(CausalLm(settings), "s", thread=EngineThread("causal"))
    warm = CausalReplies(CausalLm(settings), "s", thread=EngineThread("causal"))
    expected = [piece async for piece in cold.reply([HELLO])]
    assert cold.prefilled is not None
    read = await warm.prefill([HELLO])
    assert (read.cached_tokens, read.input_tokens) == (0, cold.prefilled.input_tokens)
    assert [piece async for piece in warm.reply([HELLO])] == expected
    assert warm.prefilled is not None and not warm.prefilled.refused
    assert (warm.prefilled.cached_tokens, warm.prefilled.input_tokens) == (read.input_tokens, 0)
    assert warm.answered is not None and warm.answered.text == "".join(expected)
    # Another question than the one that was read: only the common part before it counts.
    other = await warm.prefill([Message("user", "Goodbye!")])
    assert other.cached_tokens == len("Suser\n")
    assert other.input_tokens > 0


async def test_a_question_that_does_not_fit_is_refused_and_the_next_one_is_read(folder: Path) -> None:
    settings = CausalSettings(model=folder, device="cpu", threads=1, context_tokens=80)
    replies = CausalReplies(CausalLm(settings), "s", thread=EngineThread("causal"))
    with pytest.raises(EngineError, match="does not fit"):
        await replies.prefill([Message("user", "Hello? " * 40)])
    assert (await replies.prefill([HELLO])).input_tokens


async def test_who_interrupts_goes_on_from_what_was_heard(replies: CausalReplies) -> None:
    heard = ""
    async with aclosing(replies.reply([HELLO])) as pieces:
        async for piece in pieces:
            heard += piece
            if len(heard) > 5:
                break
    dialogue = [HELLO, Message("assistant", f"{heard} [interrupted]"), Message("user", "No, wait.")]
    assert [piece async for piece in replies.reply(dialogue)]
    assert replies.prefilled is not None
    assert not replies.prefilled.refused and replies.prefilled.cached_tokens > 30


async def test_two_conversations_are_answered_one_after_the_other(folder: Path) -> None:
    settings = CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=8)
    model, thread = CausalLm(settings), EngineThread("causal")
    talks = [CausalReplies(model, name, thread=thread) for name in ("one", "other")]

    async def answer(talk: CausalReplies) -> str:
        return "".join([piece async for piece in talk.reply([HELLO])])

    one, other = await asyncio.gather(*map(answer, talks))
    # Greedy sampling, and the same weights.
    assert one == other
    assert all(talk.prefilled is not None and talk.prefilled.cached_tokens == 0 for talk in talks)


async def test_no_one_has_asked_anything(replies: CausalReplies) -> None:
    assert [piece async for piece in replies.reply([Message("system", "Be kind.")])] == []


def deployment(**lm: Any) -> Deployment:
    return Deployment(thinking=Thinking(llm=Choice(name="transformers", settings={"lm": lm})))


async def test_a_deployment_answers_with_it(folder: Path) -> None:
    chosen = deployment(model=str(folder), device="cpu", threads=1, answer_tokens=8)
    answering = await LlmRuntime.load(chosen, plan_answering(chosen))
    try:
        [one], [other] = await answering.build(), await answering.build()
        assert isinstance(one, EngineLlmService) and isinstance(other, EngineLlmService)
        assert one._engine is not other._engine
        context = LLMContext(messages=[{"role": "user", "content": "Hello?"}])
        assert await one.run_inference(context)
    finally:
        await answering.close()


@pytest.mark.parametrize(
    ("lm", "message"),
    [
        ({}, "lm.model: Field required"),
        ({"model": "/nowhere"}, "/nowhere/config.json, which does not exist"),
        ({"model": "/nowhere", "colour": "red"}, "lm.colour: Extra inputs"),
    ],
)
def test_a_wrong_setting_is_said_before_the_server_is_ready(lm: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_answering(deployment(**lm))


async def test_words_are_read_while_no_one_has_a_question(folder: Path) -> None:
    settings = CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=40, temperature=1, seed=5)
    model, thread = CausalLm(settings), EngineThread("causal")
    mine, other = (CausalReplies(model, name, thread=thread) for name in ("mine", "other"))
    assert mine.reads_ahead
    for words in ("What", "What does", "What does it cost?"):
        await mine.read_ahead([Message("user", words)])
    assert [piece async for piece in mine.reply([Message("user", "What does it cost?")])]
    assert mine.prefilled is not None and mine.prefilled.input_tokens == 0

    # While another conversation is answered, nothing is read.
    async with aclosing(other.reply([HELLO])) as pieces:
        await anext(pieces)
        assert not thread.is_idle
        before = model.token_ids(model.scope("mine"))
        await mine.read_ahead([Message("user", "Goodbye!")])
        assert model.token_ids(model.scope("mine")) == before


async def test_a_reading_ends_for_a_caller_who_has_a_question(folder: Path) -> None:
    settings = CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=4, prefill_tokens=1)
    model, thread = CausalLm(settings), EngineThread("causal")
    mine, other = (CausalReplies(model, name, thread=thread) for name in ("mine", "other"))
    long = Message("user", "a long story " * 200)
    begun = threading.Event()
    forward = model._forward

    def received(*given: Any) -> Any:
        begun.set()
        return forward(*given)

    model._forward = received  # type: ignore[method-assign]
    reading = asyncio.create_task(mine.read_ahead([long]))
    assert await asyncio.to_thread(begun.wait, 10)
    assert [piece async for piece in other.reply([HELLO])]
    await reading
    assert 0 < len(model.token_ids(model.scope("mine"))) < 2_000
