"""Endpoints of tools, outside of the server: they outlive it and count the effects.

``POST /orders`` carries every request out: a repeated one would be a second order, so its tool is not
``idempotent``. ``POST /bookings`` keeps the promise of a tool that is: requests with one ``Idempotency-Key``
take effect once. Both take some time and continue when the client is gone. The effect comes at a random
moment, so a kill may come before or after it.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web

from parley.evals.crash.phases import Phase, Progress

# Constant, so that a kill comes in the phase that was drawn.
TAKES_S = 0.2
ORDER, BOOKING = "place_order", "book_table"
PATHS = {ORDER: "/orders", BOOKING: "/bookings"}


@dataclass(frozen=True, slots=True)
class Request:
    """A received request.

    Attributes:
        key: the ``Idempotency-Key``.
        tool: whose endpoint it was.
        item: unique for each order or booking.
    """

    key: str
    tool: str
    item: str


@dataclass
class Outside:
    """The endpoints.

    Attributes:
        progress: notified when a tool runs.
        chance: draws the moment at which a request takes effect.
        requests: in order of arrival.
        effects: number of orders or bookings of each item.
    """

    progress: Progress
    chance: random.Random
    requests: list[Request] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    _kept: set[str] = field(default_factory=set)

    def add_routes(self, app: web.Application) -> None:
        """Serve the endpoints."""
        app.router.add_post(PATHS[ORDER], self._order)
        app.router.add_post(PATHS[BOOKING], self._book)

    async def _order(self, request: web.Request) -> web.Response:
        return await self._take(request, ORDER)

    async def _book(self, request: web.Request) -> web.Response:
        return await self._take(request, BOOKING)

    async def _take(self, request: web.Request, tool: str) -> web.Response:
        self.progress.enter(Phase.TOOL)
        item = str((await request.json())["item"])
        key = request.headers.get("Idempotency-Key", "")
        self.requests.append(Request(key, tool, item))
        before_s = self.chance.uniform(0, TAKES_S)
        await asyncio.sleep(before_s)
        if tool == ORDER or key not in self._kept:
            self._kept.add(key)
            self.effects[item] += 1
        await asyncio.sleep(TAKES_S - before_s)
        self.progress.enter(Phase.RESULT)
        return web.json_response({"done": item})
