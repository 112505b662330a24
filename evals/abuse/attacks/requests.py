"""Requests that several attacks make: they return the status, 0 when the connection breaks."""

from contextlib import suppress

import aiohttp
from websockets.exceptions import WebSocketException

# Errors of a peer that is gone, or refuses.
GONE = (OSError, WebSocketException, TimeoutError, aiohttp.ClientError)


async def new_session(client: aiohttp.ClientSession) -> str:
    """Make a session; return its id. Raises as aiohttp when it is refused."""
    async with client.post("/api/sessions") as response:
        response.raise_for_status()
        return str((await response.json())["id"])


async def type_turn(client: aiohttp.ClientSession, session: str, text: str) -> int:
    """Type a turn into a session; return the status."""
    with suppress(*GONE):
        async with client.post(f"/api/sessions/{session}/messages", json={"text": text}) as response:
            await response.read()
            return response.status
    return 0


async def status_of(client: aiohttp.ClientSession, method: str, path: str, token: str = "") -> int:
    """Make a request with a token, or without the header; return the status."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with suppress(*GONE):
        async with client.request(
            method, path, headers=headers, json={} if method == "POST" else None
        ) as response:
            await response.read()
            return response.status
    return 0
