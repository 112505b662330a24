"""Resolution of the tools that a deployment names: a row of ``TOOLS``, or a function of another package."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import aiohttp
from pydantic import BaseModel

from parley.configs.deployment import Choice, Thinking
from parley.configs.engines import settings_model
from parley.configs.load import parse_settings
from parley.core.errors import ConfigError, one_line
from parley.core.files import Checked
from parley.core.registry import is_target
from parley.models.tools import TOOLS, Tool, ToolSettings
from parley.models.tools.function_tool import FunctionTool, arguments_model, is_tool_class
from parley.models.tools.mcp_server import McpAddress, McpServer, McpServers

MCP = "mcp"


def plan_tools(thinking: Thinking) -> tuple[tuple[str, ToolSettings], ...]:
    """Return names in ``TOOLS`` and their checked settings.

    Raises:
        ConfigError: an unknown name or field, a variable that is not set, two tools of one name, a function
            whose parameters cannot be described to a model.
    """
    tools: list[tuple[str, ToolSettings]] = []
    names: set[str] = set()
    for index, choice in enumerate(thinking.tools):
        where = f"thinking.tools.{index}"
        settings = _tool_settings(choice, where=f"{where} ({choice.name})")
        if settings.name in names:
            raise ConfigError(f"{where} ({choice.name}): there is already a tool {settings.name!r}")
        names.add(settings.name)
        tools.append((choice.name, settings))
    return tuple(tools)


def tool_settings_model(factory: Callable[..., Any]) -> type[BaseModel]:
    """Return the model of the settings of a tool; a function has those of every tool."""
    return settings_model(factory) if isinstance(factory, type) else ToolSettings


def tool_defaults(name: str, factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings that a function provides itself: its name, and its docstring as description."""
    if is_tool_class(factory):
        return {}
    required = {
        field: info for field, info in tool_settings_model(factory).model_fields.items() if info.is_required()
    }
    known = {
        "name": name.partition(":")[2] if is_target(name) else name,
        "description": " ".join((inspect.getdoc(factory) or "").split()),
    }
    return {field: value for field, value in known.items() if value and field in required}


def create_tool(name: str, settings: ToolSettings, http: aiohttp.ClientSession) -> Tool:
    """Create a tool of a plan.

    Args:
        name: name in ``TOOLS``.
        settings: checked.
        http: HTTP session of the process, for a class of ``Tool``.

    Raises:
        ConfigError: its constructor fails.
    """
    factory: Callable[..., Any] = TOOLS.factory(name)
    function = factory
    try:
        if is_tool_class(factory):
            return cast(Tool, factory(settings, http))
        if isinstance(factory, type):
            function = factory(settings)
    except ConfigError:
        raise
    except Exception as error:
        # The constructor of another package.
        raise ConfigError(f"the tool {name!r} cannot be created: {one_line(error)}") from error
    return FunctionTool(settings, function, arguments_model(factory))


async def open_tools(
    planned: Sequence[tuple[str, ToolSettings]], http: aiohttp.ClientSession, servers: McpServers
) -> list[Tool]:
    """Create the tools of a plan, after their MCP servers were opened.

    Args:
        planned: see ``plan_tools``.
        http: HTTP session of the process.
        servers: servers of the process, which its owner closes.

    Raises:
        ConfigError: a tool or a server cannot be used.
    """
    addresses = {name: address for name, address in _mcp_addresses(planned)}
    for address in addresses.values():
        servers.of(address)
    await servers.open()
    return [
        _mcp_tool(settings, servers.of(addresses[settings.name]))
        if settings.name in addresses
        else create_tool(name, settings, http)
        for name, settings in planned
    ]


def _mcp_addresses(planned: Sequence[tuple[str, ToolSettings]]) -> Iterator[tuple[str, McpAddress]]:
    if any(name == MCP for name, _ in planned):
        # Needs the package.
        from parley.models.tools.mcp import McpSettings

        for _, settings in planned:
            if isinstance(settings, McpSettings):
                yield settings.name, settings.address()


def _mcp_tool(settings: ToolSettings, server: McpServer) -> Tool:
    from parley.models.tools.mcp import McpSettings, McpTool

    assert isinstance(settings, McpSettings)
    return McpTool(settings, server)


def _tool_settings(choice: Choice, *, where: str) -> ToolSettings:
    factory: Callable[..., Any] = TOOLS.factory(choice.name)
    if not is_tool_class(factory):
        arguments_model(factory)
    model = tool_settings_model(factory)
    if not issubclass(model, ToolSettings):
        raise ConfigError(f"{where}: its settings are not derived from parley.models.tools:ToolSettings")
    given = {**tool_defaults(choice.name, factory), **choice.settings}
    if not is_tool_class(factory) and "description" not in given and _needs_description(model):
        raise ConfigError(
            f"{where}: the model needs a description of the tool: write a docstring, or settings.description"
        )
    settings = parse_settings(model, given, where=where)
    if isinstance(settings, Checked):
        settings.check()
    return settings


def _needs_description(model: type[BaseModel]) -> bool:
    return model.model_fields["description"].is_required()
