"""Verdict about a server's health while its disk is slow, with servers that answer in different ways."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from parley.evals.abuse.attacks.storage import HEALTH_S
from parley.evals.abuse.registry import AttackRun
from parley.evals.abuse.target import Target
from parley.evals.chaos.disk import typed_turns

TURN_S = 0.05


@asynccontextmanager
async def serving(health: int | None, turn_s: float) -> AsyncIterator[AttackRun]:
    """Serve typed turns, and ``/health`` with a status; None: it hangs."""
    looked = asyncio.Event()

    async def make(_request: web.Request) -> web.Response:
        return web.json_response({"id": "one"})

    async def take(_request: web.Request) -> web.Response:
        await looked.wait()
        await asyncio.sleep(turn_s)
        return web.Response()

    async def report(_request: web.Request) -> web.Response:
        looked.set()
        if health is None:
            await asyncio.Event().wait()
        return web.Response(status=health or 0)

    application = web.Application()
    application.router.add_post("/api/sessions", make)
    application.router.add_post("/api/sessions/one/messages", take)
    application.router.add_get("/health", report)
    async with TestServer(application) as server:
        yield AttackRun(Target(str(server.make_url("")).rstrip("/"), 0, ""), 0.0, random.Random(1))


@pytest.mark.parametrize(
    ("health", "turn_s", "expected"),
    [
        (200, TURN_S, ""),
        (500, TURN_S, "/health: 500 after "),
        # Three turns take longer than an answer may; the watch ends in the middle of the request.
        (None, HEALTH_S / 2, "/health: 0 after "),
        (None, TURN_S, "/health was not answered"),
    ],
    ids=["sound", "failing", "hanging", "silent"],
)
async def test_typed_turns_that_succeed_do_not_hide_a_bad_health(
    health: int | None, turn_s: float, expected: str
):
    async with asyncio.timeout(30), serving(health, turn_s) as attack:
        found = await typed_turns(attack)
    assert [each[: len(expected)] for each in found] == ([expected] if expected else [])
