"""MCP server that a client has named, and its tools: as those of the deployment, with less trust.

The connection goes to public addresses only (``guarded_http``). What the server lists is bounded, and each
schema is checked before its tool is offered. A result is not compared with the schema that the server gives
for it: the patterns of that schema are not checked, and one may take for ever to match.

Neither the address nor a header is logged, and neither are the server's words.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from loguru import logger
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    PaginatedRequestParams,
    ToolListChangedNotification,
)

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import ConfigError
from parley.models.tools.arguments import schema_faults
from parley.models.tools.guarded_http import CONNECT_S, ON_TOO_LONG, TOO_LONG, AddressGuard, GuardedTransport
from parley.models.tools.mcp_http import WatchedClient
from parley.models.tools.mcp_reasons import secrets_among
from parley.models.tools.mcp_server import (
    MOST_PAGES,
    McpAddress,
    McpServer,
    McpToolInfo,
    UnreachedCalls,
    info_of,
    key_in,
)
from parley.protocols.tool_bounds import TOO_LARGE, is_too_large

if TYPE_CHECKING:
    from mcp.client.session import IncomingMessage
    from mcp_types import RequestParamsMeta

CLOSE_S = 1.0
WITHDRAWN = "it was withdrawn"
# Longest silence of a server in a stream of events, which ends the stream.
SILENCE_S = 300.0
WRITE_S = 10.0
# Tools that a server may list, and that are offered of it.
MOST_LISTED, MOST_OFFERED = 512, 64
NAME_CHARS, DESCRIPTION_CHARS, SCHEMA_CHARS, HINT_CHARS = 200, 2_000, 65_536, 2_000
# Of a host, in the log.
HOST_CHARS = 100
# Characters of all names, descriptions and schemas together: the model reads them with every question.
MOST_CHARS = 262_144
# Requests to one server at a time; one is the stream of its notifications.
MOST_REQUESTS = 16
# Faults that a client is shown.
MOST_FAULTS, FAULT_CHARS = 5, 200
# Lists that are read on one connection because the server reports a change.
MOST_CHANGES = 32
# Faults of calls that are still to be read.
MOST_FAULTY_CALLS = 64
# Packages, by the first part of their loggers' names, that log addresses, headers and what a server sends.
TALKATIVE = frozenset({"mcp", "client", "httpx2", "httpcore2"})

_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)


@dataclass(frozen=True, slots=True)
class CallFault:
    """Reason for which a request had no answer of the protocol.

    Attributes:
        reason: for the client and the model.
        status: of HTTP; None: there is none, or it was a success.
    """

    reason: str
    status: int | None = None


def _is_logged(_record: logging.LogRecord) -> bool:
    """Return whether a record is not about a connection of this module."""
    return not _is_quiet.get()


def _filter_logs() -> None:
    """Have the libraries log nothing about clients' servers; those of the operator are logged as before.

    A filter of a logger does not hold for the loggers below it.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in TALKATIVE:
            logging.getLogger(name).addFilter(_is_logged)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the certificates that servers are checked by, read once. Blocks."""
    return httpx2.create_ssl_context()


class ClientMcpServer(McpServer):
    """MCP server of one client.

    Args:
        url: its address.
        headers: of each request.
        guard: decides to which addresses a connection is made.
        is_allowed: returns whether the client wants a tool to be offered.
        on_listed: called when the tools have been listed again; must not block.
        list_s: longest time of a connection with its list of tools.

    Attributes:
        tools: those that are offered.
        left_out: why others of its tools are not; empty: none is missing.
    """

    def __init__(
        self,
        url: str,
        headers: tuple[tuple[str, str], ...],
        *,
        guard: AddressGuard,
        is_allowed: Callable[[str, McpToolInfo], bool],
        on_listed: Callable[[], None],
        list_s: float,
    ) -> None:
        super().__init__(McpAddress(url=url, headers=headers), connect_s=list_s)
        self._list_s = list_s
        parts = urlsplit(url)
        self._host = (parts.hostname or "")[:HOST_CHARS]
        # An address may have a key in it.
        hidden = [url, parts.path.strip("/"), parts.query, *(value for _, value in headers)]
        self._secrets = secrets_among(hidden)
        self._guard = guard
        self._is_allowed = is_allowed
        self._on_listed = on_listed
        self._faults: BoundedDict[str, CallFault] = BoundedDict(MOST_FAULTY_CALLS)
        self._fault = ""
        self.left_out = ""

    @property
    def failure(self) -> str:
        """Reason for which the server cannot be used."""
        return self._fault or self._failure

    def take_fault(self, key: str) -> CallFault | None:
        """Return why a call had no answer of the protocol, once; None: it is not known to HTTP."""
        return self._faults.pop(key, None)

    async def close(self) -> None:
        """End the connection, also to a server that does not answer the goodbye."""
        task, self._task = self._task, None
        # For a connection that is being made.
        self._failure = self._failure or WITHDRAWN
        self._changed.set()
        for _ in range(2):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSE_S)

    def _log_loss(self, pause_s: float) -> None:
        logger.info(f"an MCP server of a client is gone ({self._host}), next attempt in {pause_s:g} s")

    def forget(self, key: str) -> None:
        """Forget why the requests before did not have an answer: another one is being made."""
        self._fault = ""
        self._faults.pop(key, None)

    def note(self, key: str, fault: CallFault) -> None:
        """Note why a request had no answer of the protocol; ``key``: of the call, empty for another one."""
        self._fault = fault.reason
        if key:
            self._faults[key] = fault

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Client]:
        self._fault = ""
        changed = asyncio.Event()

        async def on_message(message: "IncomingMessage") -> None:
            if isinstance(message, ToolListChangedNotification):
                changed.set()

        # Of the task that holds the connection, and of those that it begins.
        _is_quiet.set(True)
        transport = GuardedTransport(
            self._guard, verify=tls_context(), limits=httpx2.Limits(max_connections=MOST_REQUESTS)
        )
        # A library is imported with its first transport.
        _filter_logs()
        async with (
            _NotingClient(
                self,
                self._unreached,
                headers={**dict(self._address.headers), "Accept-Encoding": "identity"},
                timeout=httpx2.Timeout(WRITE_S, connect=CONNECT_S, read=SILENCE_S),
                transport=transport,
                trust_env=False,
            ) as http,
            Client(
                streamable_http_client(self._address.url, http_client=http),
                mode="legacy",
                message_handler=on_message,
                cache=None,
            ) as client,
        ):
            reading = asyncio.create_task(self._follow_changes(client, changed), name="tools.mcp.changes")
            try:
                yield client
            finally:
                reading.cancel()

    async def _follow_changes(self, client: Client, changed: asyncio.Event) -> None:
        """Read the list of tools again whenever the server reports that it has changed."""
        for _ in range(MOST_CHANGES):
            await changed.wait()
            changed.clear()
            try:
                await self._read_tools(client)
            except Exception as error:
                # The connection broke meanwhile, or the new list cannot be used.
                self._failure = self.shown(error)
                self._lose(client)
                return

    async def _read_tools(self, client: Client) -> dict[str, McpToolInfo]:
        async with asyncio.timeout(self._list_s):
            found = await _listed(client)
        wanted = {name: info for name, info in found.items() if self._is_allowed(name, info)}
        if len(wanted) > MOST_OFFERED:
            raise ConfigError(
                f"it has {len(wanted)} tools, over {MOST_OFFERED}: name those to offer in allowed_tools"
            )
        self.tools, self.left_out = await asyncio.to_thread(usable_tools, wanted)
        self._on_listed()
        return self.tools

    async def _send(
        self, client: Client, tool: str, arguments: dict[str, Any], meta: "RequestParamsMeta"
    ) -> CallToolResult:
        params = CallToolRequestParams.model_validate({"name": tool, "arguments": arguments, "_meta": meta})
        # In the task of a call, in which the operator's servers are called too.
        before = _is_quiet.set(True)
        try:
            return await client.session.send_request(CallToolRequest(params=params), CallToolResult)
        finally:
            _is_quiet.reset(before)


async def _listed(client: Client) -> dict[str, McpToolInfo]:
    """Return all tools that a server lists.

    Raises:
        ConfigError: there are too many.
    """
    found: dict[str, McpToolInfo] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found.update((tool.name, info_of(tool)) for tool in page.tools)
        if len(found) > MOST_LISTED:
            raise ConfigError(f"it lists over {MOST_LISTED} tools")
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


class _NotingClient(WatchedClient):
    """HTTP client that notes why a request had no answer of the protocol.

    Args:
        server: where that is noted.
        more: as for ``WatchedClient``.
    """

    def __init__(self, server: ClientMcpServer, unreached: UnreachedCalls, **more: Any) -> None:
        super().__init__(unreached, **more)
        self._server = server

    async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        """Send a request, as ``WatchedClient`` does."""
        if request.method != "POST":
            return await super().send(request, **more)
        # Read here, because that of a request which follows a redirect is not in memory.
        key, note = key_in(await request.aread()), self._server.note
        # Of an attempt before, or of the request that was redirected.
        self._server.forget(key)
        request.extensions[ON_TOO_LONG] = partial(note, key, CallFault(TOO_LONG))
        try:
            response = await super().send(request, **more)
        except httpx2.TimeoutException:
            note(key, CallFault("its server did not answer in time"))
            raise
        except httpx2.TransportError as error:
            note(key, CallFault(self._server.shown(str(error)) or "the connection to its server broke"))
            raise
        if not response.is_success:
            where = ", a redirect that is not followed" if response.has_redirect_location else ""
            reason = f"its server answered with status {response.status_code}{where}"
            note(key, CallFault(reason, response.status_code))
        return response


def usable_tools(listed: Mapping[str, McpToolInfo]) -> tuple[dict[str, McpToolInfo], str]:
    """Return the tools that can be offered, and why the others cannot. May take long: blocks.

    Raises:
        ConfigError: their schemas together are too large to be checked.
    """
    schemas = [dict(info.parameters) for info in listed.values()]
    if is_too_large(schemas):
        raise ConfigError(f"its tools have {TOO_LARGE}")
    tools: dict[str, McpToolInfo] = {}
    faults: list[str] = []
    for name, info in listed.items():
        # Metadata of the schema language itself, and names for people.
        schema = {key: value for key, value in info.parameters.items() if not key.startswith("$")}
        if len(name) > NAME_CHARS:
            faults.append(f"{name[:40]!r}...: its name is too long")
        elif len(json.dumps(schema)) > SCHEMA_CHARS:
            faults.append(f"{name!r}: its schema is too large")
        elif found := schema_faults(schema):
            faults.append(f"{name!r}: {'; '.join(found)}"[:FAULT_CHARS])
        else:
            tools[name] = McpToolInfo(
                " ".join(info.description.split())[:DESCRIPTION_CHARS], schema, _short(info.annotations)
            )
    chars = sum(
        len(name) + len(info.description) + len(json.dumps(info.parameters)) for name, info in tools.items()
    )
    if chars > MOST_CHARS:
        raise ConfigError(f"its tools have over {MOST_CHARS} characters: name fewer in allowed_tools")
    if not faults:
        return tools, ""
    more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
    return tools, f"tools that are not offered: {'; '.join(faults[:MOST_FAULTS])}{more}"


def _short(annotations: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the hints of a tool; None for ones that no event should hold."""
    return None if annotations is None or len(json.dumps(annotations)) > HINT_CHARS else annotations
