"""Tool of an MCP server (Model Context Protocol): the server describes it, and carries it out.

One entry of a deployment is one tool. Entries with the same program or address share one server
(``models.tools.mcp_server``). A result that says that the tool failed is a plain failure with the server's
words (``mcp_reasons``); a broken connection or a late answer leaves the effect unknown. The key of a call is
in its ``_meta``, as ``parley/idempotency-key``.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any, Self

from mcp_types import CallToolResult, TextContent
from pydantic import Field, model_validator

from parley.core.errors import ConfigError, EngineError
from parley.models.tools import MAX_RESULT_BYTES, NOT_SHOWN, ToolSettings
from parley.models.tools.arguments import schema_faults
from parley.models.tools.mcp_server import McpAddress, McpServer
from parley.models.tools.webhook import check_address


class McpSettings(ToolSettings):
    """Tool of an MCP server: a program (``command``) or an address (``url``).

    Set ``idempotent`` only if the server carries out calls with the same ``parley/idempotency-key`` once.

    Attributes:
        description: in place of the server's own, where it is given.
        tool: name of the tool at its server; that of ``name`` if not set.
        command: program and its arguments, which is started and started again.
        env_names: variables of the environment that the program gets, in addition to PATH, HOME and the like.
        url: address for streamable HTTP; https, or http on this machine.
        headers_env: header to the environment variable that holds its whole value.
        allow_plain_http: allow http to another machine.
    """

    description: str = Field(default="", max_length=2_000)
    tool: str | None = Field(default=None, min_length=1, max_length=200)
    command: tuple[str, ...] = ()
    env_names: tuple[str, ...] = ()
    url: str = ""
    headers_env: dict[str, str] = Field(default_factory=dict)
    allow_plain_http: bool = False

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("expected either command or url")
        if self.url:
            check_address(self.url, allow_plain_http=self.allow_plain_http)
        return self

    def check(self) -> None:
        """Check that the tool can be used, without a connection.

        Raises:
            ConfigError: an environment variable is not set.
        """
        self.address()

    def address(self) -> McpAddress:
        """Return the server of the tool.

        Raises:
            ConfigError: an environment variable is not set.
        """
        return McpAddress(
            self.command,
            tuple((name, self._variable(name)) for name in self.env_names),
            self.url,
            tuple((header, self._variable(name)) for header, name in self.headers_env.items()),
        )

    def _variable(self, name: str) -> str:
        value = os.environ.get(name, "").strip()
        if not value:
            raise ConfigError(f"the tool {self.name!r} needs the environment variable {name}")
        return value


class McpTool:
    """Tool that an MCP server carries out; implements ``Tool``.

    Args:
        settings: checked.
        server: server of the tool, open.

    Raises:
        ConfigError: the server has no such tool, or its schema has rules that are not checked.
    """

    def __init__(self, settings: McpSettings, server: McpServer) -> None:
        self._tool = settings.tool or settings.name
        info = server.tools.get(self._tool)
        if info is None:
            raise ConfigError(
                f"the tool {settings.name!r}: its MCP server has no tool {self._tool!r}",
                known=tuple(sorted(server.tools)),
            )
        faults = schema_faults(dict(info.parameters))
        if faults:
            raise ConfigError(f"the tool {settings.name!r}: {'; '.join(faults)}")
        self.name = settings.name
        self.description = settings.description or " ".join(info.description.split()) or self._tool
        self.parameters: Mapping[str, Any] = info.parameters
        self.idempotent = settings.idempotent
        self.timeout_s = settings.timeout_s
        self._server = server

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Have the server carry the call out, and return its result, as ``Tool.run``."""
        result = await self._server.call(self._tool, arguments, key=key, timeout_s=self.timeout_s)
        if result.is_error:
            said = self._server.shown(result_text(result))
            reports = "its server reports a failure"
            raise EngineError(f"{reports}: {said}" if said else reports, engine=self.name)
        return await asyncio.to_thread(result_object, result)


def result_object(result: CallToolResult) -> dict[str, Any]:
    """Return a result for the model, or a note in place of one that is too large. Blocks."""
    value = result.structured_content
    if value is None:
        others = len([part for part in result.content if not isinstance(part, TextContent)])
        value = {
            "text": result_text(result),
            **({"not_shown": f"{others} parts without text"} if others else {}),
        }
    if len(json.dumps(value)) > MAX_RESULT_BYTES:
        return {"note": NOT_SHOWN}
    return value if isinstance(value, dict) else {"result": value}


def result_text(result: CallToolResult) -> str:
    """Return the texts of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))
