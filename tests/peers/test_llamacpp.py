"""A GGUF file with random weights, served by llama.cpp in a child process, behind its registry row."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import openai
import psutil
import pytest
from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import MetricsFrame
from pipecat.metrics.metrics import LLMTokenUsage, LLMUsageMetricsData
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.llm_service import LLMService

from parley.configs.deployment import Deployment
from parley.core.errors import ConfigError, EngineError, ModelFileError
from parley.models.llm.llamacpp.server import LlamaCppServer
from parley.models.llm.llamacpp.settings import LlamaCppSettings, has_chat_template
from parley.models.tools import ToolSettings
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.pipelines.sessions import open_conversations
from parley.processors.dialogue.llm_failover import LlmFailover
from parley.processors.dialogue.llm_timeouts import GuardTuning
from parley.processors.dialogue.services import LlamaCpp, LlamaCppRowSettings
from parley.processors.service_rows import Shared
from parley.session_store.events import Kind
from parley.session_store.settings import StoreSettings
from tests.fakes.reply_bench import ReplyBench
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.tiny_gguf import CHATML_TOOLS, save_tiny_gguf

ROOT = Path(__file__).resolve().parents[2]
LOAD_S = 60
FALLBACK = ("We open at nine.",)
# A busy machine must not cause a failure here.
PATIENT = GuardTuning(
    first_token_ms=20_000, token_gap_ms=20_000, silence_budget_ms=20_000, silent_gap_ms=20_000
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    save_tiny_gguf(folder / "tiny.gguf")
    save_tiny_gguf(folder / "tools.gguf", template=CHATML_TOOLS)
    # Slow enough that an answer of its whole context takes minutes.
    save_tiny_gguf(folder / "slow.gguf", layers=16, width=512)
    return folder


@asynccontextmanager
async def serving(file: Path, **settings: Any) -> AsyncIterator[LlamaCppServer]:
    chosen = {"conversations": 1, "context_tokens": 2_048, "cpu_threads": 1, **settings}
    server = LlamaCppServer(LlamaCppSettings(model=file, **chosen))
    await server.start()
    try:
        yield server
    finally:
        await server.close()


def service(server: LlamaCppServer, file: Path, **settings: Any) -> LLMService[Any]:
    row = LlamaCpp(LlamaCppRowSettings(model=file, **{"max_tokens": 24, "temperature": 0.0, **settings}))
    row.check()
    return row.build(Shared(llamacpp=server), system_instruction="You speak on the phone.")


def usages(bench: ReplyBench) -> list[LLMTokenUsage]:
    return [
        data.value
        for _, frame in bench.ear.frames
        if isinstance(frame, MetricsFrame)
        for data in frame.data
        if isinstance(data, LLMUsageMetricsData)
    ]


async def usage_of(llm: LLMService[Any], context: LLMContext) -> tuple[str, LLMTokenUsage]:
    """Return the text and the usage of an answer."""
    async with ReplyBench([llm], metrics=True, usage=True) as bench:
        answer = await bench.answer(context)
        async with asyncio.timeout(60):
            while not usages(bench):
                await asyncio.sleep(0.01)
        return answer, usages(bench)[-1]


def dialogue(question: str, *earlier: str) -> LLMContext:
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(earlier)
    ]
    return LLMContext([*messages, {"role": "user", "content": question}])


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


async def until_idle(pid: int, within_s: float = 60) -> float:
    """Return the seconds until the child used no processor for half a second."""
    began_s = time.monotonic()
    while True:
        before_s, at_s = cpu_s(pid), time.monotonic()
        await asyncio.sleep(0.5)
        if cpu_s(pid) - before_s < 0.03:
            return at_s - began_s
        assert time.monotonic() - began_s < within_s, "it still computes"


async def test_an_answer_is_streamed_from_the_file(models: Path):
    file = models / "tiny.gguf"
    async with serving(file) as server:
        async with ReplyBench([service(server, file)]) as bench:
            first = await bench.answer("When do you open?")
            assert len(first) == 24 and first.isascii()
            assert bench.pairs == "<>"
            assert len(bench.ear.frames) > 12
            # No sampling at temperature 0.
            assert await bench.answer("When do you open?") == first
            assert await bench.answer("Where are you?") != first
        assert bench.errors == []


async def test_only_the_owner_is_served_and_only_on_loopback(models: Path):
    async with serving(models / "tiny.gguf") as server:
        endpoint = await server.endpoint()
        assert endpoint.base_url.startswith("http://127.0.0.1:")
        assert endpoint.key not in repr(psutil.Process(server.pid).cmdline())
        stranger = openai.AsyncOpenAI(api_key="guess", base_url=endpoint.base_url, max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        await stranger.close()
        listening = {
            one.laddr.ip
            for one in psutil.Process(server.pid).net_connections("tcp")
            if one.status == "LISTEN"
        }
        assert listening == {"127.0.0.1"}


async def test_an_interruption_ends_the_generation(models: Path):
    file = models / "slow.gguf"
    async with serving(file, context_tokens=16_384) as server:
        assert server.pid is not None
        async with ReplyBench([service(server, file, max_tokens=8_192)]) as bench:
            await bench.ask("Tell me everything.")
            async with asyncio.timeout(60):
                while len(bench.text) < 5:
                    await asyncio.sleep(0.01)
            before_s = cpu_s(server.pid)
            await asyncio.sleep(1)
            assert cpu_s(server.pid) - before_s > 0.1
            await bench.interrupt()
            await until_idle(server.pid)
            # The slot is free again: with one conversation at a time, nothing else could be answered.
            said = len(bench.text)
            async with asyncio.timeout(60):
                await bench.ask("Where are you?")
                while len(bench.text) < said + 5:
                    await asyncio.sleep(0.01)


async def test_an_interruption_ends_the_reading_of_a_long_dialogue(models: Path):
    file = models / "slow.gguf"
    async with serving(file, context_tokens=16_384) as server:
        assert server.pid is not None
        async with ReplyBench([service(server, file)]) as bench:
            before_s = cpu_s(server.pid)
            await bench.ask(dialogue("a long story " * 1_200))
            async with asyncio.timeout(60):
                while cpu_s(server.pid) - before_s < 0.3:
                    await asyncio.sleep(0.01)
            assert bench.text == ""
            await bench.interrupt()
            await until_idle(server.pid)
            assert bench.text == ""


async def test_what_was_read_of_each_conversation_is_kept(models: Path):
    file = models / "tiny.gguf"
    first, second = "My card is lost. " * 12, "Is the museum open? " * 12
    async with serving(file) as server:
        for question in (first, second):
            _, usage = await usage_of(service(server, file), dialogue(question))
            # Each begins with the same system prompt, and with nothing else in common.
            assert (usage.cache_read_input_tokens or 0) < 60
        for question in (first, second):
            # One slot for two conversations: the other's cache is restored from memory.
            context = dialogue("And now?", question, "Yes.")
            _, usage = await usage_of(service(server, file), context)
            assert (usage.cache_read_input_tokens or 0) > len(question) * 0.8
            assert usage.prompt_tokens > (usage.cache_read_input_tokens or 0)


async def test_the_oldest_turns_go_when_the_context_is_full(models: Path):
    file = models / "tiny.gguf"
    earlier = [text for number in range(12) for text in (f"Question {number}. " + "so " * 80, "I see. " * 6)]
    async with serving(file, context_tokens=1_024) as server:
        answer, usage = await usage_of(service(server, file), dialogue("And now?", *earlier))
        assert len(answer) == 24
        assert 200 < usage.prompt_tokens < 1_024
        # Omitted turns stay omitted while there is room, so that the rest is read from the cache.
        llm, said = service(server, file), [*earlier, "And now?", "Yes."]
        async with ReplyBench([llm], metrics=True, usage=True) as bench:
            for turns in (earlier, said):
                await bench.answer(dialogue("And now?", *turns))
        first, second = usages(bench)
        assert (second.cache_read_input_tokens or 0) > 0.8 * first.prompt_tokens
        # A dialogue that cannot be shortened goes to the fallback; a question never loses its beginning.
        guard = LlmFailover(service(server, file), ScriptedLanguageModel(FALLBACK), PATIENT)
        async with ReplyBench(guard.processors) as bench:
            assert await bench.answer(dialogue("so " * 1_000)) == FALLBACK[0]
            assert len(await bench.answer("And now?")) == 24


async def test_every_answer_has_room_for_its_longest_length(models: Path):
    file = models / "tiny.gguf"
    # A token is a byte: the dialogue fits into 1,024 and would leave an answer 100.
    earlier = [text for number in range(4) for text in (f"Question {number}. " + "so " * 50, "I see.")]
    async with serving(file, context_tokens=1_024) as server:
        logged: list[str] = []
        sink = logger.add(lambda line: logged.append(line.record["message"]), level="WARNING")
        try:
            llm = service(server, file, max_tokens=300)
            answer, usage = await usage_of(llm, dialogue("And now?", *earlier))
        finally:
            logger.remove(sink)
        assert len(answer) == 300
        assert usage.prompt_tokens <= 1_024 - 300
        (line,) = (line for line in logged if "oldest messages are left out" in line)
        assert any(character.isdigit() for character in line)
        # Neither half an answer nor a question without its beginning.
        async with ReplyBench([service(server, file, max_tokens=300)]) as bench:
            assert await bench.answer(dialogue("so " * 280)) == ""
            (error,) = bench.errors
            assert "no room for an answer" in error.error


async def test_an_answer_that_the_context_ends_is_closed_by_the_fallback(models: Path):
    file = models / "tiny.gguf"
    async with serving(file, context_tokens=512) as server:
        guard = LlmFailover(service(server, file, max_tokens=2_000), ScriptedLanguageModel(FALLBACK), PATIENT)
        async with ReplyBench(guard.processors) as bench:
            answer = await bench.answer("Tell me everything.")
            assert len(answer) > 300
            assert answer.endswith(f"{PATIENT.bridge} {FALLBACK[0]}")
            assert any("the context was used up" in error.error for error in bench.errors)


async def test_a_session_is_summarised_before_the_context_is_full(models: Path, tmp_path: Path):
    chosen = deployment(models / "tiny.gguf", ROOT / "knowledge")
    store = StoreSettings(url=f"sqlite:///{tmp_path}/sessions.db")
    remembering = chosen.remembering.model_copy(update={"store": store})
    chosen = chosen.model_copy(update={"remembering": remembering})
    answering = await LlmRuntime.load(chosen, await asyncio.to_thread(plan_answering, chosen))
    try:
        assert answering.dialogue_tokens is not None
        assert 800 < answering.dialogue_tokens < 2_048 - 400
        async with open_conversations(chosen, answering) as conversations, conversations.open() as session:
            said = ({"text": f"Number {number}: " + "so " * 100, "transport": "text"} for number in range(30))
            await session.append(*(session.draft(Kind.USER_TURN, "user", payload) for payload in said))
            view = session.view()
            # By default the session would be given all of it, and the model most of that.
            assert 30 * 100 < chosen.remembering.conversation.budget_tokens
            assert view.tokens <= answering.dialogue_tokens
            assert "Number 29" in view.messages[-1]["content"]
    finally:
        await answering.close()


async def test_a_child_that_dies_is_replaced_and_the_fallback_answers_meanwhile(models: Path):
    file = models / "slow.gguf"
    async with serving(file) as server:
        llm = service(server, file, max_tokens=2_000)
        guard = LlmFailover(llm, ScriptedLanguageModel(FALLBACK), PATIENT)
        async with ReplyBench(guard.processors) as bench:
            await bench.ask("When do you open?")
            async with asyncio.timeout(60):
                while len(bench.text) < 5:
                    await asyncio.sleep(0.01)
            killed = server.pid
            assert killed is not None
            before = await server.endpoint()
            os.kill(killed, signal.SIGKILL)
            await bench.until(1)
            assert bench.text.endswith(FALLBACK[0])
            async with asyncio.timeout(LOAD_S):
                while (await server.endpoint()).key == before.key:
                    await asyncio.sleep(0.01)
            assert server.pid != killed and not psutil.pid_exists(killed)
        async with ReplyBench([service(server, file)]) as bench:
            assert len(await bench.answer("When do you open?")) == 24


async def test_nothing_is_left_after_the_end(models: Path):
    async with serving(models / "tiny.gguf") as server:
        pid = server.pid
        assert pid is not None
    assert not psutil.pid_exists(pid)
    with pytest.raises(EngineError):
        await server.endpoint()


async def test_a_child_ends_with_an_owner_that_is_killed(models: Path):
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from parley.models.llm.llamacpp.server import LlamaCppServer\n"
        "from parley.models.llm.llamacpp.settings import LlamaCppSettings\n"
        "async def main():\n"
        "    server = LlamaCppServer(LlamaCppSettings(model=Path(sys.argv[1])))\n"
        "    await server.start()\n"
        "    print(server.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, str(models / "tiny.gguf")]
    owner = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    async with asyncio.timeout(LOAD_S):
        pid = int(await owner.stdout.readline())
    owner.kill()
    await owner.wait()
    async with asyncio.timeout(60):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.02)


async def test_tools_are_offered_where_the_template_has_a_place_for_them(models: Path):
    look_up = FunctionSchema(name="look_up_hours", description="hours", properties={}, required=[])
    tools = ToolsSchema(standard_tools=[look_up])
    file = models / "tools.gguf"
    async with serving(file) as server:
        assert server.uses_tools
        _, without = await usage_of(service(server, file), dialogue("When?"))
        context = LLMContext([{"role": "user", "content": "When?"}], tools=tools)
        _, with_tools = await usage_of(service(server, file), context)
        # The model reads the tools by its own template.
        assert with_tools.prompt_tokens > without.prompt_tokens + len("look_up_hours")
    async with serving(models / "tiny.gguf") as server:
        assert not server.uses_tools


def deployment(file: Path, knowledge: Path) -> Deployment:
    return Deployment.model_validate(
        {
            "bot": {"knowledge": str(knowledge)},
            "thinking": {
                "llm": {
                    "name": "llamacpp",
                    "settings": {"model": str(file), "cpu_threads": 1, "context_tokens": 2_048},
                },
                "fallback": {"name": "documents"},
                "guard": {"first_token_ms": PATIENT.first_token_ms},
            },
        }
    )


async def test_a_deployment_starts_the_server_and_ends_it(models: Path):
    for name, calls_tools in (("tiny.gguf", False), ("tools.gguf", True)):
        chosen = deployment(models / name, ROOT / "knowledge")
        answering = await LlmRuntime.load(chosen, await asyncio.to_thread(plan_answering, chosen))
        try:
            assert answering.calls_tools is calls_tools
            assert answering.speaks_first
            server = answering.shared.llamacpp
            assert server is not None and server.pid is not None
            processors = await answering.build()
            async with ReplyBench(processors) as bench:
                assert len(await bench.answer("When do you open?")) > 100
        finally:
            pid = server.pid
            await answering.close()
        assert not psutil.pid_exists(pid)


http_sessions: list[aiohttp.ClientSession] = []


class BrokenTool:
    """Tool whose constructor fails."""

    def __init__(self, settings: ToolSettings, http: aiohttp.ClientSession) -> None:
        http_sessions.append(http)
        raise OSError("no calendar")

    async def run(self, arguments: Any, *, key: str) -> Any: ...


async def test_the_server_and_the_http_session_end_when_a_tool_cannot_be_created(models: Path):
    chosen = deployment(models / "tools.gguf", ROOT / "knowledge")
    tool = ToolSettings(name="book", description="Book a table.")
    plan = replace(await asyncio.to_thread(plan_answering, chosen), tools=((f"{__name__}:BrokenTool", tool),))
    before = psutil.Process().children(recursive=True)
    with pytest.raises(ConfigError, match="BrokenTool' cannot be created: OSError: no calendar"):
        await LlmRuntime.load(chosen, plan)
    assert [http.closed for http in http_sessions] == [True]
    assert psutil.Process().children(recursive=True) == before


def test_a_missing_or_other_file_says_what_to_do(models: Path, tmp_path: Path):
    settings = LlamaCppRowSettings(models_dir=tmp_path)
    expected = r"qwen2\.5.*\.gguf, which does not exist: run `make models ARGS=llamacpp`"
    with pytest.raises(ModelFileError, match=expected):
        LlamaCpp(settings).check()
    (tmp_path / "note.gguf").write_text("no model")
    with pytest.raises(ConfigError, match="not a GGUF file"):
        LlamaCppSettings(model=tmp_path / "note.gguf").check()
    plain = save_tiny_gguf(tmp_path / "plain.gguf", template=None)
    assert has_chat_template(models / "tiny.gguf")
    assert not has_chat_template(plain)
    with pytest.raises(ConfigError, match="no chat template"):
        LlamaCppSettings(model=plain).check()
    template = tmp_path / "chat.jinja"
    with pytest.raises(ModelFileError, match=r"chat\.jinja"):
        LlamaCppSettings(model=plain, chat_template=template).check()
    template.write_text(CHATML_TOOLS)
    LlamaCppSettings(model=plain, chat_template=template).check()
    (tmp_path / "llamacpp").mkdir()
    (tmp_path / "llamacpp" / "mine.gguf").symlink_to(plain)
    assert LlamaCppSettings(model=Path("mine.gguf"), models_dir=tmp_path).file.is_file()


async def test_a_template_of_ones_own_replaces_that_of_the_file(tmp_path: Path):
    plain = save_tiny_gguf(tmp_path / "plain.gguf", template=None)
    template = tmp_path / "chat.jinja"
    template.write_text(CHATML_TOOLS)
    async with serving(plain, chat_template=template) as server:
        assert server.uses_tools


async def test_a_file_that_does_not_load_is_named(tmp_path: Path):
    broken = tmp_path / "broken.gguf"
    whole = save_tiny_gguf(tmp_path / "whole.gguf").read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EngineError, match=r"broken\.gguf does not load"):
        async with serving(broken):
            pass
