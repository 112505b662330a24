import asyncio

import pytest
from pipecat.frames.frames import (
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
)
from pipecat.metrics.metrics import TTFBMetricsData
from pipecat.processors.aggregators.llm_context import LLMContext, LLMSpecificMessage

from parley.core.errors import EngineError
from parley.core.pictures import UNSEEN, picture_key, reference
from parley.core.prompt_notes import PromptNotes, parse_notes, write_notes
from parley.models.llm import Message
from parley.processors.dialogue.engine_llm import EngineLlmService, messages_of
from tests.fakes.reply_bench import ReplyBench
from tests.fakes.scripted_llm import HANG, ScriptedLanguageModel
from tests.virtual_time import run


def test_notes_before_a_picture_stay_notes():
    notes = write_notes(PromptNotes(facts={"name": "Ada"}))
    parts = [
        {"type": "text", "text": notes},
        reference(picture_key(b"x")),
        {"type": "text", "text": "What is it?"},
    ]
    [message] = messages_of(LLMContext([{"role": "user", "content": parts}]))
    found, words = parse_notes(message.text)
    assert found.facts == {"name": "Ada"} and words == f"{UNSEEN} What is it?"


def test_a_context_becomes_plain_messages():
    context = LLMContext(
        [
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "Greet the caller."},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "tool", "content": "42", "tool_call_id": "1"},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": "data:"}},
                    {"type": "text", "text": "what is it?"},
                ],
            },
            LLMSpecificMessage(llm="anthropic", message={"role": "user", "content": "not for us"}),
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "  "},
        ]
    )
    assert messages_of(context) == [
        Message("system", "Be brief.\n\nBe kind."),
        Message("user", "hi"),
        Message("user", "Greet the caller."),
        Message("assistant", "Hello."),
        Message("user", f"Look:\n\n{UNSEEN} what is it?"),
    ]


def test_an_answer_is_streamed_between_one_start_and_one_end():
    async def call() -> ReplyBench:
        engine = ScriptedLanguageModel(["We", " open", 0.2, " at nine."])
        async with ReplyBench([EngineLlmService(engine)], metrics=True) as bench:
            await bench.answer("when?")
        return bench

    bench = run(call())
    kinds = [f for _, f in bench.ear.frames if isinstance(f, (LLMFullResponseStartFrame, LLMTextFrame))]
    assert isinstance(kinds[0], LLMFullResponseStartFrame)
    assert bench.text == "We open at nine."
    assert bench.pairs == "<>"
    metrics = [d for _, f in bench.ear.frames if isinstance(f, MetricsFrame) for d in f.data]
    assert any(isinstance(data, TTFBMetricsData) and data.model == "engine" for data in metrics)


@pytest.mark.parametrize(
    "script", [["We", EngineError("no", engine="x")], ["We", HANG]], ids=["error", "hang"]
)
def test_an_engine_that_fails_reports_it_and_ends_the_answer(script: list[object]):
    async def call() -> ReplyBench:
        service = EngineLlmService(ScriptedLanguageModel(script), piece_timeout_s=1.0)
        async with ReplyBench([service]) as bench:
            await bench.answer("when?")
            await asyncio.sleep(0)
        return bench

    bench = run(call())
    assert (bench.text, bench.pairs, len(bench.errors)) == ("We", "<>", 1)


def test_an_interruption_closes_the_stream_of_the_engine():
    engine = ScriptedLanguageModel(["We", HANG])

    async def call() -> ReplyBench:
        async with ReplyBench([EngineLlmService(engine)]) as bench:
            await bench.ask("when?")
            await asyncio.sleep(0.5)
            assert engine.closed == 0
            await bench.interrupt()
            await bench.until(1)
            return bench

    assert isinstance(run(call()).ear.frames[-1][1], object)
    assert engine.closed == 1


def test_inference_outside_the_pipeline_returns_the_whole_answer():
    engine = ScriptedLanguageModel(["We", " open. "], [])
    service = EngineLlmService(engine)
    context = LLMContext([{"role": "system", "content": "a"}, {"role": "user", "content": "when?"}])

    async def call() -> tuple[str | None, str | None]:
        return (
            await service.run_inference(context, system_instruction="b"),
            await service.run_inference(context),
        )

    assert run(call()) == ("We open.", None)
    assert engine.asked[0] == [Message("system", "b"), Message("user", "when?")]
    assert engine.asked[1] == [Message("system", "a"), Message("user", "when?")]


def test_the_end_of_an_answer_comes_last():
    async def call() -> ReplyBench:
        async with ReplyBench([EngineLlmService(ScriptedLanguageModel(["Yes."]))]) as bench:
            await bench.answer("well?")
            return bench

    replies = [
        f
        for _, f in run(call()).ear.frames
        if isinstance(f, (LLMFullResponseStartFrame, LLMTextFrame, LLMFullResponseEndFrame))
    ]
    assert isinstance(replies[-1], LLMFullResponseEndFrame)
