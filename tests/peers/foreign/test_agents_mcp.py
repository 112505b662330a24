"""A hosted MCP tool of OpenAI's agents SDK for JavaScript: listed, approved and called for its client.

The SDK for Python has function tools only in realtime sessions.
"""

import json
from pathlib import Path

import pytest

from parley.evals.foreign.programs import PROGRAMS, WITH_NODE, output_of
from tests.peers.foreign.environment import installed
from tests.peers.llm_script import Turn
from tests.peers.server import free_port
from tests.peers.test_client_mcp import Shopper, shopping
from tests.peers.test_mcp_tools import shop_at

CLIENT = Path(__file__).with_name("agents_mcp_client.cjs")
WORDS = 'call shop_order {"item": "tea"}'


@pytest.mark.slow
@pytest.mark.paired
@pytest.mark.packages
async def test_the_agents_sdk_has_its_mcp_tool_called_after_an_approval(tmp_path: Path):
    modules = await installed(PROGRAMS["agents_js"], tmp_path / "environment")
    port = free_port()
    async with (
        shop_at(port, tmp_path),
        Shopper([Turn()]) as llm,
        shopping(llm, port, folder=tmp_path, log=tmp_path / "log") as server,
    ):
        url = f"{server.url.replace('http', 'ws')}/v1/realtime?model=parley-cascade"
        command = [*WITH_NODE, "node", str(CLIENT), url, f"http://127.0.0.1:{port}/mcp", WORDS]
        out = await output_of(command, CLIENT.name, within_s=90, variables={"NODE_PATH": modules})
    seen = json.loads(out)
    assert (seen["errors"], seen["listed"], seen["approved"]) == ([], [["order"]], ["order"])
    assert [json.loads(output)["ordered"] for output in seen["outputs"]] == ["tea"]
    assert {"mcp_call", "mcp_approval_request"} <= set(seen["history"])
    assert (tmp_path / "orders").read_text().startswith("tea 1 ")
