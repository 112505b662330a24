"""Contract of all tools, the fake included.

A key has one effect, a failure is an EngineError, and a result is an object.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from parley.contracts.tools import ToolContract
from parley.core.errors import EngineError
from parley.models.tools import TOOLS, EffectUnknownError, Tool
from parley.models.tools.webhook import WebhookSettings, WebhookTool
from tests.fakes.tools import ORDER, FakeTool
from tests.peers.webhook_server import WebhookServer

TEA = {"item": "tea", "count": 2}


@dataclass
class Bench:
    """A tool and the state that it acts on."""

    tool: Tool
    effects: Callable[[], dict[str, int]]
    seen: Callable[[], list[Any]]
    fail: Callable[[], None]
    break_off: Callable[[], None]
    hold: Callable[[], asyncio.Event]


@asynccontextmanager
async def webhook(server: WebhookServer | None = None, **settings: Any) -> AsyncIterator[Any]:
    async with server or WebhookServer() as running, aiohttp.ClientSession() as http:
        given = {
            "name": "order",
            "description": "Orders something.",
            "parameters": ORDER,
            "idempotent": True,
            "url": running.url,
            "timeout_s": 5,
            **settings,
        }
        yield running, TOOLS.create("webhook", WebhookSettings(**given), http)


@asynccontextmanager
async def webhook_bench() -> AsyncIterator[Bench]:
    async with webhook() as (server, tool):

        def hold() -> asyncio.Event:
            server.hold = asyncio.Event()
            return server.reached

        yield Bench(
            tool,
            effects=lambda: dict(server.effects),
            seen=lambda: server.requests,
            fail=lambda: setattr(server, "status", 409),
            break_off=lambda: setattr(server, "drops", True),
            hold=hold,
        )


@asynccontextmanager
async def fake_bench() -> AsyncIterator[Bench]:
    tool = FakeTool(idempotent=True)

    def hold() -> asyncio.Event:
        tool.hold = asyncio.Event()
        return tool.reached

    yield Bench(
        tool,
        effects=lambda: {key: tool.effects.count(key) for key in tool.effects},
        seen=lambda: tool.arguments,
        fail=lambda: setattr(tool, "answer", EngineError("no", engine="order")),
        break_off=lambda: setattr(tool, "answer", EffectUnknownError("no", engine="order")),
        hold=hold,
    )


@pytest.fixture(params=[webhook_bench, fake_bench], ids=["webhook", "fake"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with request.param() as made:
        yield made


class TestTool(ToolContract):
    """The contract (``parley.contracts``), on every tool."""

    @pytest.fixture
    def tool(self, bench: Bench) -> Tool:
        return bench.tool

    @pytest.fixture
    def arguments(self) -> dict[str, Any]:
        return TEA


async def test_it_says_what_it_is(bench: Bench):
    assert bench.tool.name == "order"


async def test_it_takes_effect_with_its_arguments_and_answers_with_an_object(bench: Bench):
    assert await bench.tool.run(TEA, key="a") == {"number": 7}
    assert bench.seen() == [TEA]
    assert bench.effects() == {"a": 1}


async def test_the_same_key_is_one_effect_and_another_one_is_another(bench: Bench):
    assert bench.tool.idempotent
    for key in ("a", "a", "b"):
        assert await bench.tool.run(TEA, key=key) == {"number": 7}
    assert bench.effects() == {"a": 1, "b": 1}


async def test_a_refusal_is_an_engine_error_that_says_that_nothing_happened(bench: Bench):
    bench.fail()
    with pytest.raises(EngineError) as caught:
        await bench.tool.run(TEA, key="a")
    assert not isinstance(caught.value, EffectUnknownError)
    assert caught.value.engine == "order"


async def test_what_breaks_off_leaves_the_effect_unknown(bench: Bench):
    bench.break_off()
    with pytest.raises(EffectUnknownError):
        await bench.tool.run(TEA, key="a")


async def test_it_can_be_cancelled_and_used_again(bench: Bench):
    reached = bench.hold()
    run = asyncio.ensure_future(bench.tool.run(TEA, key="a"))
    async with asyncio.timeout(5):
        await reached.wait()
    run.cancel()
    await asyncio.wait({run})
    assert run.cancelled()
    assert bench.effects() == {"a": 1}


# Tests of the webhook only


async def test_a_request_is_what_the_deployment_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ORDER_TOKEN", "Bearer abc")
    async with webhook(headers={"X-Shop": "1"}, headers_env={"Authorization": "ORDER_TOKEN"}) as (
        server,
        tool,
    ):
        await tool.run({"item": "caf\u00e9"}, key="session.tool.1.abc")
        [sent] = server.request_headers
        assert server.paths == ["POST /order"]
        assert server.requests == [{"item": "caf\u00e9"}]
        assert sent["Idempotency-Key"] == "session.tool.1.abc"
        assert sent["Authorization"] == "Bearer abc"
        assert sent["X-Shop"] == "1"
        assert sent["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "content_type", "result"),
    [
        (b'{"number": 7}', "application/json", {"number": 7}),
        (b'{"number": 7}', "application/problem+json; charset=utf-8", {"number": 7}),
        (b"[1, 2]", "application/json", {"result": [1, 2]}),
        (b"null", "application/json", {"result": None}),
        (b"Booked.", "text/plain", {"text": "Booked."}),
        ("Gr\u00fc\u00dfe".encode("latin-1"), "text/plain; charset=latin-1", {"text": "Gr\u00fc\u00dfe"}),
        (b"\xff\xfe", "text/plain; charset=nonsense", {"text": "\ufffd\ufffd"}),
        (b"{oops", "application/json", {"text": "{oops"}),
        (b'{"at": NaN}', "application/json", {"text": '{"at": NaN}'}),
        (b"[" * 2_000, "application/json", {"text": "[" * 2_000}),
        (b"", "application/json", {}),
        (b" \n", "text/plain", {}),
    ],
)
async def test_an_answer_is_json_or_text(body: bytes, content_type: str, result: Any):
    async with webhook(WebhookServer(body=body, content_type=content_type)) as (_server, tool):
        assert await tool.run(TEA, key="a") == result


@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
async def test_an_answer_is_cut_off_at_its_limit(content_type: str):
    body = json.dumps("x" * 5_000_000).encode()
    server = WebhookServer(body=body, content_type=content_type)
    async with webhook(server, max_response_bytes=1_000) as (_server, tool):
        assert await tool.run(TEA, key="a") == {"text": body[:1_000].decode(), "cut_off": True}


async def test_an_answer_of_just_the_limit_is_whole():
    server = WebhookServer(body=b"x" * 256, content_type="text/plain")
    async with webhook(server, max_response_bytes=256) as (_server, tool):
        assert await tool.run(TEA, key="a") == {"text": "x" * 256}


@pytest.mark.parametrize(
    ("status", "body", "unknown", "reason"),
    [
        (400, {"error": "no  table\nfor 20"}, False, 'its server refused (status 400): {"error":'),
        (401, {}, False, "its server refused (status 401)"),
        (409, {"error": "taken"}, False, "its server refused (status 409)"),
        (429, {}, False, "its server refused (status 429)"),
        (503, {}, False, "its server is not available (status 503)"),
        (500, {"error": "oops"}, True, "its server failed (status 500)"),
        (502, {}, True, "its server failed (status 502)"),
        (504, {}, True, "its server failed (status 504)"),
    ],
)
async def test_a_status_says_whether_it_took_effect(status: int, body: Any, unknown: bool, reason: str):
    async with webhook(WebhookServer(status=status, body=body)) as (_server, tool):
        with pytest.raises(EngineError) as caught:
            await tool.run(TEA, key="a")
        assert isinstance(caught.value, EffectUnknownError) is unknown
        assert str(caught.value).startswith(reason)


async def test_the_reason_of_a_refusal_is_one_short_line():
    async with webhook(
        WebhookServer(status=409, body=b"No  table\nleft. " * 100, content_type="text/plain")
    ) as (_server, tool):
        with pytest.raises(EngineError, match=r"status 409\): No table left\. No table") as caught:
            await tool.run(TEA, key="a")
        assert len(str(caught.value)) < 400


async def test_a_page_for_a_browser_is_no_reason():
    async with webhook(WebhookServer(status=404, body=b"<h1>Hi</h1>", content_type="text/html")) as (
        _s,
        tool,
    ):
        with pytest.raises(EngineError) as caught:
            await tool.run(TEA, key="a")
        assert str(caught.value) == "its server refused (status 404)"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int):
    async with WebhookServer() as elsewhere:
        server = WebhookServer(status=status, headers={"Location": elsewhere.url})
        async with webhook(server) as (_server, tool):
            with pytest.raises(EngineError, match=f"elsewhere .status {status}"):
                await tool.run(TEA, key="a")
        assert elsewhere.requests == []


async def test_a_server_that_is_not_there_has_not_got_the_call():
    async with WebhookServer() as server:
        url = server.url
    async with aiohttp.ClientSession() as http:
        tool = WebhookTool(WebhookSettings(name="order", description="d", url=url), http)
        with pytest.raises(EngineError, match="cannot be reached") as caught:
            await tool.run(TEA, key="a")
        assert not isinstance(caught.value, EffectUnknownError)


async def test_a_slow_server_is_given_up_in_its_time():
    server = WebhookServer(hold=asyncio.Event())
    async with webhook(server, timeout_s=0.2) as (_server, tool):
        with pytest.raises(EffectUnknownError, match=r"did not answer within 0\.2 s"):
            await tool.run(TEA, key="a")
        assert server.effects == {"a": 1}


async def test_a_refusal_whose_explanation_is_late_is_a_refusal():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with aiohttp.ClientSession() as http:
            settings = WebhookSettings(name="order", description="d", url=url, timeout_s=0.3)
            with pytest.raises(EngineError) as caught:
                await WebhookTool(settings, http).run({}, key="a")
            assert str(caught.value) == "its server refused (status 409)"
            assert not isinstance(caught.value, EffectUnknownError)


async def test_a_kept_connection_is_never_used():
    async with webhook() as (server, tool):
        for key in ("a", "b"):
            await tool.run(TEA, key=key)
        assert [headers["Connection"] for headers in server.request_headers] == ["close", "close"]
