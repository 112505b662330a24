"""``tool_choice`` that requires a call, in chat completions, with each row of language models."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from openai import APIError, AsyncOpenAI, BadRequestError, InternalServerError

from parley.configs.deployment import Deployment
from parley.core.client_rules import ClientRules
from parley.core.grants import ClientIdentity
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.pipelines.text.client_tool_uses import check_offer
from parley.protocols.client_protocol import ClientTool, ToolChoice
from parley.protocols.openai_chat import ToolOffer
from parley.protocols.openai_http import OpenAiHttpError
from tests.peers.llm_script import ModelServer, Turn
from tests.peers.test_tools import CallingAnthropic, CallingOpenAi, Calls
from tests.peers.text_gateway import text_gateway
from tests.tiny_gguf import CHATML_TOOLS, save_tiny_gguf

REPORT: Any = {
    "type": "function",
    "function": {
        "name": "report",
        "description": "Report.",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
}
OTHER: Any = {"type": "function", "function": {**REPORT["function"], "name": "other"}}
NAMED: Any = {"type": "function", "function": {"name": "report"}}
ASKED: list[Any] = [{"role": "user", "content": "Hello?"}]


class Obedient(CallingOpenAi):
    """Model that calls a tool where it has to, and speaks otherwise."""

    async def stream(self, response: Any, turn: Turn) -> None:
        if self.requests[-1].get("tool_choice") not in (None, "auto", "none"):
            turn = Calls(calls=[("report", "{}")])
        await super().stream(response, turn)


class ObedientClaude(CallingAnthropic):
    """The same by Anthropic's protocol."""

    async def stream(self, response: Any, turn: Turn) -> None:
        if self.requests[-1].get("tool_choice", {}).get("type") in ("any", "tool"):
            turn = Calls(calls=[("report", "{}")])
        await super().stream(response, turn)


def configuration(folder: Path, row: str, settings: Mapping[str, object], **more: object) -> str:
    return yaml.safe_dump(
        {
            "thinking": {"llm": {"name": row, "settings": dict(settings)}, "fallback": None},
            "server": {"clients": {"anonymous": {"client_tools": True}}},
            "remembering": {"store": {"url": f"sqlite:///{folder}/sessions.db"}},
            **more,
        }
    )


def calls_of(answer: Any) -> list[tuple[str, Any]]:
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None, choice
    return [(each.function.name, json.loads(each.function.arguments)) for each in choice.message.tool_calls]


@pytest.mark.parametrize("row", ["openai_compatible", "vllm", "groq", "anthropic"])
async def test_a_row_makes_its_model_call_a_tool(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("GROQ_API_KEY", "test-key")
    is_claude = row == "anthropic"
    server: type[ModelServer] = ObedientClaude if is_claude else Obedient
    async with server([Turn(("Hello ", "there."))]) as llm:
        settings = {"base_url": llm.url} if is_claude else {"base_url": f"{llm.url}/v1", "model": "m"}
        async with (
            text_gateway(tmp_path, configuration(tmp_path, row, settings)) as url,
            AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0) as openai,
        ):
            create = openai.chat.completions.create
            choices = ["required", NAMED]
            sent_choices = [{"type": "any"}, {"type": "tool", "name": "report"}] if is_claude else choices
            for choice, sent in zip(choices, sent_choices, strict=True):
                answer = await create(
                    model="parley", messages=ASKED, tools=[REPORT, OTHER], tool_choice=choice
                )
                assert calls_of(answer) == [("report", {})]
                assert llm.requests[-1]["tool_choice"] == sent
            free = await create(model="parley", messages=ASKED, tools=[REPORT], tool_choice="auto")
            assert free.choices[0].message.content == "Hello there."
            assert llm.requests[-1].get("tool_choice") in (None, "auto")


