"""Tools that the client of a socket runs: the model calls one, and the client's answer is the result.

A call is committed like any other before the client is notified, and its result after it. When a client does
not answer in time, or is gone, it is unknown whether the call took effect. The model receives this as the
result, and a crash in between leaves the same state.
"""

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from parley.core.call_events import ToolsRenewed, TurnStarted
from parley.models.tools import EffectUnknownError, Tool
from parley.pipelines.call import Call, SocketClient
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.sockets.client_mcp import ClientMcp
from parley.processors.dialogue.durable_tools import DurableTools
from parley.protocols.client_mcp import McpDeclaration
from parley.protocols.client_protocol import ClientTool, ProtocolError, SessionUpdate, ToolChoice, json_object
from parley.runtime.event_stream import CallEvents

# The client may have to ask its user in between.
ANSWER_S = 60.0


class RunByClient:
    """Tool that a client runs (``models.tools.Tool``).

    Args:
        tool: the client's description of it.
        client: client that runs it.
    """

    idempotent = False
    timeout_s = ANSWER_S

    def __init__(self, tool: ClientTool, client: SocketClient) -> None:
        self._tool = tool
        self._client = client

    @property
    def name(self) -> str:
        """Name under which the model calls it (``Tool``)."""
        return self._tool.name

    @property
    def description(self) -> str:
        """The client's description, for the model (``Tool``)."""
        return self._tool.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of the arguments (``Tool``)."""
        return self._tool.parameters

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Have the client run it (``Tool``). Raises EffectUnknownError when no answer comes."""
        if self._client.run_tool is None:
            raise EffectUnknownError("the client has disconnected", engine=self.name)
        output = await self._client.run_tool(key, self.name, json.dumps(arguments), self.timeout_s)
        try:
            return json_object(output)
        except ProtocolError:
            # Many clients answer in plain words.
            return {"output": output}


class RequestedSettings:
    """Settings that a client has requested, with the tools of a single reply in place of its own.

    The MCP servers among them are those that are connected.

    The tools of a single reply are withdrawn by the client's next request, also that for the answer to what
    they have returned, and by the caller's next turn.

    Args:
        requested: returns the settings that hold for every reply.
        events: events of the call.
        mcp: MCP servers of the client; None: its protocol has none.
    """

    def __init__(
        self, requested: Callable[[], SessionUpdate], events: CallEvents, mcp: ClientMcp | None = None
    ) -> None:
        self._requested = requested
        self._events = events
        self._mcp = mcp
        self._tools: tuple[ClientTool, ...] | None = None
        self._servers: tuple[McpDeclaration, ...] | None = None
        self._choice: ToolChoice | None = None
        events.subscribe(TurnStarted, lambda _event: self.set_for_reply(None))

    def __call__(self) -> SessionUpdate:
        """Return the settings for the next reply."""
        requested = self._requested()
        if self._mcp is not None and requested.choice is not None:
            requested = replace(requested, choice=self._mcp.named(requested.choice))
        if self._choice is not None:
            requested = replace(requested, reply_choice=self._choice)
        return requested if self._tools is None else replace(requested, tools=self._tools)

    @property
    def tools(self) -> tuple[ClientTool, ...]:
        """Tools that the client runs in the next reply."""
        return (self._requested().tools or ()) if self._tools is None else self._tools

    def set_for_reply(
        self,
        tools: tuple[ClientTool, ...] | None,
        choice: ToolChoice | None = None,
        servers: tuple[McpDeclaration, ...] | None = None,
    ) -> None:
        """Set the tools of the next reply and the choice between them; None: those of every reply."""
        if servers is not None or self._servers is not None:
            self._servers = servers
            self.use_servers()
        self._choice = choice if choice is None or self._mcp is None else self._mcp.named(choice)
        if tools is not None or self._tools is not None:
            self._tools = tools
            self._events.publish(ToolsRenewed(self._events.now_ms()))

    def use_servers(self, *, is_update: bool = False) -> None:
        """Connect to the MCP servers that are declared now; see ``ClientMcp.use``."""
        of_session = self._requested().mcp or ()
        servers = of_session if self._servers is None else self._servers
        if self._mcp is not None:
            self._mcp.use(servers, kept=of_session, is_update=is_update)


def client_tools(client: SocketClient, taken: Collection[str] = ()) -> Sequence[Tool]:
    """Return the tools that a client has declared, and those of its MCP servers, whose names are free."""
    own = [RunByClient(tool, client) for tool in client.requested().tools or ()]
    return [*own, *client.mcp_tools(taken)]


@asynccontextmanager
async def offered_tools(
    answering: LlmRuntime, call: Call, *, more: Sequence[Tool] = ()
) -> AsyncIterator[DurableTools]:
    """Hold the tools of a call's session, including those of its client while it is connected.

    ``more`` are further tools of the call. ``Call.rules`` decides which of the deployment's own are offered;
    it is read again with ``ToolsRenewed``.
    """
    client, own = call.client, [*call.phone.tools, *more]
    taken = {*answering.tool_names, *(tool.name for tool in own)}
    offered = client_tools(client, taken)
    async with answering.tools(call.conversation, [*own, *offered], rules=call.rules) as tools:

        def renew(_event: ToolsRenewed) -> None:
            nonlocal offered
            new = client_tools(client, taken)
            tools.replace(offered, new, rules=call.rules)
            offered = new

        call.events.subscribe(ToolsRenewed, renew)
        try:
            yield tools
        finally:
            # Another client of the session could not run them.
            tools.replace([*own, *offered], (), rules=call.rules)
