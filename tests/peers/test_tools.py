"""Tools over the official SDKs: a model that calls, a webhook that acts, and a session that remembers."""

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pipecat.adapters.llm.services.anthropic_adapter import AnthropicLLMAdapter
from pipecat.frames.frames import Frame, FunctionCallCancelFrame, FunctionCallResultFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMAssistantAggregator
from pipecat.services.llm_service import LLMService

from parley.configs.deployment import Deployment
from parley.configs.load import parse_settings
from parley.core.client_rules import ClientRules
from parley.models.tools.webhook import WebhookSettings, WebhookTool
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.processors.dialogue import durable_tools
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.dialogue.services import (
    Anthropic,
    AnthropicSettings,
    OpenAiCompatible,
    OpenAiCompatibleSettings,
)
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.fakes.reply_bench import ReplyBench
from tests.fakes.tools import ORDER
from tests.peers.anthropic_server import AnthropicServer
from tests.peers.llm_script import ModelServer, Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.webhook_server import WebhookServer
from tests.session_files import locked

ROOT = Path(__file__).resolve().parents[2]
ANSWER = ("Tea ", "is ", "ordered.")
TEXT = "".join(ANSWER)
DONE_S = 60


@dataclass(frozen=True)
class Calls(Turn):
    """A response that calls tools.

    Attributes:
        calls: names and arguments as the model writes them. Ids are the same in every response.
    """

    calls: Sequence[tuple[str, str]] = ()


TEA = Calls(calls=[("order", '{"item": "tea"}')])
SAY = Turn(ANSWER)


class CallingOpenAi(OpenAiServer):
    """Server that streams several calls, their arguments in pieces."""

    async def stream(self, response: web.StreamResponse, turn: Turn) -> None:
        if not isinstance(turn, Calls):
            return await super().stream(response, turn)

        async def send(finish: str | None = None, **delta: Any) -> None:
            chunk = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1_767_600_000,
                "model": self.requests[-1]["model"],
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
            }
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())

        await send(role="assistant", content=None)
        for index, (name, arguments) in enumerate(turn.calls):
            function = {"name": name, "arguments": ""}
            call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
            await send(tool_calls=[call])
            for piece in (arguments[:5], arguments[5:]):
                await send(tool_calls=[{"index": index, "function": {"arguments": piece}}])
        await send("tool_calls")
        used = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        await response.write(f"data: {json.dumps({**chunk, 'choices': [], 'usage': used})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return None


class CallingAnthropic(AnthropicServer):
    """Server that streams a call, its arguments in pieces."""

    async def stream(self, response: web.StreamResponse, turn: Turn) -> None:
        if isinstance(turn, Calls):
            [(_name, self._arguments)] = turn.calls
            turn = Turn(tool=turn.calls[0][0])
        await super().stream(response, turn)

    async def _call_tool(self, send: Any, name: str) -> None:
        block = {"type": "tool_use", "id": "toolu_01", "name": name, "input": {}}
        await send("content_block_start", index=0, content_block=block)
        for part in (self._arguments[:5], self._arguments[5:]):
            await send(
                "content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": part}
            )


@dataclass
class Provider:
    """A row, its server, and the place of tools and results in that server's requests."""

    server_type: type[ModelServer]
    service: Callable[[str], LLMService[Any]]
    offered: Callable[[dict[str, Any]], list[str]]
    results: Callable[[dict[str, Any]], list[Any]]


def openai_results(body: dict[str, Any]) -> list[Any]:
    return [json.loads(one["content"]) for one in body["messages"] if one["role"] == "tool"]


def anthropic_results(body: dict[str, Any]) -> list[Any]:
    blocks = [
        block for one in body["messages"] if isinstance(one["content"], list) for block in one["content"]
    ]
    return [json.loads(block["content"]) for block in blocks if block["type"] == "tool_result"]


def compatible(url: str) -> LLMService[Any]:
    return OpenAiCompatible(OpenAiCompatibleSettings(base_url=f"{url}/v1", model="m")).build()


def claude(url: str) -> LLMService[Any]:
    return Anthropic(AnthropicSettings(base_url=url)).build()


