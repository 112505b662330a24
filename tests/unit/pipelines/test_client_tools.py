"""Tools that a client runs: called, answered, late, disconnected."""

import json
from typing import Any

import pytest

from parley.core.errors import EngineError
from parley.models.tools import EffectUnknownError
from parley.pipelines.call import SocketClient
from parley.pipelines.sockets.client_tools import RunByClient, client_tools
from parley.protocols.client_protocol import ClientTool, SessionUpdate

TOOL = ClientTool("order", "Orders.", {"type": "object", "properties": {}})


def answered(with_: Any) -> tuple[RunByClient, list[tuple[str, str, str, float]]]:
    asked: list[tuple[str, str, str, float]] = []

    async def run_tool(key: str, name: str, arguments: str, timeout_s: float) -> str:
        asked.append((key, name, arguments, timeout_s))
        if isinstance(with_, Exception):
            raise with_
        return with_

    return RunByClient(TOOL, SocketClient(run_tool=run_tool)), asked


async def test_the_client_is_asked_with_the_arguments_and_its_object_is_the_result():
    tool, asked = answered('{"number": 7}')
    assert await tool.run({"item": "tea"}, key="k") == {"number": 7}
    assert asked == [("k", "order", '{"item": "tea"}', tool.timeout_s)]


@pytest.mark.parametrize("output", ["sunny", "[1, 2]", "7", "", "[" * 100_000])
async def test_what_is_no_object_is_the_output_as_it_is(output: str):
    tool, _ = answered(output)
    assert await tool.run({}, key="k") == {"output": output}


@pytest.mark.parametrize(
    "error", [EngineError("gone", engine="order"), EffectUnknownError("late", engine="order")]
)
async def test_a_client_that_is_gone_or_late_is_told_as_such(error: Exception):
    tool, _ = answered(error)
    with pytest.raises(type(error)):
        await tool.run({}, key="k")


async def test_without_a_client_no_one_knows():
    with pytest.raises(EffectUnknownError):
        await RunByClient(TOOL, SocketClient()).run({}, key="k")


def test_a_clients_tools_are_those_of_its_wish_and_never_run_again_by_themselves():
    client = SocketClient(requested=lambda: SessionUpdate(tools=(TOOL,)))
    [tool] = client_tools(client)
    assert (tool.name, tool.description, tool.idempotent) == ("order", "Orders.", False)
    assert json.dumps(tool.parameters) == json.dumps(TOOL.parameters)
    assert client_tools(SocketClient()) == []
