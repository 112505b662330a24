"""HTTP client of one MCP server that notes which calls did not reach it.

A refused connection, and a 404 for a session that a restarted server does not know, mean that the call was
not carried out: it may be made again without a second effect. The protocol's client reports both in ways that
other failures have too (a closed connection, an invalid request).
"""

from typing import Any

import httpx2

from parley.models.tools.mcp_server import UnreachedCalls

SESSION_HEADER = "mcp-session-id"
NOT_FOUND = 404


class WatchedClient(httpx2.AsyncClient):
    """Client that notes calls which did not reach their server.

    Args:
        unreached: where they are noted.
        more: as for ``httpx2.AsyncClient``.
    """

    def __init__(self, unreached: UnreachedCalls, **more: Any) -> None:
        super().__init__(**more)
        self._unreached = unreached

    async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        """Send a request, as ``httpx2.AsyncClient`` does."""
        try:
            response = await super().send(request, **more)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            await self._note(request)
            raise
        if response.status_code == NOT_FOUND and SESSION_HEADER in request.headers:
            await self._note(request)
        return response

    async def _note(self, request: httpx2.Request) -> None:
        # A request that follows a redirect has its content as a stream.
        self._unreached.note(await request.aread())
