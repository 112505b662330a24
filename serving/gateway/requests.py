"""What a route asks of a request before it acts on it: who sent it, and that its body is a JSON object."""

import json
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from core.errors import PeerError


def check_origin(connection: HTTPConnection, *, allowed: Collection[str]) -> None:
    """Refuse a page of another origin.

    No Origin header: not a browser page. A page of our own host (``KnownHosts`` has looked at the name), or
    of the list, may call.

    Raises:
        HTTPException: 403.
    """
    origin = connection.headers.get("origin")
    if not origin or origin in allowed:
        return
    try:
        netloc = urlsplit(origin).netloc
    except ValueError:
        netloc = ""
    if netloc and netloc == connection.headers.get("host"):
        return
    raise HTTPException(403, f"origin {origin} is not allowed")


async def read_json(request: Request, *, allowed_origins: Collection[str]) -> dict[str, Any]:
    """The body of a request that is allowed to have one; without a body, an empty object.

    Raises:
        HTTPException: 403, a page of another origin.
        PeerError: the body is not a JSON object.
    """
    check_origin(request, allowed=allowed_origins)
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError) as error:
        # Not only JSONDecodeError: bytes that are not UTF-8, and numbers too long for Python.
        raise PeerError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise PeerError("the body must be a JSON object")
    return body