async def test_a_gguf_file_that_speaks_instead_gives_no_answer(tmp_path: Path):
    """Random weights never begin a call: llama.cpp takes the choice, and no words pass for one."""
    file = save_tiny_gguf(tmp_path / "tools.gguf", template=CHATML_TOOLS)
    settings = {"model": str(file), "cpu_threads": 1, "context_tokens": 2_048, "max_tokens": 40}
    guard = {"first_token_ms": 20_000}
    chosen = {"llm": {"name": "llamacpp", "settings": settings}, "fallback": None, "guard": guard}
    async with (
        text_gateway(tmp_path, configuration(tmp_path, "llamacpp", {}, thinking=chosen)) as url,
        AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0, timeout=120) as openai,
    ):
        for choice in ("required", NAMED):
            with pytest.raises(InternalServerError, match="did not call the tool"):
                await openai.chat.completions.create(
                    model="parley", messages=ASKED, tools=[OTHER, REPORT], tool_choice=choice
                )
        free = await openai.chat.completions.create(model="parley", messages=ASKED, tools=[REPORT])
        assert free.choices[0].message.content


async def test_a_row_that_would_ignore_the_choice_refuses_it(tmp_path: Path):
    async with Obedient([Turn(("Hello ", "there."))]) as llm:
        settings = {"base_url": f"{llm.url}/v1", "model": "m"}
        async with (
            text_gateway(tmp_path, configuration(tmp_path, "ollama", settings)) as url,
            AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0) as openai,
        ):
            for choice in ("required", NAMED):
                with pytest.raises(BadRequestError, match="'tool_choice' is not supported") as refused:
                    await openai.chat.completions.create(
                        model="parley", messages=ASKED, tools=[REPORT], tool_choice=choice
                    )
                assert (refused.value.param, refused.value.code) == ("tool_choice", "unsupported_parameter")
            assert llm.requests == []


@pytest.mark.parametrize("streams", [False, True])
async def test_words_in_place_of_a_required_call_are_no_answer(tmp_path: Path, streams: bool):
    async with CallingOpenAi([Turn(("Hello ", "there."))]) as llm:
        settings = {"base_url": f"{llm.url}/v1", "model": "m"}
        async with (
            text_gateway(tmp_path, configuration(tmp_path, "openai_compatible", settings)) as url,
            AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0) as openai,
        ):
            received = list[Any]()
            # As a status, or as an event of the stream that has begun.
            with pytest.raises(APIError if streams else InternalServerError, match="did not call the tool"):
                answer: Any = await openai.chat.completions.create(
                    model="parley", messages=ASKED, tools=[REPORT], tool_choice="required", stream=streams
                )
                received += [chunk async for chunk in answer]
            assert not any(choice.delta.content for chunk in received for choice in chunk.choices)


@pytest.mark.parametrize(
    ("row", "settings", "param"),
    [
        ("documents", {}, "tools"),
        ("transformers", {"lm": {"model": "."}}, "tools"),
        ("worker", {"url": "ws://127.0.0.1:9/ws"}, "tools"),
        ("pool", {}, "tools"),
        ("anthropic", {"effort": "low"}, "tool_choice"),
        ("anthropic", {"forces_tools": False}, "tool_choice"),
        (
            "openai_compatible",
            {"base_url": "http://x/v1", "model": "m", "forces_tools": False},
            "tool_choice",
        ),
    ],
)
async def test_rows_that_cannot_follow_refuse_by_name(
    row: str, settings: dict[str, Any], param: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("PARLEY_WORKER_SECRET", "s" * 32)
    if row == "transformers":
        (tmp_path / "config.json").write_text("{}")
        settings = {"lm": {"model": str(tmp_path)}}
    given: dict[str, Any] = {"thinking": {"llm": {"name": row, "settings": settings}}}
    if row == "pool":
        given["workers"] = {"workers": [{"name": "one", "url": "ws://127.0.0.1:9"}]}
    deployment = Deployment.model_validate(given)
    answering = LlmRuntime(deployment, await asyncio.to_thread(plan_answering, deployment), None)
    offer = ToolOffer((ClientTool("report", "Report.", {"type": "object"}),), ToolChoice(is_required=True))
    try:
        with pytest.raises(OpenAiHttpError, match="not supported with this model") as refused:
            check_offer(answering, ClientRules(ClientIdentity(is_operator=True)), offer, brings_uses=False)
        assert refused.value.param == param
    finally:
        await answering.close()
