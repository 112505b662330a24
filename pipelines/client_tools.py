"""Tools that the client of a socket runs: the model calls, the client is told, its answer is the result.

A call is committed like any other before the client hears of it, and its result behind it. A client that does
not answer in time, or is gone, leaves a call of which nobody knows whether it took effect: the model is told
that, and a crash in between leaves the same.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from core.call_events import ToolsRenewed
from models.tools import EffectUnknownError, Tool
from pipelines.answering import Answering
from pipelines.call import Call, Client
from processors.dialogue.durable_tools import DurableTools
from protocols.surface import ClientTool, Refusal, json_object

# A person may be asked in between.
ANSWER_S = 60.0


class RunByClient:
    """See ``models.tools.Tool``.

    Args:
        tool: as the client describes it.
        client: that runs it.
    """

    idempotent = False
    timeout_s = ANSWER_S

    def __init__(self, tool: ClientTool, client: Client) -> None:
        self._tool = tool
        self._client = client

    @property
    def name(self) -> str:
        """See ``Tool``."""
        return self._tool.name

    @property
    def description(self) -> str:
        """See ``Tool``."""
        return self._tool.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        """See ``Tool``."""
        return self._tool.parameters

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """See ``Tool``."""
        if self._client.run_tool is None:
            raise EffectUnknownError("the client is gone", engine=self.name)
        output = await self._client.run_tool(key, self.name, json.dumps(arguments), self.timeout_s)
        try:
            return json_object(output)
        except Refusal:
            # Many clients answer in plain words.
            return {"output": output}


def client_tools(client: Client) -> Sequence[Tool]:
    """Those that a client has wished for."""
    return [RunByClient(tool, client) for tool in client.wish().tools or ()]


@asynccontextmanager
async def offered_tools(answering: Answering, call: Call) -> AsyncIterator[DurableTools]:
    """The tools of a call's session, those of its client among them for as long as it is there.

    ``Call.rules`` decides which of the deployment's own are offered; it is read again with ``ToolsRenewed``.
    """
    client = call.client
    offered = client_tools(client)
    async with answering.tools(call.conversation, [*call.tools, *offered], rules=call.rules) as tools:

        def renew(_event: ToolsRenewed) -> None:
            nonlocal offered
            new = client_tools(client)
            tools.replace(offered, new, rules=call.rules)
            offered = new

        call.events.subscribe(ToolsRenewed, renew)
        try:
            yield tools
        finally:
            # Another client of the session could not run them.
            tools.replace([*call.tools, *offered], (), rules=call.rules)
