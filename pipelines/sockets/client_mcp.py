"""MCP servers that a client brings along: connected to, listed, and called, for one call.

    a declaration -> a connection and the list of its tools -> tools of the call -> a call of the model
    -> the client's approval, where it is needed -> the server's result

A tool is one like any other (``models.tools.Tool``): its call is committed before it is made, and so is its
result after it. A call whose approval is refused or does not come was not made. Decides the names under which
the model knows the tools: none is that of another tool.

Owns a connection for each server that is declared now, and lets one that is not declared any more end its
calls first. The number of connections that a client may have begun is bounded in time as well.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from parley.core.client_rules import ClientRules
from parley.core.errors import ConfigError, EngineError
from parley.core.token_bucket import TokenBucket
from parley.core.usage import Usage
from parley.models.tools import EffectUnknownError, Tool, ToolSettings
from parley.protocols.client_mcp import (
    McpApproval,
    McpCallBegan,
    McpCallEnded,
    McpCallRuns,
    McpDeclaration,
    McpFault,
    McpHappening,
    McpListed,
    McpListingBegan,
    McpListingFailed,
)
from parley.protocols.client_protocol import ProtocolError, ToolChoice

if TYPE_CHECKING:
    from parley.models.tools.client_mcp import CallFault, ClientMcpServer
    from parley.models.tools.guarded_http import AddressGuard
    from parley.models.tools.mcp_server import McpToolInfo

# Longest call, as of a tool of the deployment that sets none.
CALL_S: float = ToolSettings.model_fields["timeout_s"].default
# The client may have to ask its user.
APPROVAL_S = 60.0
# More than a call takes: the answer to what a tool returned is held for the client's request.
SPARE_S = 5.0
# Calls that may wait for approval at a time.
MOST_ASKED = 16
# Connections that stay for further responses though no server of them is offered now.
MOST_SPARE = 4
# Connections that a client may begin: at once, and in a minute.
CONNECTIONS, CONNECTIONS_PER_MINUTE = 16, 6
# Longest time of a connection with its list of tools.
LIST_S = 10.0
# Longest wait of a response for the tools that are its own.
LISTED_S = 12.0
MOST_NAME_CHARS = 64
_US_PER_S = 1_000_000
# Status by which a server reports that it carried nothing out.
UNAVAILABLE = 503
NOT_APPROVED = "the client did not approve the call, and it was not made"
NO_APPROVAL = "the client did not answer the request for approval, and the call was not made"
TOO_MANY = "too many calls wait for the client's approval, and this one was not made"
NO_CLIENT = "the client is gone, and the call was not made"


def is_installed() -> bool:
    """Return whether the package of the protocol is there (``parley[mcp]``)."""
    return find_spec("mcp") is not None


@dataclass(slots=True, eq=False)
class _Connection:
    """Connection to a declared server.

    Attributes:
        declared: by the client.
        server: the server; None before the connection is begun, ended when ``is_failed``.
        listing_id: of the listing that the client has been notified of and whose end it has not; empty: none.
        listed: set when the first listing is over, well or not.
        idle: set while no call is in progress.
        is_failed: the server could not be used.
        is_over: the server is not declared any more.
        calls: number of calls in progress.
        reported: tools of which the client has been notified; None: none yet.
    """

    declared: McpDeclaration
    server: "ClientMcpServer | None" = None
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    listing_id: str = ""
    is_failed: bool = False
    is_over: bool = False
    calls: int = 0
    reported: "Mapping[str, McpToolInfo] | None" = None

    @property
    def tools(self) -> "Mapping[str, McpToolInfo]":
        """Tools that are offered."""
        return {} if self.server is None or self.is_failed else self.server.tools

    async def close(self) -> None:
        """End the connection."""
        if self.server is not None:
            await self.server.close()


def check_servers(servers: Sequence[McpDeclaration], rules: ClientRules, hosts: Collection[str]) -> None:
    """Check that a client may have this server connect to its servers. Names are resolved later.

    Raises:
        ProtocolError: it may not.
    """
    if not rules.may_bring_mcp:
        raise ProtocolError(
            "session.tools: this call accepts no MCP servers of its client",
            code="not_permitted",
            param="session.tools",
        )
    if not is_installed():
        raise ProtocolError(
            "session.tools: this server has no client for MCP", code="not_supported", param="session.tools"
        )
    from parley.models.tools.guarded_http import AddressGuard, is_public, literal_address

    guard = AddressGuard(hosts)
    for server in servers:
        address = literal_address(server.host)
        if guard.permits(server.host, server.port):
            continue
        if server.scheme != "https" or (address is not None and not is_public(address)):
            raise ProtocolError(
                f"session.tools: the MCP server {server.label!r} needs https and a public address",
                code="not_permitted",
                param="session.tools",
            )


class ClientMcp:
    """MCP servers of the client of one call.

    Args:
        hosts: ``host:port`` that a client may name although their addresses are not public.
        report: reports an event to the client; must not block.
        renew: has the tools of the call read again (``tools``).
        functions: returns names of the tools that the client runs itself.
        until_requested: waits until the client requests the answer to a tool, for a moment at most.
        gone: set when the client is gone.
        take_usage: returns the tokens of the request that calls a tool, once; None where they are not known.
        call_s: longest call.
        approval_s: longest wait for the client's approval.
        list_s: longest time until a server has listed its tools.
    """

    def __init__(
        self,
        hosts: Collection[str],
        *,
        report: Callable[[McpHappening], None],
        renew: Callable[[], None],
        functions: Callable[[], Collection[str]],
        until_requested: Callable[[], Awaitable[None]],
        gone: asyncio.Event,
        take_usage: Callable[[], Usage | None] = lambda: None,
        call_s: float = CALL_S,
        approval_s: float = APPROVAL_S,
        list_s: float = LIST_S,
    ) -> None:
        self._hosts = hosts
        self._report = report
        self._renew = renew
        self._functions = functions
        self._taken: frozenset[str] = frozenset()
        self._until_requested = until_requested
        self._gone, self._take_usage = gone, take_usage
        self.call_s, self.approval_s, self._list_s = call_s, approval_s, list_s
        self._guard: AddressGuard | None = None
        self._connections: dict[McpDeclaration, _Connection] = {}
        self._offered: tuple[McpDeclaration, ...] = ()
        self._is_closed = False
        # Not declared any more, and not closed yet.
        self._retiring: set[_Connection] = set()
        self._approvals: dict[str, asyncio.Future[McpApproval]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._begins = TokenBucket(CONNECTIONS_PER_MINUTE / 60, CONNECTIONS)

    # What is declared.

    def use(
        self,
        offered: Sequence[McpDeclaration],
        *,
        kept: Sequence[McpDeclaration] = (),
        is_update: bool = False,
    ) -> None:
        """Offer the tools of these servers, and of no others.

        Args:
            offered: servers, in their order.
            kept: servers that stay connected, because they are offered again later.
            is_update: the client has declared its servers anew: those that could not be used are tried again,
                and no other connection is kept. Otherwise a few stay for further responses.
        """
        if self._is_closed:
            # A message that was read while the call ended.
            return
        old, self._connections = self._connections, {}
        for each in (*offered, *kept):
            known = self._connections.get(each) or old.pop(each, None)
            if known is None or (known.is_failed and is_update):
                known = self._connect(each)
            self._connections[each] = known
        others = list(old.values())
        usable = [other for other in others if other.listed.is_set() and not other.is_failed]
        spare = [] if is_update else usable[-MOST_SPARE:]
        for connection in others:
            if connection in spare:
                self._connections[connection.declared] = connection
            else:
                # Before the task's first step, which may not come (``close``).
                self._retiring.add(connection)
                self._own(self._retire(connection), "mcp.retire")
        self._offered = tuple(offered)
        self._renew()

    async def until_listed(self) -> None:
        """Wait until the tools of all servers that are offered are known, for ``LISTED_S`` at most."""
        waits = [self._connections[each].listed.wait() for each in self._offered]
        try:
            async with asyncio.timeout(LISTED_S):
                await asyncio.gather(*waits)
        except TimeoutError:
            # The response has the tools that are known.
            return

    @property
    def is_listed(self) -> bool:
        """True when no listing of a server that is offered is awaited."""
        return all(self._connections[each].listed.is_set() for each in self._offered)

    async def close(self) -> None:
        """End all connections: the call is over."""
        self._is_closed = True
        connections = [*self._connections.values(), *self._retiring]
        self._connections, self._offered = {}, ()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in connections))
        # The settings of the client refer to this object, and the transport to them: a call is freed at once.
        self._functions = lambda: ()

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _connect(self, declared: McpDeclaration) -> _Connection:
        connection = _Connection(declared)
        connection.idle.set()
        self._own(self._open(connection), "mcp.open")
        return connection

    async def _open(self, connection: _Connection) -> None:
        connection.listing_id = _new_id("mcpl")
        self._report(McpListingBegan(connection.listing_id, connection.declared.label))
        now_us = int(asyncio.get_running_loop().time() * _US_PER_S)
        wait_us = self._begins.take_or_wait_us(1, now_us)
        reason = ""
        try:
            if wait_us:
                reason = f"too many connections, try again in {wait_us / _US_PER_S:.0f} s"
                raise ConfigError(reason)
            await asyncio.to_thread(_prepare)
            if connection.is_over:
                reason = "it was withdrawn"
                raise ConfigError(reason)
            connection.server = self._server_of(connection)
            await connection.server.open()
        except ConfigError:
            connection.is_failed = True
            listing_id, connection.listing_id = connection.listing_id, ""
            failure = "" if connection.server is None else connection.server.failure
            self._report(McpListingFailed(listing_id, reason or failure))
        finally:
            connection.listed.set()

    def _server_of(self, connection: _Connection) -> "ClientMcpServer":
        from parley.models.tools.client_mcp import ClientMcpServer
        from parley.models.tools.guarded_http import AddressGuard

        declared = connection.declared
        self._guard = self._guard or AddressGuard(self._hosts)

        def is_allowed(name: str, info: "McpToolInfo") -> bool:
            allowed = declared.allowed
            return allowed is None or allowed.matches(name, is_read_only=info.is_read_only)

        return ClientMcpServer(
            declared.url,
            declared.headers,
            guard=self._guard,
            is_allowed=is_allowed,
            on_listed=lambda: self._on_listed(connection),
            list_s=self._list_s,
        )

    async def _retire(self, connection: _Connection) -> None:
        """End a connection after the calls that are in progress, each of which has a deadline."""
        connection.is_over = True
        try:
            await connection.idle.wait()
        finally:
            await connection.close()
            self._retiring.discard(connection)

    def _on_listed(self, connection: _Connection) -> None:
        """Offer the tools that a server has listed now, unless they are those of before."""
        server, declared = connection.server, connection.declared
        if server is None or connection.reported == server.tools:
            return
        if not connection.listing_id:
            # It was started again, or reports a change.
            connection.listing_id = _new_id("mcpl")
            self._report(McpListingBegan(connection.listing_id, declared.label))
        connection.reported = server.tools
        listing_id, connection.listing_id = connection.listing_id, ""
        self._report(McpListed(listing_id, tuple(_shown(server.tools)), server.left_out))
        if declared in self._offered and self._connections.get(declared) is connection:
            self._renew()

    # Tools.

    def tools(self, taken: Collection[str]) -> Sequence[Tool]:
        """Return the tools of the servers that are offered; none has a name that is taken."""
        self._taken = frozenset(taken)
        return [
            _ClientMcpTool(known, name, self._connections[declared], self)
            for (declared, name), known in self._names().items()
        ]

    def check_choice(
        self, choice: ToolChoice | None, servers: Sequence[McpDeclaration], *, param: str
    ) -> None:
        """Check that a choice names a tool of one of these servers, as far as their tools are known.

        Raises:
            ProtocolError: the server does not have the tool, or has several and none is named.
        """
        if choice is None:
            return
        declared = next((each for each in servers if each.label == choice.label), None)
        if declared is None:
            return
        connection = self._connections.get(declared)
        is_listed = connection is not None and connection.listed.is_set() and not connection.is_failed
        names = None if connection is None or not is_listed else frozenset(connection.tools)
        if choice.name is None:
            if names is None:
                names = None if declared.allowed is None else declared.allowed.names
            if names is None or len(names) != 1:
                raise ProtocolError(
                    f"{param}: the choice between the tools of one server is not supported: add the name of "
                    f"a tool of {declared.label!r}",
                    code="not_supported",
                    param=param,
                )
        elif names is not None and choice.name not in names:
            raise ProtocolError(
                f"{param}: the MCP server {declared.label!r} has no tool {choice.name[:80]!r}",
                code="invalid_value",
                param=param,
            )

    def named(self, choice: ToolChoice) -> ToolChoice:
        """Return a choice by the name under which the model knows the tool.

        The model decides while it is not listed. A choice of a tool that the client runs stays as it is.
        """
        if not choice.label:
            return choice
        known = [
            known
            for (declared, name), known in self._names().items()
            if declared.label == choice.label and choice.name in (name, None)
        ]
        return ToolChoice(is_required=True, name=known[0]) if len(known) == 1 else ToolChoice()

    def _names(self) -> dict[tuple[McpDeclaration, str], str]:
        """Return the names of the tools for the model, by their server and the name there."""
        taken = {*self._taken, *self._functions()}
        names: dict[tuple[McpDeclaration, str], str] = {}
        for declared in self._offered:
            connection = self._connections[declared]
            for name in connection.tools:
                known = free_name(f"{declared.label}_{name}", taken)
                taken.add(known)
                names[declared, name] = known
        return names

    # Calls.

    def answer(self, approval: McpApproval) -> None:
        """Take the client's decision about a call.

        Raises:
            ProtocolError: it is not awaited any more.
        """
        asked = self._approvals.pop(approval.approval_id, None)
        if asked is None or asked.done():
            raise ProtocolError(
                "this request no longer expects an approval",
                code="item_not_found",
                param="item.approval_request_id",
            )
        asked.set_result(approval)

    async def call(
        self, connection: _Connection, name: str, info: "McpToolInfo", arguments: Mapping[str, Any], key: str
    ) -> Mapping[str, Any]:
        """Make a call, after the client's approval where it is needed (``Tool.run``)."""
        declared, server = connection.declared, connection.server
        assert server is not None, "a tool of a server that was never listed"
        needs_approval = declared.approval.apply(name, is_read_only=info.is_read_only)
        call_id, approval_id = _new_id("mcp"), _new_id("mcpr") if needs_approval else ""
        connection.calls += 1
        connection.idle.clear()
        given = json.dumps(arguments)
        self._report(McpCallBegan(call_id, declared.label, name, given, approval_id, self._take_usage()))
        ended = McpCallEnded(call_id, fault=McpFault("the call was ended"))
        failure: EngineError | None = None
        value: Mapping[str, Any] = {}
        try:
            if approval_id:
                await self._until_approved(approval_id, name)
            self._report(McpCallRuns(call_id))
            value, output = await _made(server, name, arguments, key, self.call_s)
            ended = McpCallEnded(call_id, output)
        except EngineError as error:
            failure, fault = _explained(error, server.take_fault(key))
            ended = McpCallEnded(call_id, fault=fault)
        finally:
            connection.calls -= 1
            if not connection.calls:
                connection.idle.set()
            self._report(ended)
        # The answer has the metadata of the client's request for it.
        await self._until_requested()
        if failure is not None:
            raise failure
        return value

    async def _until_approved(self, approval_id: str, name: str) -> None:
        """Wait for the client's approval.

        Raises:
            EngineError: it does not come; nothing was done.
        """
        if self._gone.is_set() or len(self._approvals) >= MOST_ASKED:
            raise EngineError(NO_CLIENT if self._gone.is_set() else TOO_MANY, engine=name)
        asked: asyncio.Future[McpApproval] = asyncio.get_running_loop().create_future()
        self._approvals[approval_id] = asked
        gone = asyncio.create_task(self._gone.wait(), name="mcp.gone")
        try:
            ends: set[asyncio.Future[Any]] = {asked, gone}
            await asyncio.wait(ends, timeout=self.approval_s, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise EngineError(NO_CLIENT if gone.done() else NO_APPROVAL, engine=name)
            approval = asked.result()
            if not approval.is_approved:
                why = f": {' '.join(approval.reason.split())}" if approval.reason.strip() else ""
                raise EngineError(f"{NOT_APPROVED}{why}", engine=name)
        finally:
            gone.cancel()
            self._approvals.pop(approval_id, None)


class _ClientMcpTool:
    """Tool of a client's MCP server (``models.tools.Tool``).

    Args:
        known: name for the model.
        name: at its server.
        connection: to its server.
        owner: makes its calls.
    """

    # A server need not read the key.
    idempotent = False

    def __init__(self, known: str, name: str, connection: _Connection, owner: ClientMcp) -> None:
        info = connection.tools[name]
        self.name = known
        about = f"{connection.declared.description}: " if connection.declared.description else ""
        self.description = f"{about}{info.description or name}"
        self.parameters = info.parameters
        needs_approval = connection.declared.approval.apply(name, is_read_only=info.is_read_only)
        self.timeout_s = owner.call_s + SPARE_S + (owner.approval_s if needs_approval else 0.0)
        self._name, self._info = name, info
        self._connection, self._owner = connection, owner

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Have the server carry the call out (``Tool``)."""
        return await self._owner.call(self._connection, self._name, self._info, arguments, key)


def _prepare() -> None:
    """Import the package and read the certificates of the machine: a second, once. Blocks."""
    from parley.models.tools.client_mcp import tls_context

    tls_context()


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return a name for a tool that fits a model and is not taken."""
    base = re.sub(r"[^A-Za-z0-9_-]", "_", wanted)[:MOST_NAME_CHARS]
    name, number = base, 1
    while name in taken:
        number += 1
        end = f"_{number}"
        name = base[: MOST_NAME_CHARS - len(end)] + end
    return name


async def _made(
    server: "ClientMcpServer", name: str, arguments: Mapping[str, Any], key: str, timeout_s: float
) -> tuple[Mapping[str, Any], str]:
    """Make a call; return its result for the model, and as the client receives it."""
    from parley.models.tools.mcp import result_object, result_text

    result = await server.call(name, arguments, key=key, timeout_s=timeout_s)
    if result.is_error:
        said = server.shown(result_text(result))
        reports = "its server reports a failure"
        raise EngineError(f"{reports}: {said}" if said else reports, engine=name)
    value = await asyncio.to_thread(result_object, result)
    text = value.get("text") if value.keys() == {"text"} else None
    return value, text if isinstance(text, str) else json.dumps(value)


def _explained(error: EngineError, http: "CallFault | None") -> tuple[EngineError, McpFault]:
    """Return a failure as the model reads it, and as the client receives it.

    Args:
        error: of the call.
        http: what HTTP says about it; None: nothing.
    """
    from mcp import MCPError

    is_unknown, status = isinstance(error, EffectUnknownError), None if http is None else http.status
    if http is not None:
        # A request that was refused was not carried out.
        is_refused = status is not None and (400 <= status < 500 or status == UNAVAILABLE)
        is_unknown = is_unknown and not is_refused
        kind = EffectUnknownError if is_unknown else EngineError
        error = kind(http.reason, engine=error.engine)
    code = error.__cause__.code if isinstance(error.__cause__, MCPError) else None
    message = f"{error}; the call may have taken effect" if is_unknown else str(error)
    return error, McpFault(message, status, code)


def _shown(tools: "Mapping[str, McpToolInfo]") -> Sequence[Mapping[str, Any]]:
    return [
        {
            "name": name,
            "description": info.description or None,
            "input_schema": dict(info.parameters),
            "annotations": None if info.annotations is None else dict(info.annotations),
        }
        for name, info in tools.items()
    ]


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:24]}"
