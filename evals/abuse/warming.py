"""First calls of a server without control calls: the memory that they load is in all later figures."""

from contextlib import suppress

import aiohttp
from websockets.exceptions import WebSocketException

from parley.core.errors import AgentError, PeerError
from parley.evals.abuse.target import Target
from parley.evals.harness.socket_caller import SocketCaller
from parley.evals.harness.webrtc_caller import Line

HEARD_MS = 15_000
REQUEST_S = 15.0
QUESTION = "What are your opening hours on Saturday?"


async def warm(target: Target) -> None:
    """Hold a call over a socket and by WebRTC and type a turn, with a key if the server requires one.

    Raises:
        PeerError: a call does not come up, or is not answered.
    """
    token = target.keys[0] if target.keys else ""
    try:
        await _call_by_socket(target, token)
        await _call_by_webrtc(target, token)
        await _type(target, token)
    except (AgentError, OSError, WebSocketException, aiohttp.ClientError, TimeoutError) as error:
        raise PeerError(f"the first calls of the server fail: {error}") from error


async def _call_by_socket(target: Target, token: str) -> None:
    caller = SocketCaller(f"{target.socket_url}/v1/realtime?model=parley-cascade", 1, token=token)
    await caller.call()
    if not caller.latencies_ms:
        raise PeerError(f"a question over a socket is not answered: {caller.errors[:3]}")


async def _call_by_webrtc(target: Target, token: str) -> None:
    line = Line(target.url, token=token)
    try:
        await line.dial()
        if not await line.wait_bot_audible(line.connected_us, HEARD_MS):
            raise PeerError("no audio of the bot arrived over WebRTC")
    finally:
        with suppress(TimeoutError):
            await line.hang_up()


async def _type(target: Target, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=REQUEST_S)
    async with aiohttp.ClientSession(target.url, headers=headers, timeout=timeout) as client:
        async with client.post("/api/sessions") as response:
            response.raise_for_status()
            session = (await response.json())["id"]
        async with client.post(f"/api/sessions/{session}/messages", json={"text": QUESTION}) as response:
            response.raise_for_status()
            await response.read()
