"""Contract of tools (``models.tools``)."""

import json
from collections.abc import Mapping
from typing import Any

from parley.models.tools import Tool
from parley.models.tools.arguments import argument_faults, schema_faults


class ToolContract:
    """Tests of a tool; needs the fixtures ``tool`` and ``arguments``, with which a run succeeds.

    The event loop of the tests has to support coroutines: pytest-asyncio, with ``asyncio_mode = "auto"``.
    """

    def test_it_describes_itself_to_the_model(self, tool: Tool) -> None:
        assert tool.name and tool.description
        assert schema_faults(tool.parameters) == []
        assert tool.timeout_s > 0

    def test_its_schema_accepts_the_arguments(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        assert argument_faults(tool.parameters, dict(arguments)) == []

    async def test_its_result_is_a_json_object(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        result = await tool.run(arguments, key="first")
        assert isinstance(json.loads(json.dumps(result, allow_nan=False)), dict)

    async def test_an_idempotent_tool_gives_the_same_result_for_the_same_key(
        self, tool: Tool, arguments: Mapping[str, Any]
    ) -> None:
        first = await tool.run(arguments, key="first")
        if tool.idempotent:
            assert await tool.run(arguments, key="first") == first