OPENAI = Provider(
    CallingOpenAi,
    compatible,
    lambda body: [tool["function"]["name"] for tool in body.get("tools", ())],
    openai_results,
)
CLAUDE = Provider(
    CallingAnthropic,
    claude,
    lambda body: [tool["name"] for tool in body.get("tools", ())],
    anthropic_results,
)


@pytest.fixture(params=["openai_compatible", "anthropic"])
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Provider:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return OPENAI if request.param == "openai_compatible" else CLAUDE


@asynccontextmanager
async def opened(file: Path, session_id: str | None = None) -> AsyncIterator[Conversation]:
    """Open a session, as one process holds it."""
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{file}", busy_timeout_ms=0))
    try:
        async with Conversations(store, compactor=Compactor()).open(session_id) as conversation:
            yield conversation
    finally:
        await store.close()


def stored(file: Path) -> list[str]:
    """Return the tool events that any reader of the database finds now."""
    with sqlite3.connect(file) as reader:
        rows = reader.execute("SELECT kind, payload FROM event ORDER BY session_id, seq").fetchall()
    return [
        f"{kind} {json.loads(payload).get('outcome', '')}".strip()
        for kind, payload in rows
        if kind.startswith("tool")
    ]


@dataclass
class Talk:
    """Pipeline that answers in a session with a tool."""

    conversation: Conversation
    tools: DurableTools
    server: ModelServer
    hook: WebhookServer
    bench: ReplyBench
    context: LLMContext
    seen: list[list[str]] = field(default_factory=list)

    async def ask(self, text: str = "Order tea.") -> None:
        """Record a turn and send it to the model, as the gate before the model does."""
        await self.conversation.user_turn(text, transport="text")
        self.context.set_messages(list(self.conversation.view().messages))
        await self.bench.ask(self.context)

    async def answered(self, requests: int) -> None:
        """Wait for the end of that many responses."""
        await self.bench.until(requests, within_s=DONE_S)

    async def reached(self) -> None:
        async with asyncio.timeout(DONE_S):
            await self.hook.reached.wait()
        self.hook.reached.clear()

    async def came(self, kind: type[Frame]) -> None:
        """Wait for a frame at the place of the voice."""
        async with asyncio.timeout(DONE_S):
            while not any(isinstance(frame, kind) for _, frame in self.bench.ear.frames):
                await asyncio.sleep(0.01)

    async def written(self, count: int) -> None:
        async with asyncio.timeout(DONE_S):
            while len(received(self.conversation)) < count:
                await asyncio.sleep(0.01)


def received(conversation: Conversation) -> list[str]:
    kinds = (Kind.TOOL_CALL, Kind.TOOL_RESULT)
    events = [event for event in conversation.events if event.kind in kinds]
    return [f"{event.kind} {event.payload.get('outcome', '')}".strip() for event in events]


def webhook(hook: WebhookServer, http: aiohttp.ClientSession, **settings: Any) -> WebhookTool:
    given = {"name": "order", "description": "Orders something.", "parameters": ORDER, "url": hook.url}
    return WebhookTool(WebhookSettings(**{**given, **settings}), http)


@asynccontextmanager
async def talking(
    file: Path,
    provider: Provider,
    *turns: Turn,
    hook: WebhookServer | None = None,
    session_id: str | None = None,
    limits: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Talk]:
    async with (
        hook or WebhookServer() as running,
        aiohttp.ClientSession() as http,
        provider.server_type(turns) as server,
        opened(file, session_id) as conversation,
    ):
        tools = DurableTools([webhook(running, http, **settings)], conversation, **(limits or {}))
        await tools.recover()
        context = LLMContext()
        llm = provider.service(server.url)
        assert tools.offer(llm, context)
        try:
            async with ReplyBench([llm], after=[LLMAssistantAggregator(context)]) as bench:
                yield Talk(conversation, tools, server, running, bench, context)
        finally:
            await tools.drain()


