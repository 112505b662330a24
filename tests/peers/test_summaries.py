"""Older turns are summarised by the deployment's model, through its official SDK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.configs.load import load_deployment
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.pipelines.sessions import open_conversations
from parley.pipelines.text.typed_turns import AnswerCommitted, ask
from parley.session_store.conversation import Conversation
from parley.session_store.events import Event, Kind
from tests.peers.anthropic_server import AnthropicServer
from tests.peers.llm_script import ModelServer, Turn
from tests.peers.openai_server import OpenAiServer

LLM = {
    "anthropic": (AnthropicServer, "{{name: anthropic, settings: {{base_url: '{url}', sdk_retries: 0}}}}"),
    "openai_compatible": (
        OpenAiServer,
        "{{name: openai_compatible, settings: {{base_url: '{url}/v1', model: m, sdk_retries: 0}}}}",
    ),
}
SMALL = "remembering: {conversation: {budget_tokens: 300}}\n"
ANSWER = "That fee is four euros a month, and it is taken on the first working day of each month. " * 2


@asynccontextmanager
async def conversation(
    llm: str, tmp_path: Path, *, more: str = ""
) -> AsyncIterator[tuple[Conversation, LlmRuntime]]:
    (tmp_path / "own.yaml").write_text(f"thinking: {{llm: {llm}}}\n{SMALL}{more}")
    deployment = load_deployment(tmp_path / "own.yaml")
    answering = await LlmRuntime.load(deployment, plan_answering(deployment))
    try:
        async with open_conversations(deployment, answering) as opened, opened.open() as held:
            yield held, answering
    finally:
        await answering.close()


async def talk(held: Conversation, answering: LlmRuntime, text: str) -> None:
    async for event in ask(held, answering, text):
        last = event
    assert isinstance(last, AnswerCommitted)


async def summary(held: Conversation) -> Event:
    async with asyncio.timeout(60):
        while True:
            found = [event for event in held.events if event.kind is Kind.SUMMARY]
            if found:
                return found[-1]
            await asyncio.sleep(0.01)


def requests_for_a_summary(server: ModelServer) -> list[dict]:
    return [request for request in server.requests if not request.get("stream")]


@pytest.mark.parametrize("provider", list(LLM))
async def test_the_model_writes_the_summary_of_older_turns(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    server_type, llm = LLM[provider]
    written = Turn(["The person asked about fees."])
    async with server_type([Turn([ANSWER])], unstreamed=[written]) as server:
        async with conversation(llm.format(url=server.url), tmp_path) as (held, answering):
            for number in range(3):
                await talk(held, answering, f"My code is x{number}. What does the fee number {number} cost?")
            made = await summary(held)
        asked = requests_for_a_summary(server)[0]
    assert (made.payload["by"], made.payload["text"]) == ("summarizer", "The person asked about fees.")
    assert "What does the fee number 0 cost?" in str(asked)
    assert "keep the memory of a conversation" in str(asked)


@pytest.mark.parametrize("provider", list(LLM))
async def test_a_refused_summary_is_an_extract_and_no_turn_is_lost(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    server_type, llm = LLM[provider]
    async with server_type([Turn([ANSWER])], unstreamed=[Turn(status=429)]) as server:
        async with conversation(llm.format(url=server.url), tmp_path) as (held, answering):
            for number in range(3):
                await talk(held, answering, f"My code is x{number}. What does the fee number {number} cost?")
            written = await summary(held)
            assert "x2" in str(held.view().messages)
    assert written.payload["by"] == "extract"
    assert written.payload["text"]
