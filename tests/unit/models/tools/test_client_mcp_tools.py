"""Tools that the MCP server of a client lists: what is offered of them, within bounds."""

from typing import Any

import pytest

from parley.core.errors import ConfigError
from parley.models.tools.client_mcp import usable_tools
from parley.models.tools.mcp_server import McpToolInfo

ANY: dict[str, Any] = {"type": "object", "properties": {}}


def test_what_cannot_be_checked_is_left_out_with_the_reason_and_the_rest_is_offered():
    listed = {
        "look": McpToolInfo("  Looks\nfor things. ", {"$schema": "https://json-schema.org", **ANY}),
        "a" * 201: McpToolInfo("", ANY),
        "refer": McpToolInfo("", {**ANY, "properties": {"a": {"$ref": "#/$defs/a"}}}),
        "large": McpToolInfo("", {**ANY, "description": "x" * 70_000}),
        **{f"odd_{number}": McpToolInfo("", {**ANY, "not": {}}) for number in range(5)},
    }
    tools, left_out = usable_tools(listed)
    assert tools == {"look": McpToolInfo("Looks for things.", ANY)}
    assert "'refer': " in left_out and "'large': its schema is too large" in left_out
    assert left_out.endswith("; and 3 more") and len(left_out) < 1_500


def test_hints_are_kept_where_they_are_short():
    read_only = {"readOnlyHint": True}
    listed = {
        "look": McpToolInfo("", ANY, read_only),
        "tell": McpToolInfo("", ANY, {**read_only, "title": "x" * 3_000}),
    }
    tools, _ = usable_tools(listed)
    assert tools["look"].is_read_only and tools["look"].annotations == read_only
    assert tools["tell"].annotations is None


@pytest.mark.parametrize(
    ("listed", "fault"),
    [
        (
            {
                str(number): McpToolInfo("", {**ANY, "properties": {"a": {"enum": list(range(1_500))}}})
                for number in range(8)
            },
            "over 10000 values",
        ),
        (
            {
                str(number): McpToolInfo("", {**ANY, "properties": {"a": {"type": "string", "pattern": "a"}}})
                for number in range(33)
            },
            "32 patterns",
        ),
        (
            {str(number): McpToolInfo("", {**ANY, "description": "x" * 60_000}) for number in range(5)},
            "name fewer in allowed_tools",
        ),
    ],
)
def test_tools_that_are_too_large_together_are_refused_as_a_whole(listed: dict[str, McpToolInfo], fault: str):
    with pytest.raises(ConfigError, match=fault):
        usable_tools(listed)