async def test_a_call_is_committed_takes_effect_is_committed_and_the_model_answers(
    provider: Provider, tmp_path: Path
):
    file = tmp_path / "s.db"
    hook = WebhookServer(hold=asyncio.Event())
    async with talking(file, provider, TEA, SAY, hook=hook) as talk:
        await talk.ask()
        await talk.reached()
        assert stored(file) == ["tool_call"]
        assert len(talk.server.requests) == 1
        hook.hold.set()
        await talk.answered(2)
        assert talk.bench.text == TEXT
        assert stored(file) == ["tool_call", "tool_result done"]
        assert hook.requests == [{"item": "tea"}]
        assert list(hook.effects.values()) == [1]
        first, second = talk.server.requests
        assert provider.offered(first) == provider.offered(second) == ["order"]
        assert provider.results(second) == [{"number": 7}]


MILK = Calls(calls=[("order", '{"item": "milk"}')])


async def test_a_tool_for_whose_result_no_request_is_left_is_not_run_and_the_model_says_so(
    provider: Provider, tmp_path: Path
):
    left = [True]

    async def take_request(_rules: ClientRules) -> bool:
        return left.pop() if left else False

    limits = {"take_request": take_request}
    async with talking(tmp_path / "s.db", provider, TEA, MILK, SAY, limits=limits) as talk:
        await talk.ask()
        await talk.answered(3)
        assert talk.bench.text == TEXT
        assert talk.hook.requests == [{"item": "tea"}]
        assert received(talk.conversation) == ["tool_call", "tool_result done"]
        *_, refused = provider.results(talk.server.requests[2])
        assert refused == {"outcome": "failed", "error": durable_tools.NO_REQUEST}


async def test_a_model_that_goes_on_calling_without_a_request_left_is_not_asked_again(
    provider: Provider, tmp_path: Path
):

    async def take_request(_rules: ClientRules) -> bool:
        return False

    limits = {"take_request": take_request}
    async with talking(tmp_path / "s.db", provider, TEA, MILK, SAY, limits=limits) as talk:
        await talk.ask()
        async with asyncio.timeout(DONE_S):
            while sum(isinstance(frame, FunctionCallResultFrame) for _, frame in talk.bench.ear.frames) < 2:
                await asyncio.sleep(0.01)
        await talk.ask("Anything else?")
        await talk.answered(3)
        assert len(talk.server.requests) == 3
        assert talk.bench.text == TEXT
        assert talk.hook.requests == []


async def test_the_next_turn_sees_the_call_in_the_form_that_the_provider_takes(
    provider: Provider, tmp_path: Path
):
    async with talking(tmp_path / "s.db", provider, TEA, SAY, TEA, SAY) as talk:
        await talk.ask()
        await talk.answered(2)
        await talk.ask("The same again.")
        await talk.answered(4)
        third, fourth = talk.server.requests[2:]
        assert provider.results(third) == [{"number": 7}]
        assert provider.results(fourth) == [{"number": 7}, {"number": 7}]
        # The provider's id was the same both times.
        assert len(talk.hook.effects) == 2
        assert set(talk.hook.effects.values()) == {1}


async def test_a_call_with_wrong_arguments_is_mended_by_the_model(provider: Provider, tmp_path: Path):
    wrong = Calls(calls=[("order", '{"item": 3, "colour": "red"}')])
    async with talking(tmp_path / "s.db", provider, wrong, TEA, SAY) as talk:
        await talk.ask()
        await talk.answered(3)
        _, second, third = talk.server.requests
        [told_first] = provider.results(second)
        assert told_first == {
            "outcome": "failed",
            "error": "the arguments do not fit: item must be text; colour is not known",
        }
        assert {"number": 7} in provider.results(third)
        assert talk.hook.requests == [{"item": "tea"}]
        assert received(talk.conversation) == ["tool_call", "tool_result done"]
        assert talk.bench.text == TEXT


async def test_a_refusal_is_told_to_the_model(provider: Provider, tmp_path: Path):
    hook = WebhookServer(status=409, body={"error": "no tea left"})
    async with talking(tmp_path / "s.db", provider, TEA, SAY, hook=hook) as talk:
        await talk.ask()
        await talk.answered(2)
        [result] = provider.results(talk.server.requests[1])
        assert result["outcome"] == "failed"
        assert "no tea left" in result["error"]
        assert received(talk.conversation) == ["tool_call", "tool_result failed"]


