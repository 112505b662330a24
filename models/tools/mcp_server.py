"""Connection to one MCP server, which any number of tools share: started, watched and started again.

A server is a program of this machine (standard input and output) or an address (streamable HTTP). One task
owns the connection from its beginning to its end. It notices a dead server by a ping, or by a call that
finds the connection closed, and connects again, after a pause that doubles with each failure. A call that
did not reach its server (``mcp_http``), because it was started again meanwhile, is made once more.

Words of a server reach a model through ``mcp_reasons`` only.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loguru import logger

from parley.core.errors import AgentError, ConfigError, EngineError, one_line
from parley.models.tools import EffectUnknownError
from parley.models.tools.mcp_reasons import secrets_among, shown_reason

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, RequestParamsMeta
    from mcp_types import Tool as ListedTool

# Pauses between attempts to connect, and the time of one attempt.
FIRST_PAUSE_S, LONGEST_PAUSE_S, CONNECT_S = 0.2, 30.0, 15.0
HTTP_S = 300.0
PING_EVERY_S, PING_S = 10.0, 5.0
# Wait of a call for a server that is being started again.
RESTART_WAIT_S = 3.0
CLOSE_S = 5.0
# A server lists its tools in pages.
MOST_PAGES = 20
# Codes of JSON-RPC by which a server reports that it carried nothing out: parse error, invalid request,
# unknown method, invalid parameters.
NOT_CARRIED_OUT = frozenset({-32700, -32600, -32601, -32602})
UNKNOWN_METHOD = -32601
# Field of a call's ``_meta`` that is the same for each run of the same call.
KEY_FIELD = "parley/idempotency-key"


@dataclass(frozen=True, slots=True)
class McpAddress:
    """Program or address of an MCP server.

    Attributes:
        command: program and its arguments; empty for a server with an address.
        env: variables of the program, in addition to PATH and the like.
        url: address of a server for streamable HTTP; empty for a program.
        headers: of each request.
    """

    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Name for messages, without secrets."""
        return self.url.partition("?")[0] or " ".join(self.command)[:100]


@dataclass(frozen=True, slots=True)
class McpToolInfo:
    """Tool as its server describes it.

    Attributes:
        description: for the model.
        parameters: JSON schema of the arguments.
        annotations: the server's hints about it, which prove nothing; None: it has none.
    """

    description: str
    parameters: Mapping[str, Any]
    annotations: Mapping[str, Any] | None = None

    @property
    def is_read_only(self) -> bool:
        """True when the server says that the tool changes nothing."""
        return self.annotations is not None and self.annotations.get("readOnlyHint") is True


class UnreachedCalls:
    """Keys of running calls that were not carried out, because the server or its session was not there."""

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._keys: set[str] = set()

    @contextmanager
    def watching(self, key: str) -> Iterator[None]:
        """Note a call while the block runs; a note of it from before or after would be that of another."""
        self._running.add(key)
        try:
            yield
        finally:
            # However the call ends: a key that stayed would make a later failure of it run it again.
            self._running.discard(key)
            self._keys.discard(key)

    def note(self, body: bytes) -> None:
        """Note the call that the body of a request was to make; other requests have no key.

        A call that has ended meanwhile is not noted.
        """
        key = key_in(body)
        if key in self._running:
            self._keys.add(key)

    def take(self, key: str) -> bool:
        """Return whether a call was not carried out, and forget it."""
        is_noted = key in self._keys
        self._keys.discard(key)
        return is_noted


def key_in(body: bytes) -> str:
    """Return the key of the call that the body of a request makes; empty for another request."""
    try:
        key = json.loads(body)["params"]["_meta"][KEY_FIELD]
    except (ValueError, KeyError, TypeError):
        return ""
    return key if isinstance(key, str) else ""


class _UnreachedError(Exception):
    """A call did not reach the server, or a session that it knows: nothing was carried out."""


