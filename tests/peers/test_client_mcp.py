"""MCP servers that a client brings along: a real MCP server, and what a client is notified of.

The events are those of OpenAI's realtime protocol. Each is checked by the state machine of its order and by
the types of the official client.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import aiohttp
import httpx
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from openai.types.realtime import RealtimeServerEvent

from parley.core.errors import EngineError
from parley.models.tools import EffectUnknownError, Tool
from parley.models.tools.client_mcp import TALKATIVE
from parley.models.tools.mcp_server import McpAddress
from parley.pipelines.sockets.client_mcp import ClientMcp
from parley.protocols.client_mcp import McpApproval, McpDeclaration, McpToolFilter
from parley.protocols.client_protocol import (
    Began,
    Begin,
    Happening,
    Message,
    ProtocolError,
    Send,
    SessionUpdate,
    ToolChoice,
)
from parley.protocols.openai_realtime import OpenAIRealtime
from tests.fakes.silent_host import silent_host
from tests.peers.llm_script import Turn
from tests.peers.realtime_caller import RealtimeCaller, calling
from tests.peers.server import RunningServer, free_port, running_server
from tests.peers.test_mcp_tools import opened, shop_at
from tests.peers.test_openai_realtime import errors, events_of, session_of, typed
from tests.peers.test_tools import CallingOpenAi, Calls
from tests.realtime_order import Order

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "sesame-opens-it"
# Types of the official client, by the type of the event.
TYPES: Mapping[str, Any] = {
    name: kind
    for kind in get_args(get_args(RealtimeServerEvent)[0])
    for name in get_args(kind.model_fields["type"].annotation)
}


class Line:
    """Client of the protocol and the servers that it has declared, without a pipeline.

    Attributes:
        events: events for the client, in order.
    """

    def __init__(self, port: int, **more: Any) -> None:
        self.protocol = OpenAIRealtime("parley")
        self.order = Order()
        self.events: list[Message] = []
        self.gone = asyncio.Event()
        self.port = port
        self._came = asyncio.Event()
        self.mcp = ClientMcp(
            [f"127.0.0.1:{port}"],
            report=self.report,
            renew=lambda: None,
            functions=tuple,
            until_requested=self._requested,
            gone=self.gone,
            **more,
        )
        self.report(Began("session-1"))

    async def _requested(self) -> None:
        """Have requested the answer already."""

    def report(self, happening: Happening) -> None:
        self._take(self.protocol.messages_for(happening, 0))

    def _take(self, messages: Any) -> None:
        for message in messages:
            self.order.take(json.loads(json.dumps(message)))
            TYPES[message["type"]].model_validate(message, strict=True)
        self.events += messages
        self._came.set()

    def say(self, type_: str, **fields: Any) -> None:
        """Send an event of the client, and do what it requests."""
        for action in self.protocol.read(json.dumps({"type": type_, **fields}), 0):
            match action:
                case Send(message):
                    self._take([message])
                case SessionUpdate(mcp=servers) if servers is not None:
                    self.mcp.use(servers, is_update=True)
                case McpApproval():
                    self.mcp.answer(action)
                case _:
                    assert isinstance(action, Begin | SessionUpdate)

    def declare(self, **fields: Any) -> None:
        server = {"type": "mcp", "server_label": "shop", "server_url": f"http://127.0.0.1:{self.port}/mcp"}
        self.say("session.update", session={"type": "realtime", "tools": [{**server, **fields}]})

    def tool(self, name: str) -> Tool:
        [found] = [tool for tool in self.mcp.tools({"shop_order"}) if tool.name == name]
        return found

    def of(self, type_: str) -> list[Message]:
        return [event for event in self.events if event["type"] == type_]

    async def until(self, type_: str, count: int = 1) -> Message:
        async with asyncio.timeout(20):
            while len(found := self.of(type_)) < count:
                self._came.clear()
                await self._came.wait()
            return found[count - 1]

    def calls(self) -> list[Message]:
        """Return the calls that are over, as items."""
        items = [event["item"] for event in self.of("conversation.item.done")]
        return [item for item in items if item["type"] == "mcp_call"]


@asynccontextmanager
async def listed(port: int, *, fields: Mapping[str, Any] | None = None, **more: Any) -> AsyncIterator[Line]:
    """Hold a client whose server has been listed."""
    line = Line(port, **more)
    try:
        line.declare(**(fields or {}))
        await line.until("mcp_list_tools.completed")
        yield line
    finally:
        await line.mcp.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[int, Path]]:
    folder, port = tmp_path_factory.mktemp("shop"), free_port()
    async with shop_at(port, folder):
        yield port, folder


NEVER = {"require_approval": "never"}


async def test_tools_are_listed_and_called_with_the_clients_credential(
    shop: tuple[int, Path],
):
    port, folder = shop
    fields = {**NEVER, "authorization": SECRET, "headers": {"X-Shop": SECRET + "-too"}}
    async with listed(port, fields=fields) as line:
        [item] = [each["item"] for each in line.of("conversation.item.done")]
        tools = {tool["name"]: tool for tool in item["tools"]}
        assert item["server_label"] == "shop" and tools["order"]["input_schema"]["required"] == ["item"]
        assert tools["enter"]["annotations"] == {"readOnlyHint": True}
        # A schema with rules that are not checked is left out by name, and the others are offered.
        [error] = [event["error"] for event in line.of("error")]
        assert error["code"] == "mcp_tools_left_out" and "'send'" in error["message"]
        assert "send" not in tools
        # The deployment has a tool of the first name already.
        assert await line.tool("shop_order_2").run({"item": "tea"}, key="key-1") == {
            **json.loads(line.calls()[0]["output"])
        }
        assert (folder / "orders").read_text().endswith("tea 1 key-1\n")
        assert await line.tool("shop_enter").run({}, key="k") == {"result": "welcome"}
        assert (folder / "entered").read_text() == f"Bearer {SECRET}"
        # Data, as any other result.
        assert "transfer all money" in str(await line.tool("shop_advise").run({}, key="k"))
        kinds = [event["type"] for event in line.events]
        began = kinds.index("response.created")
        assert kinds[began : kinds.index("response.created", began + 1)] == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.output_item.done",
            "response.done",
            "response.mcp_call.in_progress",
            "response.mcp_call.completed",
            "conversation.item.done",
        ]
        line.order.over()
        assert SECRET not in json.dumps(line.events)
        [session] = [event["session"] for event in line.of("session.updated")]
        assert session["tools"][0]["server_url"] == f"http://127.0.0.1:{port}/<redacted>"


async def test_failures_are_reported_with_what_may_have_happened(shop: tuple[int, Path]):
    async with listed(shop[0], fields=NEVER) as line:
        for name, unknown in (("refuse", False), ("hang", True), ("huge", True)):
            # Ten megabytes take a busy machine a while.
            line.mcp.call_s = 0.5 if name == "hang" else 30
            with pytest.raises(EngineError) as failed:
                await line.tool(f"shop_{name}").run({}, key=f"key-{name}")
            assert isinstance(failed.value, EffectUnknownError) == unknown
        refused, hung, huge = (item["error"] for item in line.calls())
        assert refused["type"] == "tool_execution_error" and "out of stock" in refused["message"]
        assert hung["type"] == "tool_execution_error" and "within 0.5 s; the call may have" in hung["message"]
        assert "over 1048576 bytes; the call may have taken effect" in huge["message"]
        assert len(line.of("response.mcp_call.failed")) == 3
        # The connection is made again where it broke, and the call goes on.
        assert await line.tool("shop_greet").run({"name": "Ada"}, key="k") == {"result": "hello Ada"}
        line.order.over()


async def test_a_call_is_made_after_the_clients_approval_only(shop: tuple[int, Path]):
    port, folder = shop
    rules = {"require_approval": {"never": {"read_only": True}}}
    async with listed(port, fields=rules) as line:
        # The server says that it changes nothing.
        assert await line.tool("shop_enter").run({}, key="k") == {"result": "welcome"}
        order = line.tool("shop_order_2")
        known = (folder / "orders").read_text() if (folder / "orders").exists() else ""
        line.mcp.approval_s = 0.1
        with pytest.raises(EngineError, match="did not answer the request"):
            await order.run({"item": "late"}, key="late")
        line.mcp.approval_s = 60
        for number, answer in enumerate(
            ({"approve": False, "reason": "Too\ndear."}, {"approve": True}), start=2
        ):
            call = asyncio.create_task(order.run({"item": f"tea {number}"}, key=f"asked-{number}"))
            await line.until("response.done", count=number + 1)
            request = line.of("response.done")[-1]["response"]["output"][-1]
            assert request["type"] == "mcp_approval_request" and request["server_label"] == "shop"
            response = {"type": "mcp_approval_response", "approval_request_id": request["id"], **answer}
            line.say("conversation.item.create", item=response)
            if answer["approve"]:
                assert (await call)["ordered"] == "tea 3"
            else:
                with pytest.raises(EngineError, match="and it was not made: Too dear"):
                    await call
        assert (folder / "orders").read_text() == f"{known}tea 3 1 asked-3\n"
        asked = [item for item in line.calls() if item["approval_request_id"]]
        assert [item["error"] is None for item in asked] == [False, False, True]
        # A client that is gone is not waited for.
        line.gone.set()
        with pytest.raises(EngineError, match="the client is gone"):
            await order.run({"item": "gone"}, key="gone")
        line.order.over()


async def test_a_server_that_dies_and_comes_back_is_listed_again_if_it_has_changed(tmp_path: Path):
    port = free_port()
    async with shop_at(port, tmp_path):
        async with listed(port, fields=NEVER) as line:
            # The notification comes by a stream that may be opened after the list is there.
            async with asyncio.timeout(20):
                while len(line.of("mcp_list_tools.completed")) < 2:
                    assert await line.tool("shop_grow").run({}, key="k") == {"result": "changed"}
            names = {tool.name for tool in line.mcp.tools(())}
            assert "shop_sing" in names and "shop_greet" not in names
            sing = line.tool("shop_sing")
            with pytest.raises(EffectUnknownError):
                await line.tool("shop_die").run({}, key="k")
            assert line.calls()[-1]["error"]["message"].endswith("the call may have taken effect")
            async with shop_at(port, tmp_path):
                await line.until("mcp_list_tools.completed", count=3)
                assert await line.tool("shop_greet").run({"name": "Ada"}, key="k") == {"result": "hello Ada"}
                # It was withdrawn while the model called it.
                with pytest.raises(EngineError, match="Unknown tool"):
                    await sing.run({}, key="k")
            line.order.over()


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Hold a server that takes requests and never answers; return its port."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_that_hangs_is_given_up_and_holds_nothing_up():
    async with silent_server() as port:
        line = Line(port, list_s=0.3)
        line.declare()
        await line.until("mcp_list_tools.failed")
        [error] = [event["error"] for event in line.of("error")]
        assert error["code"] == "mcp_list_tools_failed" and "within 0.3 s" in error["message"]
        assert line.mcp.tools(()) == [] and line.mcp.is_listed
        # The same settings again try it again; other settings do not.
        line.say("session.update", session={"instructions": "Be kind."})
        line.declare()
        await line.until("mcp_list_tools.failed", count=2)
        line.order.over()
        # The call ends while a connection is being made.
        line.declare()
        await line.until("mcp_list_tools.in_progress", count=3)
        async with asyncio.timeout(5):
            await line.mcp.close()


async def test_a_client_that_names_server_after_server_is_slowed_down():
    async with silent_server() as port:
        line = Line(port, list_s=0.1)
        for number in range(17):
            line.declare(server_label=f"shop_{number}")
        await line.until("mcp_list_tools.failed", count=17)
        messages = [event["error"]["message"] for event in line.of("error")]
        assert len([each for each in messages if "too many connections, try again in" in each]) == 1
        await line.mcp.close()


async def test_a_server_that_is_withdrawn_ends_its_calls_first(shop: tuple[int, Path]):
    async with listed(shop[0], fields=NEVER, call_s=1.0) as line:
        hanging = asyncio.create_task(line.tool("shop_hang").run({}, key="k"))
        await line.until("response.mcp_call.in_progress")
        line.say("session.update", session={"tools": []})
        assert line.mcp.tools(()) == []
        with pytest.raises(EffectUnknownError, match="within 1 s"):
            await hanging
        line.order.over()


async def test_the_servers_of_a_response_stay_connected_for_the_next_ones(shop: tuple[int, Path]):
    line = Line(shop[0])
    server = McpDeclaration("own", f"http://127.0.0.1:{shop[0]}/mcp")
    line.mcp.use([server])
    assert not line.mcp.is_listed
    await line.mcp.until_listed()
    for _ in range(20):
        line.mcp.use([])
        assert line.mcp.tools(()) == []
        line.mcp.use([server])
        assert line.mcp.is_listed and "own_order" in {tool.name for tool in line.mcp.tools(())}
    line.mcp.use([], is_update=True)
    line.mcp.use([server])
    await line.mcp.until_listed()
    assert len(line.of("mcp_list_tools.completed")) == 2
    await line.mcp.close()
    # A message that is read after the call has ended.
    line.mcp.use([server])
    assert line.mcp.tools(()) == []
    line.order.over()


async def test_a_call_that_ends_with_the_conversation_is_reported(shop: tuple[int, Path]):
    async with listed(shop[0], fields=NEVER) as line:
        hanging = asyncio.create_task(line.tool("shop_hang").run({}, key="k"))
        await line.until("response.mcp_call.in_progress")
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert line.calls()[0]["error"]["message"] == "the call was ended"
        line.order.over()


class FaultyGate:
    """HTTP server before a shop that answers a call of a tool, and one path, with a status.

    It sends requests for another path to the right one, and accepts notifications as Express does.

    Args:
        shop: port of the shop.

    Attributes:
        port: its own.
        status: with which it answers the next call; 200: it passes it on.
    """

    def __init__(self, shop: int) -> None:
        self._shop = shop
        self.status = 200

    async def __aenter__(self) -> "FaultyGate":
        self._client = aiohttp.ClientSession()
        app = web.Application()
        app.router.add_post("/mcp", self._pass_on)
        app.router.add_post("/moved", self._move)
        app.router.add_post("/slash", self._move_within)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _pass_on(self, request: web.Request) -> web.Response:
        body = await request.json()
        status = 200
        if body["method"] == "tools/call":
            status, self.status = self.status, 200
        if status != 200:
            return web.Response(status=status, text=f"no: {request.headers['authorization']}")
        kept = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        url = f"http://127.0.0.1:{self._shop}/mcp"
        async with self._client.post(url, data=await request.read(), headers=kept) as answer:
            passed = ("content-type", "mcp-session-id")
            headers = {name: answer.headers[name] for name in passed if name in answer.headers}
            if answer.status == 202:
                headers["content-type"] = "text/plain"
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def _move_within(self, _request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/mcp")

    async def _move(self, _request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{self._shop}/mcp")


async def test_a_status_of_http_says_whether_the_call_was_made(shop: tuple[int, Path]):
    async with FaultyGate(shop[0]) as gate:
        async with listed(gate.port, fields={**NEVER, "authorization": SECRET}) as line:
            for status, is_unknown in ((401, False), (503, False), (500, True)):
                gate.status = status
                with pytest.raises(EngineError, match=f"answered with status {status}") as failed:
                    await line.tool("shop_greet").run({"name": "Ada"}, key=f"key-{status}")
                assert isinstance(failed.value, EffectUnknownError) == is_unknown
                error = line.calls()[-1]["error"]
                assert (error["type"], error["code"]) == ("http_error", status)
                assert ("may have taken effect" in error["message"]) == is_unknown
            assert SECRET not in json.dumps(line.events)
        # Credentials are for the server that was named.
        line = Line(gate.port)
        line.declare(server_url=f"http://127.0.0.1:{gate.port}/moved")
        await line.until("mcp_list_tools.failed")
        assert "status 307, a redirect that is not followed" in line.of("error")[0]["error"]["message"]
        await line.mcp.close()


async def test_a_server_that_redirects_within_its_origin_is_used_and_only_the_last_attempt_counts(
    shop: tuple[int, Path],
):
    async with FaultyGate(shop[0]) as gate:
        fields = {**NEVER, "authorization": SECRET, "server_url": f"http://127.0.0.1:{gate.port}/slash"}
        async with listed(gate.port, fields=fields) as line:
            assert await line.tool("shop_greet").run({"name": "Ada"}, key="k") == {"result": "hello Ada"}
            # It has forgotten the session: the call is made again on another connection.
            gate.status = 404
            with pytest.raises(EngineError, match="out of stock"):
                await line.tool("shop_refuse").run({}, key="again")
            error = line.calls()[-1]["error"]
            assert (error["type"], gate.status) == ("tool_execution_error", 200)
            line.order.over()


async def test_a_server_that_is_silent_is_not_reached():
    with silent_host() as port:
        line = Line(port)
        line.declare()
        await line.until("mcp_list_tools.failed")
        assert "its host cannot be reached" in line.of("error")[0]["error"]["message"]
        await line.mcp.close()


async def test_a_connection_that_is_withdrawn_as_the_call_ends_is_closed(shop: tuple[int, Path]):
    def connections() -> int:
        return sum(task.get_name() == "tools.mcp" for task in asyncio.all_tasks())

    async with listed(shop[0]) as line:
        assert connections() == 1
        line.mcp.use([], is_update=True)
        await line.mcp.close()
        assert connections() == 0


async def test_the_libraries_log_about_the_operators_servers_and_not_about_those_of_clients(
    shop: tuple[int, Path], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    async with listed(shop[0], fields=NEVER) as line:
        await line.tool("shop_greet").run({"name": "Ada"}, key="k")
        assert [record.name for record in caplog.records if record.name.partition(".")[0] in TALKATIVE] == []
        async with opened(McpAddress(url=f"http://127.0.0.1:{shop[0]}/mcp")):
            names = {record.name for record in caplog.records}
            assert names >= {"mcp.client.streamable_http", "httpx2", "httpcore2.http11"}


async def test_a_choice_names_one_tool_of_a_server_and_one_that_it_has(shop: tuple[int, Path]):
    any_tool, greet = (ToolChoice(is_required=True, name=name, label="shop") for name in (None, "greet"))
    url = f"http://127.0.0.1:{shop[0]}/mcp"
    servers = [
        McpDeclaration("shop", url, allowed=allowed)
        for allowed in (
            None,
            McpToolFilter(frozenset({"greet", "order"})),
            McpToolFilter(frozenset({"greet"})),
        )
    ]
    line = Line(shop[0])
    for is_listed in (False, True):
        for server, has_one in zip(servers, (False, False, True), strict=True):
            line.mcp.use([server])
            if is_listed:
                await line.mcp.until_listed()
            line.mcp.check_choice(greet, [server], param="p")
            known = ToolChoice(is_required=True, name="shop_greet") if is_listed else ToolChoice()
            assert line.mcp.named(greet) == known
            if has_one:
                line.mcp.check_choice(any_tool, [server], param="p")
                assert line.mcp.named(any_tool) == known
            else:
                with pytest.raises(ProtocolError, match="add the name of a tool of 'shop'") as refused:
                    line.mcp.check_choice(any_tool, [server], param="p")
                assert refused.value.code == "not_supported"
    with pytest.raises(ProtocolError, match="'shop' has no tool 'sell'"):
        line.mcp.check_choice(ToolChoice(is_required=True, name="sell", label="shop"), servers, param="p")
    await line.mcp.close()


class Shopper(CallingOpenAi):
    """Model that calls the tool that a message names, and reports the result."""

    async def stream(self, response: Any, turn: Turn) -> None:
        last = self.requests[-1]["messages"][-1]
        words = str(last["content"])
        if last["role"] == "tool":
            await super().stream(response, Turn(("Done.",)))
        elif words.startswith("call "):
            name, _, arguments = words.removeprefix("call ").partition(" ")
            await super().stream(response, Calls(calls=[(name, arguments)]))
        else:
            await super().stream(response, Turn(("Good day.",)))


@asynccontextmanager
async def shopping(llm: Shopper, *ports: int, folder: Path, log: Path) -> AsyncIterator[RunningServer]:
    """Run a server whose clients may bring MCP servers at these ports of this machine."""
    rights = {"client_mcp": True}
    path = folder / "own.yaml"
    settings = {"base_url": f"{llm.url}/v1", "model": "m"}
    path.write_text(
        yaml.safe_dump(
            {
                "thinking": {"llm": {"name": "openai_compatible", "settings": settings}},
                "server": {
                    "clients": {"anonymous": rights, "mcp_hosts": [f"127.0.0.1:{port}" for port in ports]}
                },
            }
        )
    )
    async with running_server("--config", str(path), log=log) as server:
        yield server


async def ask(caller: RealtimeCaller, words: str, **response: Any) -> None:
    """Type words and request their answer."""
    await typed(caller, words)
    await caller.connection.response.create(response=response)


async def approve(caller: RealtimeCaller, request: Any) -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    await caller.connection.conversation.item.create(item={"id": "approval_1", **answer})


def offered(request: Mapping[str, Any]) -> list[str]:
    """Return the tools of a request to the model."""
    return [tool["function"]["name"] for tool in request["tools"]]


@pytest.mark.paired
async def test_the_official_client_brings_a_server_and_the_call_goes_on_whatever_it_does(tmp_path: Path):
    port, log = free_port(), tmp_path / "log"
    shop = {
        "type": "mcp",
        "server_label": "shop",
        "server_url": f"http://127.0.0.1:{port}/mcp",
        "authorization": SECRET,
        "allowed_tools": ["order", "advise", "enter"],
        "require_approval": {"always": {"tool_names": ["order"]}, "never": {"tool_names": ["advise"]}},
    }
    async with (
        shop_at(port, tmp_path),
        silent_server() as silent,
        Shopper([Turn()]) as llm,
        shopping(llm, port, silent, folder=tmp_path, log=log) as server,
    ):
        async with calling(server.url, microphone=False, tools=[shop]) as caller:
            await caller.until("mcp_list_tools.completed")
            # An answer comes on its own after the result, or by the client's request.
            await ask(caller, "call shop_advise {}")
            await caller.until("response.done", count=2)
            result = llm.requests[-1]["messages"][-1]
            assert result["role"] == "tool" and "transfer all money" in result["content"]
            assert set(offered(llm.requests[-1])) == {"shop_order", "shop_advise", "shop_enter"}
            choice = {"type": "mcp", "server_label": "shop", "name": "order"}
            await ask(caller, 'call shop_order {"item": "tea"}', tool_choice=choice)
            first = (await caller.until("response.done", count=3)).response
            assert [item.type for item in first.output] == ["mcp_call", "mcp_approval_request"]
            assert llm.requests[-1]["tool_choice"] == {"type": "function", "function": {"name": "shop_order"}}
            await approve(caller, first.output[1])
            completed = await caller.until("response.mcp_call.completed", count=2)
            assert completed.item_id == first.output[0].id
            await caller.connection.response.create(response={"tool_choice": "none", "metadata": {"n": "2"}})
            done = (await caller.until("response.done", count=4)).response
            assert (done.metadata, done.status) == ({"n": "2"}, "completed")
            # The servers of one response, which is made when their tools are known.
            own = {**shop, "server_label": "own", "require_approval": "never", "allowed_tools": ["enter"]}
            await ask(caller, "call own_enter {}", tools=[own])
            await caller.until("response.done", count=6)
            asked = [each["messages"][-1]["content"] for each in llm.requests]
            assert offered(llm.requests[asked.index("call own_enter {}")]) == ["own_enter"]
            # One that turns out to be impossible ends, and the next one is accepted.
            sole = {**own, "server_label": "sole"}
            choice = {"type": "mcp", "server_label": "sole", "name": "sell"}
            await ask(caller, "never asked", tools=[sole], tool_choice=choice)
            failed = (await caller.until("response.done", count=7)).response
            assert failed.status == "failed" and "never asked" not in json.dumps(llm.requests)
            # A response that is cancelled while its tools are being listed is not made.
            hung = {**own, "server_label": "hung", "server_url": f"http://127.0.0.1:{silent}/mcp"}
            await ask(caller, "call hung_enter {}", tools=[hung])
            await caller.until("mcp_list_tools.in_progress", count=4)
            await caller.connection.response.cancel()
            assert (await caller.until("response.done", count=8)).response.status == "cancelled"
            # Those of the session are there as before, and are not listed again.
            await ask(caller, "call shop_advise {}")
            await caller.until("response.done", count=10)
            assert "hung" not in json.dumps(llm.requests)
            await caller.until("mcp_list_tools.failed")
            assert len(caller.of("mcp_list_tools.completed")) == 3
            assert len(caller.of("response.mcp_call.completed")) == 4
            assert [error.code for error in errors(caller)] == ["invalid_value", "mcp_list_tools_failed"]
            caller.order.over()
        events = await events_of(server, session_of(caller), until="left")
        async with httpx.AsyncClient(base_url=server.url) as client:
            status = (await client.get("/status")).text
    [call, *_] = [event["payload"] for event in events if event["kind"] == "tool_call"]
    assert call["name"] == "shop_advise" and call["client_text"] is True
    [line] = (tmp_path / "orders").read_text().splitlines()
    assert line.startswith("tea 1 ") and session_of(caller) in line
    received = json.dumps([event.to_dict() for event in caller.events])
    for text in (json.dumps(events), status, log.read_text(), received):
        assert SECRET not in text and "/mcp" not in text
