"""A user's endpoint on loopback: counts effects by idempotency key."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.peers.http_peer import HttpPeer


@dataclass
class WebhookServer(HttpPeer):
    """Server of ``POST /order``.

    Attributes:
        deduplicates: whether it keeps its promise of idempotency keys.
        body: body of the answer; bytes as they are, anything else as JSON.
        content_type: content type of a body of bytes.
        status: status of the answer.
        headers: headers of the answer.
        hold: event to wait for between the effect and the answer.
        drops: break the connection instead of answering.
        reached: set by every request, when it has taken effect.
        requests: requests in order of arrival.
        effects: how often each key took effect.
    """

    deduplicates: bool = True
    body: Any = field(default_factory=lambda: {"number": 7})
    content_type: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hold: asyncio.Event | None = None
    drops: bool = False
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[Any] = field(default_factory=list)
    request_headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)

    # The endpoint goes on when its client leaves.
    ends_with_client = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/order"

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._serve)]

    async def __aexit__(self, *error: object) -> None:
        if self.hold is not None:
            self.hold.set()
        await super().__aexit__(*error)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(f"{request.method} {request.path}")
        self.requests.append(await request.json())
        self.request_headers.append(dict(request.headers))
        key = request.headers.get("Idempotency-Key", "")
        if not (self.deduplicates and self.effects[key]):
            self.effects[key] += 1
        self.reached.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.drops:
            assert request.transport is not None
            request.transport.abort()
        if isinstance(self.body, bytes):
            return web.Response(
                status=self.status,
                headers={"Content-Type": self.content_type, **self.headers},
                body=self.body,
            )
        return web.json_response(self.body, status=self.status, headers=self.headers)