class McpServer:
    """MCP server of one row.

    Args:
        address: of the server.
        connect_s: longest time until it answers.
    """

    def __init__(self, address: McpAddress, *, connect_s: float = CONNECT_S) -> None:
        self._address = address
        self._connect_s = connect_s
        self._client: Client | None = None
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure = ""
        # Calls that wait for their results.
        self._calls = 0
        self._secrets = secrets_among(value for _, value in (*address.env, *address.headers))
        self._unreached = UnreachedCalls()
        self.tools: dict[str, McpToolInfo] = {}

    async def open(self) -> None:
        """Connect, and read the list of tools.

        Raises:
            ConfigError: the server does not start or answer.
        """
        self._task = asyncio.create_task(self._run(), name="tools.mcp")
        try:
            async with asyncio.timeout(self._connect_s):
                while self._client is None and not self._failure:
                    await self._changes()
        except TimeoutError:
            self._failure = f"it did not answer within {self._connect_s:g} s"
        if self._client is None:
            await self.close()
            raise ConfigError(f"the MCP server {self._address.name} cannot be used: {self._failure}")

    async def close(self) -> None:
        """End the connection, and the program."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_S)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, key: str, timeout_s: float
    ) -> "CallToolResult":
        """Call a tool once.

        A call that finds the server started again is made again, once: it was not carried out before.

        Raises:
            EffectUnknownError: the server died, or did not answer in time.
            EngineError: the server is not there; nothing happened.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        for _ in range(2):
            left_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
            client = await self._connected(tool, min(RESTART_WAIT_S, left_s))
            self._calls += 1
            try:
                with self._unreached.watching(key):
                    return await self._call(client, tool, arguments, key, deadline_s, timeout_s)
            except _UnreachedError:
                self._lose(client)
            finally:
                self._calls -= 1
        raise EngineError("its server is not running", engine=tool)

    async def _call(
        self,
        client: "Client",
        tool: str,
        arguments: Mapping[str, Any],
        key: str,
        deadline_s: float,
        timeout_s: float,
    ) -> "CallToolResult":
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            async with asyncio.timeout_at(deadline_s):
                meta = cast("RequestParamsMeta", {KEY_FIELD: key})
                return await self._send(client, tool, dict(arguments), meta)
        except TimeoutError:
            raise EffectUnknownError(
                f"its server did not answer within {timeout_s:g} s", engine=tool
            ) from None
        except MCPError as error:
            if self._unreached.take(key) and error.code != UNKNOWN_METHOD:
                raise _UnreachedError from error
            if error.code in NOT_CARRIED_OUT:
                raise EngineError(f"its server refused: {self.shown(error)}", engine=tool) from error
            if error.code == CONNECTION_CLOSED:
                self._lose(client)
            raise EffectUnknownError(f"its server failed: {self.shown(error)}", engine=tool) from error
        except RuntimeError as error:
            # A result that its own schema does not permit: the connection is as good as before.
            raise EffectUnknownError(
                f"its result cannot be used: {self.shown(error)}", engine=tool
            ) from error
        except Exception as error:
            # Errors of HTTP and of streams that are closed, of several libraries.
            if self._unreached.take(key):
                raise _UnreachedError from error
            self._lose(client)
            raise EffectUnknownError(
                f"the connection to its server broke: {self.shown(error)}", engine=tool
            ) from error

    async def _send(
        self, client: "Client", tool: str, arguments: dict[str, Any], meta: "RequestParamsMeta"
    ) -> "CallToolResult":
        """Send one call and wait for its result."""
        return await client.call_tool(tool, arguments, meta=meta)

    async def _read_tools(self, client: "Client") -> dict[str, McpToolInfo]:
        """Return the tools that a server lists."""
        return await _tools_of(client)

    def shown(self, said: BaseException | str) -> str:
        """Return words of the server, or an error about it, as a model may read them."""
        if isinstance(said, AgentError):
            said = str(said)
        return shown_reason(one_line(said) if isinstance(said, BaseException) else said, self._secrets)

    def _lose(self, client: "Client") -> None:
        """Give a connection up, unless there is another one since."""
        if client is self._client:
            self._lost.set()
            self._changed.set()

    async def _connected(self, tool: str, within_s: float) -> "Client":
        try:
            async with asyncio.timeout(within_s):
                while self._client is None or self._lost.is_set():
                    await self._changes()
                return self._client
        except TimeoutError:
            why = f": {self._failure}" if self._failure else ""
            raise EngineError(f"its server is not running{why}", engine=tool) from None

    async def _changes(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _run(self) -> None:
        pause_s, loop = FIRST_PAUSE_S, asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            try:
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(self._connect_s):
                        client = await stack.enter_async_context(self._connection())
                    self.tools = await self._read_tools(client)
                    self._client, self._failure = client, ""
                    self._lost.clear()
                    self._changed.set()
                    await self._until_lost(client)
                    self._failure = "it has ended"
            except Exception as error:
                # A program that does not start, an address that refuses, a protocol that is another one.
                self._failure = self.shown(error)
            self._client = None
            self._changed.set()
            if loop.time() - begun_s > LONGEST_PAUSE_S:
                # It has worked for a while. One that ends again and again is started less and less often.
                pause_s = FIRST_PAUSE_S
            self._log_loss(pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _log_loss(self, pause_s: float) -> None:
        """Log that the connection is lost, and the pause until the next attempt."""
        gone = f"the MCP server {self._address.name} is gone ({self._failure})"
        logger.warning(f"{gone}, next attempt in {pause_s:g} s")

    async def _until_lost(self, client: "Client") -> None:
        try:
            while not self._lost.is_set():
                try:
                    async with asyncio.timeout(PING_EVERY_S):
                        await self._lost.wait()
                except TimeoutError:
                    if self._calls:
                        # A program with one thread answers no ping while it works; a call has its deadline.
                        continue
                    async with asyncio.timeout(PING_S):
                        await client.session.send_ping()
        finally:
            # Calls wait for the next connection while this one is closed.
            self._lost.set()

    @asynccontextmanager
    async def _connection(self) -> "AsyncIterator[Client]":
        from mcp import Client, StdioServerParameters
        from mcp.client.streamable_http import streamable_http_client

        address = self._address
        if address.command:
            program, *arguments = address.command
            started = StdioServerParameters(command=program, args=arguments, env=dict(address.env))
            async with Client(started, mode="legacy") as client:
                yield client
            return
        from parley.models.tools.mcp_http import WatchedClient

        async with (
            # A server may hold a stream of events open; calls have their own deadlines.
            WatchedClient(self._unreached, headers=dict(address.headers), timeout=HTTP_S) as http,
            Client(streamable_http_client(address.url, http_client=http), mode="legacy") as client,
        ):
            yield client


def info_of(tool: "ListedTool") -> McpToolInfo:
    """Return a tool of a server's list."""
    hints = tool.annotations
    shown = None if hints is None else hints.model_dump(mode="json", by_alias=True, exclude_none=True)
    return McpToolInfo(tool.description or "", tool.input_schema, shown)


async def _tools_of(client: "Client") -> dict[str, McpToolInfo]:
    found: dict[str, McpToolInfo] = {}
    cursor: str | None = None
    async with asyncio.timeout(CONNECT_S):
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                found[tool.name] = info_of(tool)
            cursor = page.next_cursor
            if cursor is None:
                break
    return found


class McpServers:
    """Servers of a process: one for each address."""

    def __init__(self) -> None:
        self._servers: dict[McpAddress, McpServer] = {}

    def of(self, address: McpAddress) -> McpServer:
        """Return the server of an address; it is opened by ``open``."""
        return self._servers.setdefault(address, McpServer(address))

    async def open(self) -> None:
        """Connect to all servers.

        Raises:
            ConfigError: one cannot be used; all are closed then.
        """
        try:
            async with asyncio.TaskGroup() as opening:
                for server in self._servers.values():
                    opening.create_task(server.open(), name="tools.mcp.open")
        except ExceptionGroup as errors:
            await self.close()
            raise errors.exceptions[0] from errors

    async def close(self) -> None:
        """Close all servers."""
        servers: Sequence[McpServer] = list(self._servers.values())
        await asyncio.gather(*(server.close() for server in servers))