async def test_a_slow_webhook_is_given_up_and_the_model_does_not_claim_its_effect(
    provider: Provider, tmp_path: Path
):
    hook = WebhookServer(hold=asyncio.Event())
    async with talking(tmp_path / "s.db", provider, TEA, SAY, hook=hook, timeout_s=0.3) as talk:
        await talk.ask()
        await talk.answered(2)
        [result] = provider.results(talk.server.requests[1])
        assert result["outcome"] == "unknown"
        assert received(talk.conversation) == ["tool_call", "tool_result unknown"]


async def test_two_calls_in_one_response_are_two_effects_and_one_question(tmp_path: Path):
    both = Calls(calls=[("order", '{"item": "tea"}'), ("order", '{"item": "milk"}')])
    async with talking(tmp_path / "s.db", OPENAI, both, SAY) as talk:
        await talk.ask()
        await talk.answered(2)
        assert sorted(one["item"] for one in talk.hook.requests) == ["milk", "tea"]
        assert sorted(talk.hook.effects.values()) == [1, 1]
        assert len(talk.server.requests) == 2
        assert openai_results(talk.server.requests[1]) == [{"number": 7}, {"number": 7}]
        assert sorted(received(talk.conversation)) == ["tool_call"] * 2 + ["tool_result done"] * 2


async def test_the_same_call_twice_in_one_response_is_one_effect(tmp_path: Path):
    both = Calls(calls=[("order", '{"item": "tea"}'), ("order", '{"item":"tea"}')])
    async with talking(tmp_path / "s.db", OPENAI, both, SAY) as talk:
        await talk.ask()
        await talk.answered(2)
        assert list(talk.hook.effects.values()) == [1]
        given = openai_results(talk.server.requests[1])
        assert {"result": {"number": 7}, "note": durable_tools.REPEATED} in given
        assert {"number": 7} in given


async def test_a_model_that_calls_again_and_again_acts_once_in_a_turn(provider: Provider, tmp_path: Path):
    async with talking(tmp_path / "s.db", provider, TEA, TEA, TEA, SAY) as talk:
        await talk.ask()
        await talk.answered(4)
        assert list(talk.hook.effects.values()) == [1]
        assert received(talk.conversation) == ["tool_call", "tool_result done"]


async def test_an_interruption_lets_the_effect_go_on_and_the_next_turn_knows(
    provider: Provider, tmp_path: Path
):
    hook = WebhookServer(hold=asyncio.Event())
    async with talking(tmp_path / "s.db", provider, TEA, SAY, hook=hook) as talk:
        await talk.ask()
        await talk.reached()
        await talk.answered(1)
        await talk.bench.interrupt()
        await talk.came(FunctionCallCancelFrame)
        assert received(talk.conversation) == ["tool_call"]
        hook.hold.set()
        await talk.written(2)
        assert received(talk.conversation) == ["tool_call", "tool_result done"]
        # No answer is sent: the caller has the turn.
        assert len(talk.server.requests) == 1
        await talk.ask("Well?")
        await talk.answered(2)
        assert provider.results(talk.server.requests[1]) == [{"number": 7}]
        assert list(hook.effects.values()) == [1]


async def test_while_the_database_is_away_nothing_is_called(provider: Provider, tmp_path: Path):
    file = tmp_path / "s.db"
    async with talking(file, provider, TEA, SAY) as talk:
        await talk.conversation.user_turn("Order tea.", transport="text")
        talk.context.set_messages(list(talk.conversation.view().messages))
        with locked(file, reads=False):
            await talk.bench.ask(talk.context)
            await talk.answered(1)
            # Longer than the call, its effect and the next question take.
            await asyncio.sleep(1)
            assert talk.hook.requests == []
            assert len(talk.server.requests) == 1
        await talk.answered(2)
        assert list(talk.hook.effects.values()) == [1]
        assert stored(file) == ["tool_call", "tool_result done"]


