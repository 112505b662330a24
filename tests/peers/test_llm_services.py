"""Claude and the OpenAI-compatible row through the official SDKs, against servers of the real protocols."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import LLMContextFrame, LLMTextFrame, MetricsFrame
from pipecat.metrics.metrics import LLMUsageMetricsData
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import FunctionCallParams, LLMService

from parley.core.call_events import FallbackAnswers
from parley.core.usage import Usage
from parley.processors.dialogue.counted_answers import AnswerCount
from parley.processors.dialogue.llm_failover import LlmFailover
from parley.processors.dialogue.llm_timeouts import FailureReason, GuardTuning
from parley.processors.dialogue.services import (
    Anthropic,
    AnthropicSettings,
    OpenAiCompatible,
    OpenAiCompatibleSettings,
)
from parley.runtime.event_stream import CallEvents
from tests.fakes.reply_bench import ReplyBench
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.peers.anthropic_server import AnthropicServer
from tests.peers.llm_script import ModelServer, Turn
from tests.peers.openai_server import OpenAiServer

# Deadlines of well under a second are tested, and starting another process takes as long.
pytestmark = pytest.mark.paired

# Half of the product's deadlines: the relations between them stay.
LIMITS = GuardTuning(
    first_token_ms=600,
    token_gap_ms=750,
    silence_budget_ms=700,
    silent_gap_ms=200,
    fallback_first_ms=300,
    fallback_gap_ms=1000,
)
DEAD_AIR_MS = 1000
ANSWER = ("We", " open", " at te", "n", ".", " Come", " in", ".")
TEXT = "".join(ANSWER)
FALLBACK = ("We open at nine. ", "Ask me more.")
FALLBACK_TEXT = "".join(FALLBACK)

Build = Callable[..., Awaitable["Call"]]


@dataclass
class Provider:
    """A row and the server that it connects to."""

    server_type: type[ModelServer]
    service: Callable[[str, int], LLMService[Any]]


PROMPT = "You speak on the phone."


def claude(url: str, sdk_retries: int) -> LLMService[Any]:
    row = Anthropic(AnthropicSettings(base_url=url, sdk_retries=sdk_retries))
    return row.build(system_instruction=PROMPT)


def compatible(url: str, sdk_retries: int) -> LLMService[Any]:
    settings = OpenAiCompatibleSettings(base_url=f"{url}/v1", model="m", sdk_retries=sdk_retries)
    return OpenAiCompatible(settings).build(system_instruction=PROMPT)


@pytest.fixture(params=["anthropic", "openai_compatible"])
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Provider:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    if request.param == "anthropic":
        return Provider(AnthropicServer, claude)
    return Provider(OpenAiServer, compatible)


@dataclass
class Call:
    """Guarded call against one server."""

    server: ModelServer
    llm: LLMService[Any]
    bench: ReplyBench
    failovers: list[FallbackAnswers] = field(default_factory=list)

    @property
    def reasons(self) -> list[FailureReason]:
        return [FailureReason(each.reason) for each in self.failovers]


@asynccontextmanager
async def guarded(
    provider: Provider, *turns: Turn, sdk_retries: int = 0, limits: GuardTuning = LIMITS
) -> AsyncIterator[Call]:
    failovers: list[FallbackAnswers] = []
    async with provider.server_type(turns) as server:
        llm = provider.service(server.url, sdk_retries)
        engine = ScriptedLanguageModel(FALLBACK)
        events = CallEvents()
        events.subscribe(FallbackAnswers, failovers.append)
        guard = LlmFailover(llm, engine, limits, events=events)
        async with ReplyBench(guard.processors, metrics=True) as bench:
            yield Call(server, llm, bench, failovers)


async def test_an_answer_is_streamed(provider: Provider):
    async with guarded(provider, Turn(ANSWER, between_ms=5)) as call:
        assert await call.bench.answer("When do you open?") == TEXT
        assert call.bench.pairs == "<>"
        assert sum(isinstance(f, LLMTextFrame) for _, f in call.bench.ear.frames) > 3
        assert call.failovers == []


@pytest.mark.parametrize(
    ("turn", "reason", "text"),
    [
        (Turn(ANSWER, first_token_ms=60_000), FailureReason.NO_FIRST_TOKEN, FALLBACK_TEXT),
        (Turn(ANSWER, stall_after=3), FailureReason.STALLED, f"We open at. {LIMITS.bridge} {FALLBACK_TEXT}"),
        (Turn(ANSWER, stall_after=5), FailureReason.STALLED, f"We open at ten. {FALLBACK_TEXT}"),
        (Turn(status=429, retry_after_s=30), FailureReason.ERROR, FALLBACK_TEXT),
        (Turn(status=500), FailureReason.ERROR, FALLBACK_TEXT),
        (Turn(status=401), FailureReason.ERROR, FALLBACK_TEXT),
        (Turn(ANSWER, drop_after=0), FailureReason.ERROR, FALLBACK_TEXT),
        (Turn(ANSWER, drop_after=3), FailureReason.ERROR, f"We open at. {LIMITS.bridge} {FALLBACK_TEXT}"),
        (Turn(ANSWER, error_after=3), FailureReason.ERROR, f"We open at. {LIMITS.bridge} {FALLBACK_TEXT}"),
        (Turn(), FailureReason.EMPTY, FALLBACK_TEXT),
    ],
    ids=[
        "slow first token",
        "stall in a sentence",
        "stall between sentences",
        "429",
        "500",
        "401",
        "dropped before the text",
        "dropped in a sentence",
        "error event",
        "empty",
    ],
)
async def test_a_failure_is_answered_by_the_fallback_in_time_and_the_next_turn_works(
    provider: Provider, turn: Turn, reason: FailureReason, text: str
):
    async with guarded(provider, turn, Turn(ANSWER)) as call:
        assert await call.bench.answer("When do you open?") == text
        assert call.reasons == [reason]
        assert max(call.bench.gaps_ms()) < DEAD_AIR_MS
        assert await call.bench.answer("And tomorrow?") == TEXT
        assert call.bench.pairs == "<><>"
        assert call.reasons == [reason]


async def test_the_deadline_holds_while_the_sdk_retries(provider: Provider):
    async with guarded(provider, Turn(status=429, retry_after_s=30), Turn(ANSWER), sdk_retries=2) as call:
        assert await call.bench.answer("When do you open?") == FALLBACK_TEXT
        assert call.reasons == [FailureReason.NO_FIRST_TOKEN]
        assert max(call.bench.gaps_ms()) < DEAD_AIR_MS
        assert await call.bench.answer("And tomorrow?") == TEXT


async def test_without_sdk_retries_a_refused_request_is_sent_once(provider: Provider):
    async with guarded(provider, Turn(status=429, retry_after_s=30)) as call:
        await call.bench.answer("When do you open?")
        assert len(call.server.requests) == 1
        assert call.reasons == [FailureReason.ERROR]


async def test_a_server_that_is_not_there_is_replaced(provider: Provider):
    async with provider.server_type([Turn()]) as server:
        url = server.url
    failovers: list[FallbackAnswers] = []
    llm = provider.service(url, 0)
    events = CallEvents()
    events.subscribe(FallbackAnswers, failovers.append)
    guard = LlmFailover(llm, ScriptedLanguageModel(FALLBACK), LIMITS, events=events)
    async with ReplyBench(guard.processors) as bench:
        assert await bench.answer("When do you open?") == FALLBACK_TEXT
    assert failovers[0].reason == FailureReason.ERROR


async def test_the_abandoned_request_is_closed(provider: Provider):
    async with guarded(provider, Turn(ANSWER, stall_after=2)) as call:
        await call.bench.answer("When do you open?")
        async with asyncio.timeout(2):
            while not call.server.abandoned:
                await asyncio.sleep(0.01)


def connections_to(url: str) -> int:
    """Return the number of connections of this process as a client."""
    port = urlsplit(url).port
    return sum(bool(one.raddr) and one.raddr.port == port for one in psutil.Process().net_connections("tcp"))


async def test_a_call_that_is_over_holds_no_connection(provider: Provider):
    async with provider.server_type([Turn(("Yes.",))]) as server:
        async with ReplyBench([provider.service(server.url, 0)]) as bench:
            assert await bench.answer("Hello?") == "Yes."
            assert connections_to(server.url) == 1
        # They are closed at once, not by the garbage collector.
        assert connections_to(server.url) == 0


async def test_an_interruption_reaches_the_service_and_the_next_turn_works(provider: Provider):
    async with guarded(provider, Turn(ANSWER, between_ms=100), Turn(ANSWER)) as call:
        await call.bench.ask("When do you open?")
        async with asyncio.timeout(2):
            while not call.bench.text:
                await asyncio.sleep(0.01)
        await call.bench.interrupt()
        await call.bench.until(1)
        assert await call.bench.answer("And tomorrow?") == TEXT
        assert call.bench.pairs == "<><>"
        assert call.failovers == []


async def test_a_function_call_passes_untouched(provider: Provider):
    called: list[str] = []

    async def look_up(params: FunctionCallParams) -> None:
        called.append(params.function_name)
        # Longer than every deadline of an answer.
        await asyncio.sleep(0.8)
        await params.result_callback({"open": "ten"})

    tools = ToolsSchema(
        standard_tools=[FunctionSchema(name="look_up", description="hours", properties={}, required=[])]
    )
    context = LLMContext([{"role": "user", "content": "When do you open?"}], tools=tools)
    async with guarded(provider, Turn(tool="look_up"), Turn(ANSWER)) as call:
        call.llm.register_function("look_up", look_up)
        await call.bench.ask(context)
        await call.bench.until(1)
        await asyncio.sleep(0.8)
        await call.bench.ear.push_frame(LLMContextFrame(context), FrameDirection.UPSTREAM)
        await call.bench.until(2)
        assert called == ["look_up"]
        assert call.bench.text == TEXT
        assert call.failovers == []


def dialogue() -> LLMContext:
    return LLMContext(
        [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hi, how can I help?"},
            {"role": "user", "content": "When do you open?"},
        ]
    )


async def test_claude_is_asked_to_cache_the_system_prompt_and_the_history(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    async with guarded(Provider(AnthropicServer, claude), Turn(ANSWER, cached_tokens=2048)) as call:
        await call.bench.answer(dialogue())
        (body,) = call.server.requests
        assert body["stream"] is True
        assert body["system"] == [{"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral"}}]
        marked = [
            (message["role"], "cache_control" in block)
            for message in body["messages"]
            for block in message["content"]
            if isinstance(block, dict)
        ]
        assert [role for role, mark in marked if mark] == ["user", "user"]
        assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
        assert call.server.headers[0]["X-Api-Key"] == "test-key"


async def test_tokens_read_from_the_cache_are_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    for name, server_type, service in (
        ("anthropic", AnthropicServer, claude),
        ("openai", OpenAiServer, compatible),
    ):
        async with server_type([Turn(ANSWER, cached_tokens=2048)]) as server:
            llm = service(server.url, 0)
            async with ReplyBench([llm], metrics=True, usage=True) as bench:
                await bench.answer(dialogue())
                await asyncio.sleep(0.05)
            usage = [
                data.value.cache_read_input_tokens
                for _, frame in bench.ear.frames
                if isinstance(frame, MetricsFrame)
                for data in frame.data
                if isinstance(data, LLMUsageMetricsData)
            ]
            assert usage == [2048], name


async def test_the_compatible_row_sends_what_every_server_understands():
    async with guarded(Provider(OpenAiServer, compatible), Turn(ANSWER)) as call:
        context = dialogue()
        context.add_message({"role": "developer", "content": "Be brief."})
        await call.bench.answer(context)
        (body,) = call.server.requests
        assert body["model"] == "m"
        assert body["max_tokens"] == 400
        assert "max_completion_tokens" not in body
        assert {message["role"] for message in body["messages"]} <= {"system", "user", "assistant"}
        assert body["messages"][0] == {"role": "system", "content": PROMPT}
        assert call.server.headers[0]["Authorization"] == "Bearer none"


async def test_an_answer_outside_of_a_pipeline_has_the_tokens_that_the_provider_reports(provider: Provider):
    async with provider.server_type([Turn(ANSWER)]) as server:
        service = provider.service(server.url, 0)
        for _ in range(2):
            assert await service.run_inference(LLMContext([{"role": "user", "content": "Hi"}])) == TEXT
            counted: AnswerCount = getattr(service, "counted")  # noqa: B009
            assert counted.usage == Usage(prompt_tokens=12, completion_tokens=3)
            assert counted.model == server.requests[-1]["model"]
        await service.cleanup()
