"""A client must not have the server connect to addresses of its own machine, or of its network."""

import asyncio
import json
from contextlib import AsyncExitStack

from websockets.asyncio.client import ClientConnection

from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.registry import AttackRun, Outcome, attack

ANSWER_S = 15.0
# This machine, as names and numbers that resolvers and libraries read in different ways.
HOSTS = (
    "127.0.0.1",
    "localhost",
    "localhost.",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
)
LISTENERS = "127.0.0.1", "::1"


@attack(
    "mcp-addresses",
    "a client without the grant has the server connect to an MCP server",
    setting="model",
    controls=False,
)
async def mcp_addresses(run: AttackRun) -> Outcome:
    """Declare MCP servers without the grant: each is refused, and no connection is made."""
    return await _declare(run, is_granted=False)


@attack(
    "mcp-addresses-granted",
    "a client with the grant for MCP servers has the server connect to its own machine",
    setting="model-granted",
    controls=False,
)
async def mcp_addresses_granted(run: AttackRun) -> Outcome:
    """Declare the same with the grant: no connection is made to an address that is not public."""
    return await _declare(run, is_granted=True)


async def _declare(run: AttackRun, *, is_granted: bool) -> Outcome:
    reached: list[str] = []
    faults: list[str] = []

    async def on_connection(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(str(writer.get_extra_info("sockname")[0]))
        writer.close()

    async with AsyncExitStack() as stack:
        port = 0
        for address in LISTENERS:
            try:
                trap = await asyncio.start_server(on_connection, address, port)
            except OSError:
                # A machine without IPv6.
                continue
            await stack.enter_async_context(trap)
            port = trap.sockets[0].getsockname()[1]
        urls = [f"{scheme}://{host}:{port}/mcp" for scheme in ("https", "http") for host in HOSTS]
        socket = await stack.enter_async_context(await run.socket("/v1/realtime?model=parley-cascade"))
        for url in urls:
            try:
                ended = await _outcome(socket, url)
            except (TimeoutError, *GONE) as error:
                faults.append(f"{url}: no answer: {error!r}")
                break
            if ended != "not_permitted" and not (is_granted and ended == "mcp_list_tools.failed"):
                faults.append(f"{url}: {ended}")
    if reached:
        faults.append(f"{len(reached)} connections to {sorted(set(reached))}")
    return Outcome(len(urls), {"connections": len(reached)}, faults)


async def _outcome(socket: ClientConnection, url: str) -> str:
    """Return how a declaration ended: the code of its refusal, or the type of the event about its list."""
    tool = {"type": "mcp", "server_label": "shop", "server_url": url, "require_approval": "never"}
    await socket.send(json.dumps({"type": "session.update", "session": {"tools": [tool]}}))
    async with asyncio.timeout(ANSWER_S):
        while True:
            event = json.loads(await socket.recv())
            if event["type"] == "error" and event["error"]["code"] != "mcp_list_tools_failed":
                return str(event["error"]["code"])
            if event["type"] in ("mcp_list_tools.completed", "mcp_list_tools.failed"):
                return str(event["type"])
