"""A call that this process joins or opens: in a room that another server hosts, or to an agent elsewhere."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from parley.core.errors import ConfigError, PeerError
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.transports.registry import TRANSPORTS

if TYPE_CHECKING:
    from pipecat.runner.types import RunnerArguments

    from parley.configs.deployment import Deployment


async def call_in_room(
    deployment: "Deployment", transport: str, *, session_id: str | None = None, mode: str = CASCADE
) -> int:
    """Join the room that the environment names, and hold a conversation until the caller leaves.

    Raises ConfigError when a package or a variable is missing, or the room cannot be joined.
    """
    arguments = TRANSPORTS.arguments_from(transport, os.environ)
    return await _hold(deployment, arguments, transport, session_id=session_id, mode=mode)


async def call_agent(
    deployment: "Deployment", url: str, *, session_id: str | None = None, mode: str = CASCADE
) -> int:
    """Call an agent elsewhere, and hold a conversation in which its voice is the caller until one side ends.

    Raises:
        ConfigError: it cannot be reached, or the address is none of a socket.
    """
    from parley.transports.websocket.agent_client import AgentArguments

    arguments = AgentArguments(url=url)
    return await _hold(deployment, arguments, "websocket", session_id=session_id, mode=mode)


async def _hold(
    deployment: "Deployment",
    arguments: "RunnerArguments",
    transport: str,
    *,
    session_id: str | None,
    mode: str,
) -> int:
    from parley.pipelines.dispatch import run_session
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.sessions import open_conversations

    body = {"mode": mode, **({} if session_id is None else {"session": session_id})}
    arguments = replace(arguments, body=body)
    async with (
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
    ):
        try:
            await run_session(engines, conversations, arguments)
        except PeerError as error:
            raise ConfigError(f"--transport {transport}: {error}") from error
    return 0