async def test_when_the_database_stays_away_the_model_is_told_that_nothing_was_done(
    provider: Provider, tmp_path: Path
):
    file = tmp_path / "s.db"
    async with talking(file, provider, TEA, SAY, limits={"commit_wait_s": 0.3}) as talk:
        await talk.conversation.user_turn("Order tea.", transport="text")
        talk.context.set_messages(list(talk.conversation.view().messages))
        with locked(file, reads=False):
            await talk.bench.ask(talk.context)
            await talk.answered(2)
        assert provider.results(talk.server.requests[1]) == [
            {"outcome": "failed", "error": durable_tools.NOT_RUN}
        ]
        await talk.written(2)
        assert received(talk.conversation) == ["tool_call", "tool_result failed"]
        assert talk.hook.requests == []


async def test_a_session_that_another_process_claimed_calls_nothing_and_answers_nothing(
    provider: Provider, tmp_path: Path
):
    file = tmp_path / "s.db"
    async with talking(file, provider, TEA, SAY) as talk:
        await talk.conversation.user_turn("Order tea.", transport="text")
        talk.context.set_messages(list(talk.conversation.view().messages))
        async with opened(file, talk.conversation.session_id):
            await talk.bench.ask(talk.context)
            async with asyncio.timeout(DONE_S):
                await talk.conversation.lost.wait()
            await talk.came(FunctionCallResultFrame)
        assert talk.hook.requests == []
        assert len(talk.server.requests) == 1


@pytest.mark.parametrize(
    ("idempotent", "outcome", "requests"), [(False, "unknown", 1), (True, "done", 2)], ids=["once", "again"]
)
async def test_who_comes_back_after_a_cut_in_the_middle_has_one_effect(
    provider: Provider, tmp_path: Path, idempotent: bool, outcome: str, requests: int
):
    file = tmp_path / "s.db"
    async with WebhookServer(hold=asyncio.Event()) as outside:
        url = {"url": outside.url, "idempotent": idempotent}
        async with talking(file, provider, TEA, SAY, limits={"drain_s": 0.05}, **url) as talk:
            await talk.ask()
            async with asyncio.timeout(DONE_S):
                await outside.reached.wait()
        session_id = talk.conversation.session_id
        assert stored(file) == ["tool_call"]
        outside.hold.set()
        async with talking(file, provider, SAY, session_id=session_id, **url) as talk:
            assert received(talk.conversation) == ["tool_call", f"tool_result {outcome}"]
            await talk.ask("Did that work?")
            await talk.answered(1)
            [result] = provider.results(talk.server.requests[0])
            assert result == {"number": 7} if idempotent else result["outcome"] == "unknown"
        assert len(outside.requests) == requests
        assert list(outside.effects.values()) == [1]


@pytest.mark.parametrize(("kind", "outcome", "requests"), [("once", "unknown", 1), ("idempotent", "done", 2)])
async def test_a_process_that_is_killed_in_the_middle_leaves_one_effect(
    tmp_path: Path, kind: str, outcome: str, requests: int
):
    file = tmp_path / "s.db"
    async with opened(file) as conversation:
        session_id = conversation.session_id
    async with WebhookServer(hold=asyncio.Event()) as hook, aiohttp.ClientSession() as http:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.peers.tool_child", str(file), session_id, hook.url, kind, cwd=ROOT
        )
        async with asyncio.timeout(60):
            await hook.reached.wait()
            child.send_signal(signal.SIGKILL)
            assert await child.wait() == -signal.SIGKILL
        assert stored(file) == ["tool_call"]
        hook.hold.set()
        async with opened(file, session_id) as conversation:
            tool = webhook(hook, http, idempotent=kind == "idempotent")
            await DurableTools([tool], conversation).recover()
            assert received(conversation) == ["tool_call", f"tool_result {outcome}"]
        assert len(hook.requests) == requests
        assert list(hook.effects.values()) == [1]


