"""Tools of a process, for the sessions that are open in it.

Every transport of a session uses the same ``DurableTools``: a transport that is opened while a tool of
another one runs must not take that call for one that a crash has left. The last user of a session drains its
tools.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from parley.core.client_rules import ClientRules, ToolClients
from parley.models.tools import Tool
from parley.processors.dialogue.durable_tools import DurableTools, TakeRequest, check_tools
from parley.session_store.conversation import Conversation


@dataclass(slots=True)
class _Shared:
    """Tools of a session, and the number of their users."""

    tools: DurableTools
    users: int = 0


class SharedTools:
    """The tools, by session.

    Args:
        tools: tools of the process.
        clients, take_request: see ``DurableTools``.

    Raises:
        ConfigError: see ``DurableTools``.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        clients: Mapping[str, ToolClients] | None = None,
        *,
        take_request: TakeRequest | None = None,
    ) -> None:
        check_tools(tools)
        self._tools = tuple(tools)
        self._clients = clients
        self._take_request = take_request
        self._open: dict[Conversation, _Shared] = {}

    @property
    def names(self) -> frozenset[str]:
        """Names of the process's own tools."""
        return frozenset(tool.name for tool in self._tools)

    @asynccontextmanager
    async def of(
        self, conversation: Conversation, more: Sequence[Tool] = (), *, rules: ClientRules | None = None
    ) -> AsyncIterator[DurableTools]:
        """Hold the tools of a session; inside of its ``Conversations.open``. The last user drains them.

        Args:
            conversation: the session.
            more: tools of one client of it, offered to its own pipelines.
            rules: rules of that client, with which its pipelines are offered tools; None: an anonymous one.

        Raises:
            ConfigError: see ``DurableTools``.
        """
        shared = self._open.get(conversation)
        if shared is None:
            shared = self._open[conversation] = _Shared(
                DurableTools(
                    self._tools, conversation, clients=self._clients, take_request=self._take_request
                )
            )
        shared.tools.add(more, rules=rules or ClientRules())
        shared.users += 1
        try:
            yield shared.tools
        finally:
            shared.users -= 1
            try:
                if not shared.users:
                    await shared.tools.drain()
            finally:
                # Another user may have come while the last run ended.
                if not shared.users:
                    self._open.pop(conversation, None)
