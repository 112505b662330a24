"""Tools of a real MCP server, by its program and by its address; and in a running Parley server."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from openai import AsyncOpenAI

from parley.core.errors import ConfigError, EngineError
from parley.models.tools import NOT_SHOWN, EffectUnknownError
from parley.models.tools.mcp import McpSettings, McpTool
from parley.models.tools.mcp_server import CONNECT_S, McpAddress, McpServer
from parley.processors.dialogue.durable_tools import UNKNOWN
from tests.peers.llm_script import Turn
from tests.peers.server import free_port, running_server
from tests.peers.test_tools import CallingOpenAi, Calls

STARTED_WITHIN_S = 60
SHOP = Path(__file__).with_name("mcp_tool_server.py")


def command(folder: Path) -> tuple[str, ...]:
    return sys.executable, str(SHOP), str(folder)


@asynccontextmanager
async def shop_at(port: int, folder: Path) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(*command(folder), str(port))
    try:
        async with asyncio.timeout(60), httpx.AsyncClient() as client:
            while True:
                try:
                    await client.get(f"http://127.0.0.1:{port}/mcp")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def address_of(kind: str, folder: Path) -> AsyncIterator[McpAddress]:
    if kind == "program":
        yield McpAddress(command(folder))
        return
    port = free_port()
    async with shop_at(port, folder):
        yield McpAddress(url=f"http://127.0.0.1:{port}/mcp")


@asynccontextmanager
async def opened(address: McpAddress, *, connect_s: float = CONNECT_S) -> AsyncIterator[McpServer]:
    server = McpServer(address, connect_s=connect_s)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


def tool_of(server: McpServer, name: str, **more: Any) -> McpTool:
    return McpTool(McpSettings(name=name, command=("unused",), **more), server)


@pytest.mark.parametrize("kind", ["program", "address"])
async def test_a_tool_is_described_and_carried_out_by_its_server(kind: str, tmp_path: Path):
    async with address_of(kind, tmp_path) as address, opened(address) as server:
        order = tool_of(server, "purchase", tool="order")
        assert (order.name, order.description) == ("purchase", "Order an item.")
        assert order.parameters["required"] == ["item"]
        result = await order.run({"item": "tea", "count": 2}, key="key-1")
        assert (result["ordered"], result["count"]) == ("tea", 2)
        assert (tmp_path / "orders").read_text() == "tea 2 key-1\n"
        greeting = await tool_of(server, "greet").run({"name": "Ada"}, key="key-2")
        assert "hello Ada" in greeting.values()


@pytest.mark.parametrize("kind", ["program", "address"])
async def test_failures_say_whether_something_happened(kind: str, tmp_path: Path):
    async with address_of(kind, tmp_path) as address, opened(address) as server:
        with pytest.raises(EngineError, match="out of stock") as failed:
            await tool_of(server, "refuse").run({}, key="k")
        assert not isinstance(failed.value, EffectUnknownError)
        with pytest.raises(EffectUnknownError, match="within 0.5 s"):
            await tool_of(server, "hang", timeout_s=0.5).run({}, key="k")
        # No model gets ten megabytes.
        huge = tool_of(server, "huge", timeout_s=30)
        if kind == "program":
            assert await huge.run({}, key="k") == {"note": NOT_SHOWN}
        else:
            with pytest.raises(EffectUnknownError, match="exceeded the 1048576 byte limit"):
                await huge.run({}, key="k")
        assert await tool_of(server, "greet").run({"name": "Ada"}, key="k")


async def test_a_server_that_starts_and_does_not_answer_is_started_again(tmp_path: Path):
    async with (
        address_of("program", tmp_path) as address,
        # Longer than a busy machine takes to start the program.
        opened(address, connect_s=10) as server,
    ):
        order = tool_of(server, "order")
        (tmp_path / "stuck").touch()
        psutil.Process((await order.run({"item": "tea"}, key="k"))["process"]).kill()
        # The connection is known to be lost by the first or by the second call.
        for _ in range(2):
            with pytest.raises(EngineError):
                await tool_of(server, "order", timeout_s=2.0).run({"item": "tea"}, key="k")
        (tmp_path / "stuck").unlink()
        async with asyncio.timeout(60):
            while True:
                try:
                    assert (await order.run({"item": "coffee"}, key="k"))["ordered"] == "coffee"
                    break
                except EngineError:
                    continue


async def test_a_server_that_dies_is_an_unknown_effect_and_is_started_again(tmp_path: Path):
    async with address_of("program", tmp_path) as address, opened(address) as server:
        order = tool_of(server, "order")
        first = (await order.run({"item": "tea"}, key="k"))["process"]
        with pytest.raises(EffectUnknownError, match="its server failed|connection to its server broke"):
            await tool_of(server, "die").run({}, key="k")
        second = await process_of(order)
        assert second != first and not psutil.pid_exists(first)
        # One that dies between two calls costs calls until it has started again, and no more.
        psutil.Process(second).kill()
        third = await process_of(order)
        assert third != second
    assert not psutil.pid_exists(third)


async def process_of(order: McpTool) -> int:
    """Return the process that carries out an order, when it has started again.

    On a busy machine that takes longer than a call waits for it.
    """
    async with asyncio.timeout(STARTED_WITHIN_S):
        while True:
            try:
                return int((await order.run({"item": "tea"}, key="k"))["process"])
            except EngineError:
                continue


async def test_a_restart_of_an_address_costs_no_call(tmp_path: Path):
    port = free_port()
    server = McpServer(McpAddress(url=f"http://127.0.0.1:{port}/mcp"))
    try:
        async with shop_at(port, tmp_path):
            await server.open()
            order = tool_of(server, "order", timeout_s=60)
            first = (await order.run({"item": "tea"}, key="a"))["process"]
        async with shop_at(port, tmp_path):
            # The new process does not know the session of the old one, and has carried nothing out.
            again = await order.run({"item": "coffee"}, key="b")
            assert again["ordered"] == "coffee" and again["process"] != first
        assert (tmp_path / "orders").read_text() == "tea 1 a\ncoffee 1 b\n"
    finally:
        await server.close()


async def test_a_server_that_is_being_restarted_is_waited_for(tmp_path: Path):
    port = free_port()
    server = McpServer(McpAddress(url=f"http://127.0.0.1:{port}/mcp"))
    try:
        async with shop_at(port, tmp_path):
            await server.open()
            order = tool_of(server, "order", timeout_s=60)
        # Refused connections carry nothing out.
        with pytest.raises(EngineError, match="is not running") as refused:
            await order.run({"item": "tea"}, key="a")
        assert not isinstance(refused.value, EffectUnknownError)
        assert not (tmp_path / "orders").exists()
    finally:
        await server.close()


async def test_the_words_of_a_failure_are_bounded_marked_and_without_secrets(tmp_path: Path):
    address = McpAddress(command(tmp_path), env=(("SHOP_TOKEN", "sesame-opens-it"),))
    async with opened(address) as server:
        for name in ("leak", "leak_as_protocol_error"):
            with pytest.raises(EngineError) as failed:
                await tool_of(server, name).run({}, key="k")
            said = str(failed.value)
            assert "sesame" not in said and "[removed]" in said
            assert said.startswith("its server ") and len(said) <= 360
            assert "\n" not in said and "\x1b" not in said


async def test_a_server_that_stays_away_is_a_failure_and_nothing_happened(tmp_path: Path):
    async with address_of("address", tmp_path) as address:
        server = McpServer(address)
        await server.open()
    try:
        greet = tool_of(server, "greet", timeout_s=1)
        # The first call finds the connection broken.
        with pytest.raises(EngineError):
            await greet.run({"name": "Ada"}, key="k")
        with pytest.raises(EngineError, match="is not running") as failed:
            await greet.run({"name": "Ada"}, key="k")
        assert not isinstance(failed.value, EffectUnknownError)
    finally:
        await server.close()


@pytest.mark.parametrize(
    "address",
    [
        McpAddress(("/no/such/program",)),
        McpAddress((sys.executable, "-c", "raise SystemExit(1)")),
        McpAddress(url="http://127.0.0.1:9/mcp"),
    ],
)
async def test_a_server_that_does_not_start_is_reported_before_calls_are_served(address: McpAddress):
    with pytest.raises(ConfigError, match="cannot be used"):
        async with asyncio.timeout(60):
            await McpServer(address).open()


async def test_a_tool_that_the_server_does_not_have_is_a_fault_of_the_deployment(tmp_path: Path):
    async with address_of("program", tmp_path) as address, opened(address) as server:
        with pytest.raises(ConfigError, match="no tool 'sell'"):
            tool_of(server, "sell")


class Shop(CallingOpenAi):
    """Model that orders tea, and reports what came of it."""

    async def stream(self, response: Any, turn: Turn) -> None:
        messages: Sequence[Any] = self.requests[-1]["messages"]
        if messages[-1]["role"] == "tool":
            await super().stream(response, Turn((f"It says: {messages[-1]['content']}",)))
        else:
            wanted = str(messages[-1]["content"])
            arguments = '{"item": ""}' if "nothing" in wanted else '{"item": "tea"}'
            name = "die" if "die" in wanted else "order"
            await super().stream(response, Calls(calls=[(name, "{}" if name == "die" else arguments)]))


async def test_a_turn_calls_the_tool_once_and_the_session_has_both(tmp_path: Path):
    async with Shop([Turn(("unused",))]) as llm:
        server = {"command": list(command(tmp_path))}
        tools = [{"name": "mcp", "settings": {"name": name, **server}} for name in ("order", "die")]
        service = {"name": "openai_compatible", "settings": {"base_url": f"{llm.url}/v1", "model": "m"}}
        path = tmp_path / "own.yaml"
        path.write_text(yaml.safe_dump({"thinking": {"llm": service, "tools": tools}}))
        async with (
            running_server("--config", str(path)) as running,
            AsyncOpenAI(api_key="unused", base_url=f"{running.url}/v1", max_retries=0) as openai,
        ):

            async def ask(text: str) -> tuple[str, str]:
                messages: Any = [{"role": "user", "content": text}]
                answer = await openai.chat.completions.create(model="parley", messages=messages)
                assert answer.model_extra is not None
                return str(answer.choices[0].message.content), answer.model_extra["parley"]["session"]

            said, session = await ask("I want tea.")
            assert '"ordered"' in said and "tea" in said
            offered = {each["function"]["name"] for each in llm.requests[0]["tools"]}
            assert offered == {"order", "die"}
            async with httpx.AsyncClient(base_url=running.url) as client:
                found = await client.get(f"/api/sessions/{session}/timeline", params={"limit": 100})
            kinds = [event["kind"] for event in found.json()["events"]]
            assert kinds.count("tool_call") == kinds.count("tool_result") == 1
            [line] = (tmp_path / "orders").read_text().splitlines()
            assert line.startswith("tea 1 ") and session in line
            # Arguments that do not fit never reach the server.
            said, _ = await ask("I want nothing.")
            assert len((tmp_path / "orders").read_text().splitlines()) == 1
            said, _ = await ask("Please die.")
            assert UNKNOWN.partition(";")[0] in said
            async with asyncio.timeout(STARTED_WITHIN_S):
                while '"ordered"' not in (await ask("I want tea again."))[0]:
                    # It starts again, for longer than a call waits where the machine is busy.
                    continue
