"""Calls that did not reach an MCP server are noted while they run, and not beyond that."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from mcp import Client

from parley.models.tools import EffectUnknownError
from parley.models.tools.mcp_server import KEY_FIELD, McpAddress, McpServer, UnreachedCalls


def request_of(key: str) -> bytes:
    return json.dumps({"params": {"_meta": {KEY_FIELD: key}}}).encode()


class Page:
    """Page of a server's list of tools, as the protocol's client returns it."""

    tools = ()
    next_cursor = None


class ProtocolClient:
    """Client of the protocol whose first call does not reach the server, and ends in another way than that.

    Later calls reach it, and their connection breaks.
    """

    def __init__(self, unreached: UnreachedCalls, first_end: Exception | None) -> None:
        self._unreached, self._first_end = unreached, first_end
        self.calls = 0

    async def list_tools(self, **_: Any) -> Page:
        return Page()

    async def call_tool(self, _tool: str, _arguments: Any, *, meta: Any) -> None:
        self.calls += 1
        if self.calls > 1:
            raise OSError("the connection was reset")
        self._unreached.note(request_of(meta[KEY_FIELD]))
        if self._first_end is not None:
            raise self._first_end
        await asyncio.Event().wait()


class Server(McpServer):
    """Server that is reached by the protocol client of the test."""

    def __init__(self, first_end: Exception | None) -> None:
        super().__init__(McpAddress(url="http://unused.example"))
        self.reached = ProtocolClient(self._unreached, first_end)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Client]:
        yield cast(Client, self.reached)


@pytest.mark.parametrize("first_end", [RuntimeError("odd result"), None], ids=["odd result", "timeout"])
async def test_a_call_that_ended_otherwise_is_not_run_again_by_a_later_failure(first_end: Exception | None):
    server = Server(first_end)
    await server.open()
    try:
        with pytest.raises(EffectUnknownError):
            await server.call("order", {}, key="k", timeout_s=60 if first_end else 0.1)
        with pytest.raises(EffectUnknownError):
            await server.call("order", {}, key="k", timeout_s=60)
        assert server.reached.calls == 2
    finally:
        await server.close()


async def test_a_call_that_was_cancelled_leaves_nothing_noted():
    server = Server(None)
    await server.open()
    try:
        call = asyncio.create_task(server.call("order", {}, key="k", timeout_s=60))
        async with asyncio.timeout(60):
            while not server.reached.calls:
                await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        with pytest.raises(EffectUnknownError):
            await server.call("order", {}, key="k", timeout_s=60)
        assert server.reached.calls == 2
    finally:
        await server.close()


def test_a_note_that_comes_after_its_call_is_not_kept():
    unreached = UnreachedCalls()
    with unreached.watching("k"):
        pass
    unreached.note(request_of("k"))
    with unreached.watching("k"):
        assert not unreached.take("k")
        unreached.note(request_of("k"))
        assert unreached.take("k") and not unreached.take("k")
