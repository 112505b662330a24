"""The world outside of the server: endpoints of tools, which outlive it and count what took effect.

``POST /orders`` carries every request out: a repeated one would be a second order, so its tool is not
``idempotent``. ``POST /bookings`` keeps the promise of a tool that is: requests with one ``Idempotency-Key``
take effect once. Both take their time and go on when the client is gone; the effect comes at a random moment
of it, so a kill may find it before or behind.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web

from evals.crash.phases import Phase, Progress

# Always the same, so that a kill comes in the phase that was drawn.
TAKES_S = 0.2
ORDER, BOOKING = "place_order", "book_table"
PATHS = {ORDER: "/orders", BOOKING: "/bookings"}


@dataclass(frozen=True, slots=True)
class Request:
    """What arrived.

    Attributes:
        key: the ``Idempotency-Key``.
        tool: whose endpoint.
        item: what for; unique for each wish of a person.
    """

    key: str
    tool: str
    item: str


@dataclass
class Outside:
    """The endpoints.

    Attributes:
        progress: told when a tool runs.
        chance: of the moment at which a request takes effect.
        requests: in order of arrival.
        effects: how often each item was ordered or booked.
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
