"""Scripted behaviour of a local model server for one request, and the server that takes scripts in turn."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.peers.http_peer import HttpPeer


@dataclass(frozen=True)
class Turn:
    """The behaviour of one request.

    Attributes:
        pieces: text of the answer, in the pieces in which it is streamed.
        first_token_ms: time before the first piece.
        between_ms: time between pieces.
        stall_after: after so many pieces the stream stays open and silent.
        drop_after: after so many pieces the connection breaks.
        error_after: after so many pieces the stream reports an error and ends.
        status: an HTTP status instead of an answer.
        retry_after_s: value of ``Retry-After`` that is sent with the status.
        tool: a function to call instead of an answer.
        arguments: arguments of the function, as JSON.
        cached_tokens: reported as read from the prompt cache.
    """

    pieces: Sequence[str] = ()
    first_token_ms: int = 0
    between_ms: int = 0
    stall_after: int | None = None
    drop_after: int | None = None
    error_after: int | None = None
    status: int = 200
    retry_after_s: int | None = None
    tool: str | None = None
    arguments: str = "{}"
    cached_tokens: int = 0


class StreamBroken(Exception):
    """Raised when the script breaks the connection."""


@dataclass
class ModelServer(HttpPeer, ABC):
    """HTTP server on a loopback port. Request ``n`` gets turn ``n``, later ones the last.

    Attributes:
        turns: the script.
        requests: bodies in order of arrival.
        headers: the same requests' headers.
        abandoned: requests whose client left before the end.
        unstreamed: script of requests without a stream, which are counted separately.
    """

    turns: Sequence[Turn]
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    abandoned: int = 0
    unstreamed: Sequence[Turn] = ()

    path = "/"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def routes(self) -> list[web.RouteDef]:
        return [web.post(self.path, self._serve)]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        script = self.turns if body.get("stream") or not self.unstreamed else self.unstreamed
        before = sum(bool(known.get("stream")) == bool(body.get("stream")) for known in self.requests)
        turn = script[min(before, len(script) - 1)]
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        if turn.status != 200:
            retry = {} if turn.retry_after_s is None else {"retry-after": str(turn.retry_after_s)}
            return web.json_response(self.error_body(turn.status), status=turn.status, headers=retry)
        if not self.requests[-1].get("stream"):
            return web.json_response(self.whole(turn))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            await self.stream(response, turn)
        except StreamBroken:
            assert request.transport is not None
            request.transport.abort()
        except (asyncio.CancelledError, ConnectionError):
            self.abandoned += 1
            raise
        return response

    @abstractmethod
    async def stream(self, response: web.StreamResponse, turn: Turn) -> None:
        """Stream an answer in the provider's protocol."""

    @abstractmethod
    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer to a request without a stream."""

    @abstractmethod
    def error_body(self, status: int) -> dict[str, Any]:
        """Return the body that the provider sends with an HTTP error."""


async def pace(turn: Turn, sent: int) -> None:
    """Follow the script before piece number ``sent``: wait, stall or break."""
    if turn.stall_after == sent:
        await asyncio.Event().wait()
    if turn.drop_after == sent:
        # Give the written data time to leave before the connection breaks.
        await asyncio.sleep(0.02)
        raise StreamBroken
    delay_ms = turn.first_token_ms if sent == 0 else turn.between_ms
    if delay_ms:
        await asyncio.sleep(delay_ms / 1000)