async def test_a_deployment_with_a_tool_acts_once_when_its_model_fails_after_the_call(tmp_path: Path):
    async with (
        WebhookServer(headers={"Set-Cookie": "who=first; Path=/"}) as hook,
        CallingOpenAi([TEA, Turn(status=500), TEA, SAY]) as server,
        opened(tmp_path / "s.db") as conversation,
    ):
        tool = {"name": "order", "description": "Orders.", "parameters": ORDER}
        # A host name: clients keep no cookies of bare addresses.
        url = f"http://localhost:{hook.port}/order"
        thinking = {
            "llm": {"name": "openai_compatible", "settings": {"base_url": f"{server.url}/v1", "model": "m"}},
            "fallback": {"name": "documents"},
            "tools": [{"name": "webhook", "settings": {**tool, "url": url}}],
        }
        knowledge = {"knowledge": str(ROOT / "knowledge")}
        deployment = parse_settings(Deployment, {"thinking": thinking, "bot": knowledge}, where="test.yaml")
        answering = await LlmRuntime.load(deployment, plan_answering(deployment))
        try:
            async with answering.tools(conversation) as tools:
                turn = await conversation.user_turn("Order tea.", transport="text")
                for answers in (2, 2):
                    context = LLMContext(messages=list(conversation.view().messages))
                    processors = await answering.build(tools=tools, context=context, turn=turn)
                    assert len(processors) == 3
                    async with ReplyBench(processors, after=[LLMAssistantAggregator(context)]) as bench:
                        await bench.ask(context)
                        await bench.until(answers, within_s=DONE_S)
                        said = bench.text
                assert said == TEXT
                assert list(hook.effects.values()) == [1]
                assert received(conversation) == ["tool_call", "tool_result done"]
                await conversation.user_turn("Another one.", transport="text")
                await tools.call("order", {"item": "tea"})
                assert len(hook.requests) == 2
                assert "Cookie" not in hook.request_headers[1]
        finally:
            await answering.close()


# Requests to the model after a result


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of Claude's without marks for the provider's cache, its text as a block."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    bare = [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]
    return {"role": message["role"], "content": bare}


def as_asked(provider: Provider, body: dict[str, Any]) -> list[dict[str, Any]]:
    return [plain(one) for one in body["messages"]] if provider is CLAUDE else body["messages"]


