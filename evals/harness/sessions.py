"""Sessions of a server on this machine, through its public sessions API."""

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from parley.configs.load import PROJECT_DIR
from parley.core.errors import PeerError
from parley.serving.gateway.auth.admin_token import operator_token

READ_S = 30.0
PAGE = 1_000


def operator_headers() -> dict[str, str]:
    """Return the headers of the operator: the token of the environment, or that of this checkout's servers.

    Raises:
        ConfigError: the file with the token could be read by others.
    """
    token = operator_token(PROJECT_DIR / "data").text
    return {"Authorization": f"Bearer {token}"}


async def timeline(url: str, session_id: str) -> list[Mapping[str, Any]]:
    """Return every event of a session, by event time.

    Raises:
        PeerError: the server refuses, or is gone.
    """
    events: list[Mapping[str, Any]] = []
    query: dict[str, str] = {"limit": str(PAGE)}
    while True:
        page = await _get(f"{url}/api/sessions/{session_id}/timeline", query)
        events += page["events"]
        if not page["after"]:
            return events
        query["after"] = page["after"]


async def prompt(url: str, session_id: str) -> list[Mapping[str, Any]]:
    """Return the messages that the model would be given now.

    Raises:
        PeerError: the server refuses, or is gone.
    """
    found = await _get(f"{url}/api/sessions/{session_id}/prompt", {})
    messages: list[Mapping[str, Any]] = found["messages"]
    return messages


async def newest(url: str) -> Sequence[Mapping[str, Any]]:
    """Return the timeline of the session that began last.

    Raises:
        PeerError: the server refuses, or is gone.
    """
    return await timeline(url, await newest_id(url))


async def newest_id(url: str) -> str:
    """Return the id of the session that began last.

    Raises:
        PeerError: the server refuses, or is gone.
    """
    [session_id] = await newest_ids(url, 1)
    return session_id


async def newest_ids(url: str, most: int) -> list[str]:
    """Return the ids of the sessions that began last, the newest first.

    Raises:
        PeerError: the server refuses, or is gone.
    """
    listed = await _get(f"{url}/api/sessions", {"limit": str(most)}, operator_headers())
    return [str(each["id"]) for each in listed["sessions"]]


async def _get(
    url: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=READ_S)) as client,
            client.get(url, params=query, headers=headers) as response,
        ):
            if response.status != 200:
                raise PeerError(f"{url} answered {response.status}")
            answer = await response.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise PeerError(f"{url} cannot be read: {error!r}") from error
    if not isinstance(answer, dict):
        raise PeerError(f"{url} did not return a JSON object")
    return answer