def in_form(provider: Provider, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of the view in the form of a provider."""
    if provider is OPENAI:
        return list(messages)
    converted = AnthropicLLMAdapter()._from_universal_context_messages(list(messages)).messages
    return [plain(one) for one in converted]


async def test_the_request_after_a_result_is_the_view_of_the_session(provider: Provider, tmp_path: Path):
    hook = WebhookServer(hold=asyncio.Event())
    async with talking(tmp_path / "s.db", provider, TEA, SAY, hook=hook) as talk:
        await talk.ask()
        await talk.reached()
        # Only the session has it, and no frame of the pipeline carries it.
        known = talk.conversation.draft(Kind.STATE, "system", slots={"tier": "gold"})
        await talk.conversation.append(known)
        hook.hold.set()
        await talk.answered(2)
        view = talk.conversation.view().messages
        assert [message["role"] for message in view] == ["user", "assistant", "tool"]
        assert "tier: gold" in view[0]["content"]
        assert as_asked(provider, talk.server.requests[1]) == in_form(provider, view)


@pytest.mark.parametrize(
    ("hook", "outcome"),
    [({"status": 409}, "failed"), ({"status": 500}, "unknown")],
    ids=["refused", "broken"],
)
async def test_a_failure_is_told_at_once_as_every_later_view_tells_it(
    provider: Provider, tmp_path: Path, hook: dict[str, Any], outcome: str
):
    async with talking(tmp_path / "s.db", provider, TEA, SAY, hook=WebhookServer(**hook)) as talk:
        await talk.ask()
        await talk.answered(2)
        [result] = provider.results(talk.server.requests[1])
        assert result["outcome"] == outcome
        view = talk.conversation.view().messages
        assert as_asked(provider, talk.server.requests[1]) == in_form(provider, view)


async def test_every_request_of_a_chain_of_calls_is_the_view_of_its_moment(
    provider: Provider, tmp_path: Path
):
    milk = Calls(calls=[("order", '{"item": "milk"}')])
    async with talking(tmp_path / "s.db", provider, TEA, milk, SAY, TEA, SAY) as talk:
        await talk.ask()
        await talk.answered(3)
        view = talk.conversation.view().messages
        assert as_asked(provider, talk.server.requests[2]) == in_form(provider, view)
        assert as_asked(provider, talk.server.requests[1]) == in_form(provider, view[:-2])
        await talk.ask("And another tea.")
        await talk.answered(5)
        view = talk.conversation.view().messages
        assert as_asked(provider, talk.server.requests[4]) == in_form(provider, view)


async def test_after_calls_at_once_the_request_is_the_view_too(tmp_path: Path):
    both = Calls(calls=[("order", '{"item": "tea"}'), ("order", '{"item": "milk"}')])
    hook = WebhookServer(hold=asyncio.Event())
    async with talking(tmp_path / "s.db", OPENAI, both, SAY, hook=hook) as talk:
        await talk.ask()
        async with asyncio.timeout(DONE_S):
            while len(hook.requests) < 2:
                await asyncio.sleep(0.01)
        hook.hold.set()
        await talk.answered(2)
        view = talk.conversation.view().messages
        assert [len(message.get("tool_calls", ())) for message in view] == [0, 2, 0, 0]
        assert talk.server.requests[1]["messages"] == list(view)


async def test_what_is_refused_and_what_is_repeated_stand_where_they_came(provider: Provider, tmp_path: Path):
    wrong = Calls(calls=[("order", '{"item": 3}')])
    async with talking(tmp_path / "s.db", provider, wrong, TEA, TEA, SAY) as talk:
        await talk.ask()
        await talk.answered(4)
        refused, done, repeated = provider.results(talk.server.requests[3])
        assert refused["outcome"] == "failed"
        assert done == {"number": 7}
        assert repeated == {"result": {"number": 7}, "note": durable_tools.REPEATED}
        # The next turn's request has these events and nothing else.
        await talk.ask("Thank you.")
        await talk.answered(5)
        assert provider.results(talk.server.requests[4]) == [{"number": 7}]


async def test_a_function_that_no_one_offers_is_told_of_and_the_rest_is_the_view(
    provider: Provider, tmp_path: Path
):
    unknown = Calls(calls=[("fly", "{}")])
    async with talking(tmp_path / "s.db", provider, unknown, TEA, SAY) as talk:
        await talk.ask()
        await talk.answered(3)
        asked = as_asked(provider, talk.server.requests[2])
        assert "fly" in json.dumps(asked)
        assert len(asked) == 5
        view = in_form(provider, talk.conversation.view().messages)
        assert [asked[0], *asked[-2:]] == view


async def test_what_someone_types_while_a_tool_runs_is_not_answered_by_the_call(
    provider: Provider, tmp_path: Path
):
    hook = WebhookServer(hold=asyncio.Event())
    async with talking(tmp_path / "s.db", provider, TEA, SAY, hook=hook) as talk:
        await talk.ask()
        await talk.reached()
        await talk.conversation.user_turn("What is your name?", transport="websocket")
        hook.hold.set()
        await talk.answered(2)
        asked = as_asked(provider, talk.server.requests[1])
        assert "What is your name?" not in json.dumps(asked)
        assert provider.results(talk.server.requests[1]) == [{"number": 7}]


async def test_thoughts_that_claude_signed_go_back_with_their_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class ThinkingAnthropic(CallingAnthropic):
        async def _call_tool(self, send: Any, name: str) -> None:
            thought = {"type": "thinking", "thinking": "", "signature": ""}
            await send("content_block_start", index=0, content_block=thought)
            for delta in (
                {"type": "thinking_delta", "thinking": "They want tea."},
                {"type": "signature_delta", "signature": "signed"},
            ):
                await send("content_block_delta", index=0, delta=delta)
            await send("content_block_stop", index=0)
            await super()._call_tool(send, name)

    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    thinking = replace(CLAUDE, server_type=ThinkingAnthropic)
    async with talking(tmp_path / "s.db", thinking, TEA, SAY) as talk:
        await talk.ask()
        await talk.answered(2)
        _, called, result = talk.server.requests[1]["messages"]
        assert [block["type"] for block in called["content"]] == ["thinking", "tool_use"]
        assert called["content"][0]["signature"] == "signed"
        assert [block["type"] for block in result["content"]] == ["tool_result"]
